"""Atomic writing: a reader sees the old file or the new one, and nothing outside the folder is changed.

A folder may come from another person, who may have planted links in it. So a file is first written under a
random name, which cannot have been planted, and must not exist yet. A link at the final name is replaced, not
followed.
"""

import contextlib
import os
import pathlib
import re
import secrets
import stat
import time
from collections.abc import Iterator

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError

_STALE = 3600.0  # seconds after which a partial file counts as abandoned
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has none
_KINDS = {
    "a link": stat.S_ISLNK,
    "a folder": stat.S_ISDIR,
    "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
    "a pipe": stat.S_ISFIFO,
    "a socket": stat.S_ISSOCK,
}


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields the path of a temporary file, which replaces `path` on success and is removed on error.

    Raises:
      RunError: `path` is not a regular file but, for example, a device, which must not be replaced.
    """
    path = pathlib.Path(path)
    with contextlib.suppress(FileNotFoundError):
        if kind := other_than_file(path.stat().st_mode):
            raise RunError(f"{path} cannot be written: it is {kind}, not a file")
    _remove_stale(path)
    partial = path.with_name(f".partial-{secrets.token_hex(8)}-{path.name}")  # the suffix may set the format
    with naming(path, partial):
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, 0o666))
        try:
            yield partial
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: pathlib.Path, partial: pathlib.Path | None = None) -> Iterator[None]:
    """Makes an OSError name `path` if it names no file, or our temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, partial and str(partial), partial):
            error.filename, error.filename2 = str(path), None
        raise


def cache_folder() -> pathlib.Path:
    """Returns the cache folder: SADDLE_CACHE_DIR, or a folder in the user's cache directory."""
    if named := os.environ.get("SADDLE_CACHE_DIR"):
        return pathlib.Path(named).expanduser()
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "saddle_jax"


def private_folder(path: pathlib.Path) -> pathlib.Path:
    """Makes a folder for files that are later loaded or executed, and returns its resolved path.

    Other users can neither write into it nor replace it: the folder belongs to the user, with mode 700. Its
    parents belong to the user or root, and others may not write to them or, as in /tmp, not rename files of
    other owners. Missing parents are made with mode 700, too. Windows protects a user's folders itself.

    Raises:
      ArgumentError: it cannot be made, or it or the parent that the message names is open to others.
    """
    path = path.absolute()
    path = pathlib.Path(os.path.realpath(path.parent)) / path.name
    for each in (*reversed(path.parents), path):  # from the root: a safe folder protects those inside
        try:
            if not os.path.lexists(each):
                with contextlib.suppress(FileExistsError):
                    each.mkdir(mode=0o700)
            found = each.lstat()
        except OSError as error:
            raise ArgumentError(f"{path} cannot be made: {error.strerror}") from error
        if each == path and not (stat.S_ISDIR(found.st_mode) and only_ours(found)):
            raise ArgumentError(f"{path} must be a folder that only you can write to")
        if each != path and not _guards(found):
            raise ArgumentError(
                f"{path} must be a folder that only you can write to, but others can change {each}"
            )
    return path


def only_ours(found: os.stat_result) -> bool:
    """Returns whether a file or folder belongs to the user and others may not write to it."""
    if not hasattr(os, "geteuid"):
        return True
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _guards(found: os.stat_result) -> bool:
    """Returns whether other users cannot rename the user's files in a folder, which may belong to root."""
    if not hasattr(os, "geteuid"):
        return True
    if found.st_uid not in (0, os.geteuid()):
        return False
    others_write = stat.S_IWOTH if _is_own_group(found.st_gid) else stat.S_IWGRP | stat.S_IWOTH
    return bool(found.st_mode & stat.S_ISVTX) or not found.st_mode & others_write


def _is_own_group(number: int) -> bool:
    """Returns whether a group is the user's private group: it has the user's name and no other member."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def check_named_output(name: str | None, setting: str = "output") -> None:
    """Checks an output path, if there is one, before the computation: the file is new or may be replaced.

    Links are refused: replacing one such as /dev/stdout would harm the machine, and the user may have meant
    either the link or its target.
    """
    if name:
        with contextlib.suppress(FileNotFoundError):
            if kind := other_than_file(os.lstat(name).st_mode):
                raise RunError(
                    f"{setting} must be a file, new or to be replaced, got {name!r}, which is {kind}"
                )


def check_no_link(path: pathlib.Path) -> None:
    """Checks that an output folder is not a link."""
    if path.is_symlink():
        raise RunError(f"{path} is a link: what a run writes must lie in its own folder; remove the link")


def check_utf8(path: pathlib.Path) -> None:
    """Checks that a folder's whole path is UTF-8: the checkpoint library supports no other names."""
    try:
        str(path.absolute()).encode("utf-8")
    except UnicodeEncodeError as error:
        raise RunError(
            f"{path} cannot hold checkpoints: its path must be UTF-8; rename the folder"
        ) from error


def open_regular(path: pathlib.Path, flags: int) -> int:
    """Opens a regular file, without following links or blocking on a pipe, and returns its descriptor."""
    descriptor = os.open(path, flags | _NOFOLLOW | getattr(os, "O_NONBLOCK", 0), 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file")
    return descriptor


def other_than_file(mode: int) -> str | None:
    """Returns what a mode stands for, such as a link or a device; None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    return next((kind for kind, is_it in _KINDS.items() if is_it(mode)), "something unknown")


def _remove_stale(path: pathlib.Path) -> None:
    """Removes old temporary files of processes that were killed while writing `path`."""
    pattern = re.compile(r"\.partial-[0-9a-f]{16}-" + re.escape(path.name))
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _STALE:
                        os.unlink(entry.path)
