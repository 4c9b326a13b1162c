"""Reading files that may be anybody's: whatever stands in their place, there is one error and no waiting.

A file of a run's folder may be damaged, planted or half copied. It may be a pipe that nobody writes to, a
link to a device without an end, a number of a million digits or a hundred thousand brackets. Everything that
reads such a file does so here, and all of it is a `DamagedError` in one line.
"""

import contextlib
import json
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from saddle_jax.base.errors import DamagedError, RunError, short_line
from saddle_jax.base.files import other_than_file

_LARGEST = 2**30  # bytes of a JSON file, or of the arrays of a file, that are read into memory
_DIGITS = 40  # of a whole number; more would overflow a float sooner or later
_DEEPEST = 64  # levels of brackets within brackets


def open_to_read(path: pathlib.Path) -> BinaryIO:
    """Opens a regular file, or a link to one; it neither waits for a pipe nor reads a device.

    Raises:
      FileNotFoundError: there is nothing of this name.
      DamagedError: something else stands there, or it may not be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except NotADirectoryError as error:  # a file where the folder should be
        raise FileNotFoundError(*error.args) from error
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise damaged(path, error) from error
    if kind := other_than_file(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise damaged(path, f"it is {kind}, not a file")
    return os.fdopen(descriptor, "rb")


def read_object(path: pathlib.Path) -> dict[str, Any] | None:
    """Reads a file that must hold a JSON object; returns None if there is no such file.

    Raises:
      DamagedError: anything else is there.
    """
    try:
        with open_to_read(path) as file, reading(path):
            content = file.read(_LARGEST + 1)
            if len(content) > _LARGEST:
                raise ValueError(f"it has more than {_LARGEST:,} bytes")
            found = parse(content)
            _check_depth(found)
    except FileNotFoundError:
        return None
    if not isinstance(found, dict):
        raise damaged(path, "it must be a JSON object")
    return found


def parse(content: bytes) -> Any:
    """Returns what JSON in UTF-8 says; a ValueError is all that can be wrong with it."""
    try:
        return _DECODER.decode(content.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_arrays(path: pathlib.Path, names: Sequence[str]) -> list[np.ndarray] | None:
    """Reads float64 arrays by their names from a file .npz; returns None if there is no such file.

    Raises:
      DamagedError: the file is damaged, or an array is missing or claims to be larger than memory.
    """
    try:
        with open_to_read(path) as file, reading(path), np.load(file, allow_pickle=False) as stored:
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise ValueError("it must hold several arrays")
            try:
                return [np.asarray(stored[name], np.float64) for name in names]
            except MemoryError as error:
                raise ValueError("an array claims to be larger than memory") from error
    except FileNotFoundError:
        return None


# What json, zipfile, zlib and NumPy raise for bytes that they do not expect.
_REFUSALS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    EOFError,
    OverflowError,
    RecursionError,
    RuntimeError,  # among them "encrypted" and NotImplementedError: an unknown compression
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
)


@contextlib.contextmanager
def reading(path: pathlib.Path, remedy: str = "") -> Iterator[None]:
    """Turns whatever goes wrong with a file's content into a `DamagedError`, with a remedy if given.

    Raises:
      RunError: there is too little memory for a file that may be whole.
    """
    try:
        yield
    except (DamagedError, FileNotFoundError):
        raise
    except MemoryError as error:
        raise RunError(f"{path} cannot be read: this process has too little memory for it") from error
    except _REFUSALS as error:
        raise damaged(path, error, remedy) from error


def damaged(path: pathlib.Path, reason: str | BaseException, remedy: str = "") -> DamagedError:
    """Returns the error that says which file cannot be read, why, and what to do."""
    if isinstance(reason, OSError):
        reason = reason.strerror or str(reason)
    text = reason if isinstance(reason, str) else short_line(reason)
    return DamagedError(f"{path} cannot be read: {text}{remedy and f'; {remedy}'}")


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_whole)  # one for all: a long file has a million lines


def _check_depth(content: Any) -> None:
    """Checks without recursion that lists and objects are not nested deeper than any file of ours."""
    level = [content]
    for _ in range(_DEEPEST):
        containers = [each for each in level if isinstance(each, dict | list)]
        if not containers:
            return
        level = [
            inner for each in containers for inner in (each.values() if isinstance(each, dict) else each)
        ]
    raise ValueError(f"it is nested deeper than {_DEEPEST} levels")
