"""Reading untrusted files: whatever they contain, the result is a value or a one-line `DamagedError`.

A file in a run's folder may be damaged, planted or half copied. It may be a pipe without a writer, a link to
an endless device, a number of a million digits or a hundred thousand nested brackets. All code that reads
such files uses this module.
"""

import contextlib
import json
import math
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from saddle_jax.base.errors import DamagedError, RunError, short_line
from saddle_jax.base.files import other_than_file

LARGEST = 2**24  # bytes of a JSON file: settings and results of 10,000 agents take a few megabytes
# Limits on the values in such a file: few bytes of it can become a lot of memory, which SECURITY.md bounds.
_MOST = {"objects, lists and names": (b"[{:", 250_000), "values": (b",", 1_500_000)}
_MOST_NUMBERS = 2**22  # of an array; a landscape has at most 2,001 x 2,001
_WIDEST = 16  # bytes of one number
_DIRECTORY = 2**16  # bytes of an archive's central directory
TOO_LARGE = 1e100  # of the numbers of a run: below it, squares, sums and percentages do not overflow
_DIGITS = 40  # of an integer; larger ones could overflow a float
_DEEPEST = 64  # levels of nested lists and objects


def open_to_read(path: pathlib.Path) -> BinaryIO:
    """Opens a regular file, or a link to one, without blocking on a pipe or reading a device.

    Raises:
      FileNotFoundError: there is no such file.
      DamagedError: it is not a regular file, or may not be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except NotADirectoryError as error:  # a file in place of the folder
        raise FileNotFoundError(*error.args) from error
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: not a valid file name
        raise damaged(path, error) from error
    if kind := other_than_file(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise damaged(path, f"it is {kind}, not a file")
    return os.fdopen(descriptor, "rb")


def read_object(path: pathlib.Path) -> dict[str, Any] | None:
    """Reads a JSON object from a file; returns None if there is no such file.

    Raises:
      DamagedError: the file contains anything else.
    """
    try:
        with open_to_read(path) as file, reading(path):
            content = file.read(LARGEST + 1)
            if len(content) > LARGEST:
                raise ValueError(f"it has more than {LARGEST:,} bytes")
            for what, (signs, most) in _MOST.items():
                if sum(map(content.count, signs)) > most:
                    raise ValueError(f"it has more than {most:,} {what}")
            found = parse(content)
            _check_depth(found)
    except FileNotFoundError:
        return None
    if not isinstance(found, dict):
        raise damaged(path, "it must be a JSON object")
    return found


def parse(content: bytes) -> Any:
    """Parses JSON in UTF-8; any error is a ValueError."""
    try:
        return _DECODER.decode(content.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_arrays(path: pathlib.Path, names: Sequence[str]) -> list[np.ndarray] | None:
    """Reads float64 arrays by name from an .npz file; returns None if there is no such file.

    Raises:
      DamagedError: the file is damaged, or an array is missing or larger than any that we write.
    """
    try:
        with open_to_read(path) as file, reading(path):
            _check_directory(file)
            with zipfile.ZipFile(file) as archive:
                return [_array(archive, name) for name in names]
    except FileNotFoundError:
        return None


def _check_directory(file: BinaryIO) -> None:
    """Checks that an archive ends like those that NumPy writes, and that its directory is small."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 42))
    ends = file.read()
    before, end = ends[:-22], ends[-22:]
    if not end.startswith(b"PK\x05\x06") or before.startswith(b"PK\x06\x07"):  # the latter: zip64
        raise ValueError("it must be an archive of NumPy")
    if (size := int.from_bytes(end[12:16], "little")) > _DIRECTORY:
        raise ValueError(f"its list of arrays must have at most {_DIRECTORY:,} bytes, got {size:,}")


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Reads an array from an archive, after its header shows that it is not too large."""
    with archive.open(f"{name}.npy") as member:
        if np.lib.format.read_magic(member) != (1, 0):  # later ones have headers of any length
            raise ValueError(f"{name} must be an array of numbers")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    count = math.prod(shape)
    if count > _MOST_NUMBERS or dtype.itemsize > _WIDEST:
        raise ValueError(
            f"{name} must have at most {_MOST_NUMBERS:,} numbers of up to {_WIDEST} bytes, got {count:,} "
            f"of {dtype.itemsize:,} bytes"
        )
    with archive.open(f"{name}.npy") as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False), np.float64)


# What json, zipfile, zlib and NumPy raise for malformed input.
_REFUSALS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    EOFError,
    OverflowError,
    RecursionError,
    RuntimeError,  # such as "encrypted"; its subclass NotImplementedError: an unknown compression
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
)


@contextlib.contextmanager
def reading(path: pathlib.Path, remedy: str = "") -> Iterator[None]:
    """Converts all errors over a file's content into a `DamagedError` that names the file and the remedy.

    Raises:
      RunError: there is too little memory; the file may be intact.
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
    """Makes the error that says which file cannot be read, why, and what to do."""
    if isinstance(reason, OSError):
        reason = reason.strerror or str(reason)
    text = reason if isinstance(reason, str) else short_line(reason)
    return DamagedError(f"{path} cannot be read: {text}{remedy and f'; {remedy}'}")


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_whole)  # made once: a long file has a million lines


def _check_depth(content: Any) -> None:
    """Checks, without recursion, how deeply lists and objects are nested."""
    level = [content]
    for _ in range(_DEEPEST):
        containers = [each for each in level if isinstance(each, dict | list)]
        if not containers:
            return
        level = [
            inner for each in containers for inner in (each.values() if isinstance(each, dict) else each)
        ]
    raise ValueError(f"it is nested deeper than {_DEEPEST} levels")
