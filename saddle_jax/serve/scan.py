"""The runs below a folder and their progress; files that have not changed are not read again.

A folder may come from another person: links that lead out of it are not followed, and a run that cannot be
read is listed with the reason, without affecting the others.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import stat
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from saddle_jax.base.errors import DamagedError, RunError, printable
from saddle_jax.runs.metrics import sampled
from saddle_jax.runs.run_folder import folders_below, is_locked
from saddle_jax.runs.table import Listed, listed

# All files that are read in a run's folder; in a folder of several runs some have a number.
FILES = ("config.json", "metrics.jsonl", "result.json", "sharpness.json", "landscape.npz", "paper.json")
_NUMBERED = re.compile(r"(sharpness-\d+\.json|landscape-\d+\.npz)")
_POINTS = 24  # of a sparkline
_PATIENCE = 1.0  # seconds that a request waits for another one

# For each file the time of change, size and inode, or None; and whether the run is being trained.
Signature = tuple[Any, ...]


class Entry(NamedTuple):
    """One folder in the list."""

    key: str  # identifies it in URLs, without revealing the path
    workdir: pathlib.Path
    row: Listed
    steps: int = 0  # total number; 0 if that is not recorded
    losses: tuple[float, ...] = ()
    changed: float = 0.0  # when its files changed last, in seconds since 1970
    signature: Signature = ()  # of the files when they were read


class Runs:
    """The runs below a folder, scanned again at every request."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder.resolve()
        self._known: dict[pathlib.Path, Entry] = {}
        self._lock = threading.Lock()
        self.reading = threading.RLock()  # one folder is read at a time: each may need a lot of memory

    def entries(self) -> list[Entry]:
        """Lists the runs sorted by path, reading only those that changed.

        While another request is still scanning, this returns the runs that it has read so far.
        """
        if not self._lock.acquire(timeout=_PATIENCE):
            return sorted(self._known.values(), key=lambda entry: entry.workdir)
        try:
            there = folders_below(self.folder)
            for workdir in self._known.keys() - set(there):
                del self._known[workdir]
            for workdir in there:
                now = self.signature(workdir)
                before = self._known.get(workdir)
                if before is None or before.signature != now:
                    self._known[workdir] = self._entry(workdir, now)
            return [self._known[workdir] for workdir in there]
        finally:
            self._lock.release()

    def signature(self, workdir: pathlib.Path) -> Signature:
        """Returns a value that changes when a run's files change."""
        return (*(_mark(workdir / name) for name in _files_of(workdir)), is_locked(workdir))

    def check(self, workdir: pathlib.Path) -> None:
        """Checks that all files of a run lie in the served folder.

        Raises:
          DamagedError: a file is a link that leads out of it.
        """
        for name in _files_of(workdir):
            path = workdir / name
            if path.is_symlink() and not path.resolve().is_relative_to(self.folder):
                raise DamagedError(f"{name} is a link that leads out of the folder: it is not read")

    def size(self, workdir: pathlib.Path) -> int:
        """Returns the size of a run's JSON files in bytes, without metrics.jsonl."""
        marks = [_mark(workdir / name) for name in _files_of(workdir) if name.endswith(".json")]
        return sum(mark[1] for mark in marks if mark)

    def _entry(self, workdir: pathlib.Path, signature: Signature) -> Entry:
        name = str(workdir.relative_to(self.folder))
        label = printable(workdir.name if name == "." else name)
        key = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        changed = max((mark[0] for mark in signature[:-1] if mark), default=0) / 1e9
        losses: list[Any] = []
        try:
            self.check(workdir)
            with self.reading:
                row, steps = listed(workdir, label)
                losses = [record.get("train_loss") for record in sampled(workdir, _POINTS)]
        except RunError as error:
            why = printable(str(error)).replace(f"{self.folder}{os.sep}", "")
            row, steps = Listed(label, "unreadable", reason=why), 0
        drawn = tuple(loss for loss in losses if loss is not None)
        return Entry(key, workdir, row, steps, drawn, changed, signature)


def _files_of(workdir: pathlib.Path) -> list[str]:
    """Lists the names of the files to read in a run's folder, whether they exist or not."""
    numbered: list[str] = []
    with contextlib.suppress(OSError), os.scandir(workdir) as found:
        numbered = sorted(entry.name for entry in found if _NUMBERED.fullmatch(entry.name))
    return [*FILES, *numbered]


def _mark(path: pathlib.Path) -> tuple[int, int, int] | None:
    """Returns a file's time of change, size and inode; None if there is no such file."""
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def version_of(entries: Sequence[Entry]) -> str:
    """Returns a text that changes when one of these runs changes, appears or disappears."""
    listed = [(entry.key, entry.signature) for entry in entries]
    return hashlib.sha256(repr(listed).encode()).hexdigest()[:24]
