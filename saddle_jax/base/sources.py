"""Files that a user brings, read once: what is used, hashed and copied are the same bytes."""

import contextlib
import contextvars
import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Iterator

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import one_line

_LARGEST = 64 * 2**20  # bytes: a copy of it is kept with every run

_read: contextvars.ContextVar[dict[str, "Source"] | None] = contextvars.ContextVar("read", default=None)


@dataclasses.dataclass(frozen=True)
class Source:
    """A file as it was when it was read."""

    path: pathlib.Path
    sha256: str
    content: bytes = dataclasses.field(repr=False)

    @property
    def copy_name(self) -> str:
        """The name of a copy of it, which tells two files of one name apart."""
        return f"{self.sha256[:12]}-{self.path.name}"


@contextlib.contextmanager
def reading_once() -> Iterator[None]:
    """Lets each file be read once inside: a run that is being built does not see a file change."""
    if _read.get() is not None:
        yield
        return
    token = _read.set({})
    try:
        yield
    finally:
        _read.reset(token)


def read(what: str, name: str | os.PathLike[str]) -> Source:
    """Reads a file that a user named; `what` is the setting that names it."""
    path = pathlib.Path(name)
    place = os.path.realpath(path)
    known = _read.get()
    if known is not None and place in known:
        return dataclasses.replace(known[place], path=path)
    if not os.path.isfile(path):  # a pipe would be waited for
        raise ArgumentError(f"{what} must name a file that exists, got {str(name)!r}")
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        reason = error.strerror or one_line(error)
        raise ArgumentError(
            f"{what} must be in a file that can be read, got {str(name)!r}: {reason}"
        ) from error
    if len(content) > _LARGEST:
        raise ArgumentError(
            f"{what} must be in a file of at most {_LARGEST // 2**20} MiB, got {str(name)!r}, which is larger"
        )
    source = Source(path, hashlib.sha256(content).hexdigest(), content)
    if known is not None:
        known[place] = source
    return source
