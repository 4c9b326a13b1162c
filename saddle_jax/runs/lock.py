"""The lock of a run's folder: one process trains in it, and knows when the folder was taken from it."""

import contextlib
import os
import pathlib
import time
from collections.abc import Callable, Iterator

from saddle_jax.base.errors import RunError
from saddle_jax.base.files import check_no_link, check_spelt, naming, open_regular
from saddle_jax.runs import source_files

_PATIENCE = 1.0  # seconds in which a lock may become free
# The folders in which a run writes or removes files.
FOLDERS = ("checkpoints", "tensorboard", "trace", source_files.FOLDER)


class Held:
    """The lock on a run's folder that this process holds."""

    def __init__(self, workdir: pathlib.Path, descriptor: int | None):
        """Remembers the open file that is locked; None where the system has no such locks."""
        self._workdir, self._descriptor = workdir, descriptor

    def check(self) -> None:
        """Checks that the folder is still the one that was locked, before anything is written into it.

        Raises:
          RunError: it was deleted, and perhaps another run has made it anew.
        """
        if self._descriptor is None:
            return
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            there = os.stat(self._workdir / ".lock", follow_symlinks=False)
            if os.path.samestat(there, os.fstat(self._descriptor)):
                return
        raise RunError(
            f"{self._workdir} was deleted or replaced while its run was going on: the run ends here, and "
            "writes nothing into what is there now"
        )


@contextlib.contextmanager
def locked(workdir: pathlib.Path) -> Iterator[Held]:
    """Locks the folder for this process. The system releases the lock when the process ends."""
    check_spelt(workdir)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        for name in FOLDERS:
            check_no_link(workdir / name)
        check_no_link(workdir / ".lock")
        file = os.fdopen(open_regular(workdir / ".lock", os.O_RDWR | os.O_CREAT | os.O_APPEND), "a+")
    except OSError as error:
        raise RunError(
            f"workdir must be a folder that can be written to, got {workdir}: {error.strerror or error}"
        ) from error
    with file:
        try:
            import fcntl
        except ImportError:  # Windows has no such lock
            yield Held(workdir, None)
            return
        try:
            _lock_patiently(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise RunError(
                f"{workdir} is in use by another run ({holder}): wait for it or choose another workdir"
            ) from error
        with naming(workdir / ".lock"):  # the disk may be full
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"process {os.getpid()}".encode())
        yield Held(workdir, file.fileno())


def _lock_patiently(lock: Callable[[], None]) -> None:
    """Tries for a second: whoever looks whether a folder is locked locks it for a moment, see `is_locked`."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return lock()
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def is_locked(workdir: pathlib.Path) -> bool:
    """Returns whether a running process has locked the folder. Nothing is created or written."""
    try:
        import fcntl

        with os.fdopen(open_regular(workdir / ".lock", os.O_RDONLY)) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False
