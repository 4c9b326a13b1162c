"""Writing files: whoever looks sees the old one or the new one, never a half, and nothing outside is touched.

A folder may come from somebody else, who may have planted links in it. So what is written first has a random
name that nobody can have planted, and is created as a new file or not at all. A link at the final name is
replaced, not followed.
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

_STALE = 3600.0  # seconds after which nobody is still writing to a partial file
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has none
_KINDS = {
    "a link": stat.S_ISLNK,
    "a folder": stat.S_ISDIR,
    "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
    "a pipe": stat.S_ISFIFO,
    "a socket": stat.S_ISSOCK,
}


@contextlib.contextmanager
def in_one_go(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Gives a new file beside `path` to write to. It becomes `path` when all went well, or is removed.

    Raises:
      RunError: `path` exists and is no file but, for example, a device, which must not be replaced.
    """
    path = pathlib.Path(path)
    with contextlib.suppress(FileNotFoundError):
        if kind := other_than_file(path.stat().st_mode):
            raise RunError(f"{path} cannot be written: it is {kind}, not a file")
    _remove_stale(path)
    partial = path.with_name(f".partial-{secrets.token_hex(8)}-{path.name}")  # the ending may say the format
    with naming(path, partial):
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, 0o666))
        try:
            yield partial
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: pathlib.Path, partial: pathlib.Path | None = None) -> Iterator[None]:
    """Lets an error of the system name the file that a user knows, where it names none or our partial one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, partial and str(partial), partial):
            error.filename, error.filename2 = str(path), None
        raise


def cache_folder() -> pathlib.Path:
    """Returns the folder for what can be made again: SADDLE_CACHE_DIR, or one in the user's cache folder."""
    if named := os.environ.get("SADDLE_CACHE_DIR"):
        return pathlib.Path(named).expanduser()
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "saddle_jax"


def private_folder(path: pathlib.Path) -> pathlib.Path:
    """Makes a folder for what we load or run later, and returns its path without links.

    Nobody else can put anything into it or in its place: the folder is the user's, with mode 700, and those
    above it are the user's or root's, and others may not write to them or, as in /tmp, not rename what is not
    theirs. Missing folders above are made with mode 700, too. Windows guards a user's folders itself.

    Raises:
      ArgumentError: it cannot be made, or it or a folder above is open to others; the line names which.
    """
    path = path.absolute()
    path = pathlib.Path(os.path.realpath(path.parent)) / path.name
    for each in (*reversed(path.parents), path):  # from the root: a folder that is safe guards those inside
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
    """Tells whether a file or a folder is the user's own, and nobody else may write to it."""
    if not hasattr(os, "geteuid"):
        return True
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _guards(found: os.stat_result) -> bool:
    """Tells whether nobody else can rename what a user has in a folder, which may be root's."""
    if not hasattr(os, "geteuid"):
        return True
    if found.st_uid not in (0, os.geteuid()):
        return False
    others_write = stat.S_IWOTH if _is_own_group(found.st_gid) else stat.S_IWGRP | stat.S_IWOTH
    return bool(found.st_mode & stat.S_ISVTX) or not found.st_mode & others_write


def _is_own_group(number: int) -> bool:
    """Tells whether a group has the user's name and no other member: many systems give each user one."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def check_named_output(name: str | None, setting: str = "output") -> None:
    """Checks, before anything is computed, that the file which a user named, if any, is new or replaceable.

    A link is refused: to replace one such as /dev/stdout would harm the machine, and we cannot guess whether
    the link or the file behind it is meant.
    """
    if name:
        with contextlib.suppress(FileNotFoundError):
            if kind := other_than_file(os.lstat(name).st_mode):
                raise RunError(
                    f"{setting} must be a file, new or to be replaced, got {name!r}, which is {kind}"
                )


def check_no_link(path: pathlib.Path) -> None:
    """Checks that a folder which we are about to write into is not a link to somewhere else."""
    if path.is_symlink():
        raise RunError(f"{path} is a link: what a run writes must lie in its own folder; remove the link")


def check_spelt(path: pathlib.Path) -> None:
    """Checks that a folder's whole path is UTF-8: what writes and reads checkpoints knows no other names."""
    try:
        str(path.absolute()).encode("utf-8")
    except UnicodeEncodeError as error:
        raise RunError(
            f"{path} cannot hold checkpoints: its path must be UTF-8; rename the folder"
        ) from error


def open_regular(path: pathlib.Path, flags: int) -> int:
    """Opens a file that is no link, pipe or device; it never waits for a pipe's other end.

    Returns the descriptor.
    """
    descriptor = os.open(path, flags | _NOFOLLOW | getattr(os, "O_NONBLOCK", 0), 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file")
    return descriptor


def other_than_file(mode: int) -> str | None:
    """Names the kind of a thing on disk that is no regular file; None for a file."""
    if stat.S_ISREG(mode):
        return None
    return next((kind for kind, is_it in _KINDS.items() if is_it(mode)), "something unknown")


def _remove_stale(path: pathlib.Path) -> None:
    """Removes partial files of processes that were killed while writing `path`, once they are old enough."""
    pattern = re.compile(r"\.partial-[0-9a-f]{16}-" + re.escape(path.name))
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _STALE:
                        os.unlink(entry.path)
