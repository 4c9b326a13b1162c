"""What a stream can display: the width of a terminal, and whether lines can be redrawn."""

import os
import shutil
from typing import TextIO


def is_drawable(stream: TextIO) -> bool:
    """Returns whether lines of a stream can be redrawn: it is a terminal, and not a dumb one."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # it is closed
        return False


def width_of(stream: TextIO) -> int | None:
    """Returns a terminal's width in columns, or COLUMNS if that is set; None for files and pipes."""
    try:
        if not stream.isatty():
            return None
    except ValueError:
        return None
    return shutil.get_terminal_size().columns
