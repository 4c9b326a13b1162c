"""What a terminal can show: its width, colours, lines that are drawn over; files get plain text."""

import os
import shutil
from typing import TextIO

_CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}


def is_drawable(stream: TextIO) -> bool:
    """Tells whether a line can be drawn over on a stream: it is a terminal, and not a dumb one."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # it is closed
        return False


def has_colours(stream: TextIO) -> bool:
    """Tells whether a stream is a terminal that shows colours, which its user has not refused by NO_COLOR."""
    return is_drawable(stream) and not os.environ.get("NO_COLOR")


def painted(text: str, style: str, stream: TextIO) -> str:
    """Returns a text in bold, red, green or yellow where the stream shows colours, and as it is elsewhere."""
    return f"\033[{_CODES[style]}m{text}\033[0m" if has_colours(stream) else text


def width_of(stream: TextIO) -> int | None:
    """Returns the number of columns of a terminal, COLUMNS if that is set; None for files and pipes."""
    try:
        if not stream.isatty():
            return None
    except ValueError:
        return None
    return shutil.get_terminal_size().columns
