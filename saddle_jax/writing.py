"""Writing files in one go: whoever looks sees the old one or the new one, never a half."""

import contextlib
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def in_one_go(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """A name beside `path` to write to. It becomes `path` when all went well, and is removed otherwise."""
    path = pathlib.Path(path)
    partial = path.with_name(f".partial-{path.name}")  # it keeps the ending, which may say the format
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
