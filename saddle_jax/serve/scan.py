"""The runs below a folder and how far each has come; what has not changed on disk is not read again.

A folder may be somebody else's: links that lead out of it are not followed, and a run that cannot be read
says why and spoils no other.
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

# All that is read of a run's folder; where it holds several runs, some files have a number.
FILES = ("config.json", "metrics.jsonl", "result.json", "sharpness.json", "landscape.npz", "paper.json")
_NUMBERED = re.compile(r"(sharpness-\d+\.json|landscape-\d+\.npz)")
_POINTS = 24  # of a small line
_PATIENCE = 1.0  # seconds that one question waits for another

# By file: when it changed, its size and its number; None where there is none. And whether somebody trains.
Signature = tuple[Any, ...]


class Entry(NamedTuple):
    """What the list says of one folder."""

    key: str  # by which the page asks for it: it says nothing of the path
    workdir: pathlib.Path
    row: Listed
    steps: int = 0  # it takes; 0 where that is not recorded
    losses: tuple[float, ...] = ()
    changed: float = 0.0  # when its files changed last, in seconds since 1970
    signature: Signature = ()  # of the files that this was read from


class Runs:
    """The runs below a folder, looked up again whenever somebody asks."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder.resolve()
        self._known: dict[pathlib.Path, Entry] = {}
        self._lock = threading.Lock()
        self.reading = threading.RLock()  # one folder is read at a time: each may need a lot of memory

    def entries(self) -> list[Entry]:
        """Lists the runs, in the order of their paths; only those that changed are read.

        While somebody else's question takes long, as many as that one has read by now.
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
        """Returns what tells whether a run's files are still those that were read."""
        return (*(_mark(workdir / name) for name in _files_of(workdir)), is_locked(workdir))

    def check(self, workdir: pathlib.Path) -> None:
        """Checks that all that is read of a run lies in the folder that is served.

        Raises:
          DamagedError: a file is a link that leads out of it.
        """
        for name in _files_of(workdir):
            path = workdir / name
            if path.is_symlink() and not path.resolve().is_relative_to(self.folder):
                raise DamagedError(f"{name} is a link that leads out of the folder: it is not read")

    def size(self, workdir: pathlib.Path) -> int:
        """Returns how many bytes the JSON of a run has, apart from its lines."""
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
    """Lists the names of the files that are read of a run's folder, whether they are there or not."""
    numbered: list[str] = []
    with contextlib.suppress(OSError), os.scandir(workdir) as found:
        numbered = sorted(entry.name for entry in found if _NUMBERED.fullmatch(entry.name))
    return [*FILES, *numbered]


def _mark(path: pathlib.Path) -> tuple[int, int, int] | None:
    """Returns when a file changed, its size and its number; None where there is no such file."""
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def version_of(entries: Sequence[Entry]) -> str:
    """Returns a text that is another one as soon as one of these runs has changed, come or gone."""
    listed = [(entry.key, entry.signature) for entry in entries]
    return hashlib.sha256(repr(listed).encode()).hexdigest()[:24]
