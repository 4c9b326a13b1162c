"""What a terminal can show: its width, and lines that are drawn over; files get plain text."""

import os
import shutil
from typing import TextIO


def is_drawable(stream: TextIO) -> bool:
    """Tells whether a line can be drawn over on a stream: it is a terminal, and not a dumb one."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # it is closed
        return False


def width_of(stream: TextIO) -> int | None:
    """Returns the number of columns of a terminal, COLUMNS if that is set; None for files and pipes."""
    try:
        if not stream.isatty():
            return None
    except ValueError:
        return None
    return shutil.get_terminal_size().columns
