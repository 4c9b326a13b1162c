"""Standard output and error of a command: closed, full, or unable to spell what is printed."""

import contextlib
import errno
import functools
import io
import os
import sys
import warnings
from collections.abc import Iterator

from saddle_jax.base import terminal
from saddle_jax.cli.statuses import MISTAKE, reported

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def tell_disk(error: OSError) -> int:
    """Tells that a disk is full or broken, of which standard output may be a file."""
    print(
        f"saddle: {reported(error) if error.filename else f'standard output: {reported(error)}'}",
        file=sys.stderr,
    )
    drop_output()
    return MISTAKE


def drop_output() -> None:
    """Lets what is still to be printed go nowhere, lest Python complain about it as it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def silence_libraries() -> None:
    """Keeps what libraries warn programmers of, such as matplotlib of odd numbers, from standard error.

    Python's own option -W, or PYTHONWARNINGS, shows it. Our own warnings begin with the package's name; each
    is reported once, in one line. Python would tell it again whenever a library has touched the filters.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", message=r"saddle_jax\.")
        warnings.showwarning = lambda message, *_, **__: _tell_once(str(message))


@functools.cache
def _tell_once(warning: str) -> None:
    print(f"saddle: {warning.removeprefix('saddle_jax.')}", file=sys.stderr)


def mend() -> None:
    """Opens standard streams that are closed, and lets them spell out what their encoding does not have."""
    for number in (0, 1, 2):  # first of all: the next file that is opened would be taken for the stream
        with contextlib.suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def doing(text: str) -> Iterator[None]:
    """Shows what is being done as long as it is being done, where somebody watches."""
    passing(text)
    try:
        yield
    finally:
        passing()


def passing(text: str = "") -> None:
    """Shows what is being done on a line that the next one replaces, where somebody watches."""
    if terminal.is_drawable(sys.stderr):
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
