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
from saddle_jax.runs.metrics import newest, sampled
from saddle_jax.runs.run_folder import folders_below, is_locked, read_about, read_settings
from saddle_jax.runs.schema import measures, read_result
from saddle_jax.runs.table import LETTERS

# All that is read of a run's folder; where it holds several runs, some files have a number.
FILES = ("config.json", "metrics.jsonl", "result.json", "sharpness.json", "landscape.npz", "paper.json")
_NUMBERED = re.compile(r"(sharpness-\d+\.json|landscape-\d+\.npz)")
_POINTS = 24  # of a small line
_PATIENCE = 1.0  # seconds that one question waits for another

# By file: when it changed, its size and its number; None where there is none. And whether somebody trains.
Signature = tuple[Any, ...]


class Entry(NamedTuple):
    """What the list says of one run, or of several in one folder."""

    key: str  # by which the page asks for it: it says nothing of the path
    name: str  # its path in the folder
    workdir: pathlib.Path
    state: str  # running, finished, diverged, interrupted, unreadable
    why: str = ""  # it cannot be read
    step: int = 0
    steps: int = 0  # it takes; 0 where that is not recorded
    score: float | None = None
    metric: str = ""  # what the score is of
    result: str = ""  # the score as text
    method: str = ""
    compressor: str = ""
    seed: str = ""
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
        *files, running = signature
        changed = max((mark[0] for mark in files if mark), default=0) / 1e9
        try:
            self.check(workdir)
            with self.reading:
                return _summary(Entry(key, label, workdir, "", changed=changed, signature=signature), running)
        except RunError as error:
            why = printable(str(error)).replace(f"{self.folder}{os.sep}", "")
            return Entry(key, label, workdir, "unreadable", why, changed=changed, signature=signature)


def _summary(entry: Entry, running: bool) -> Entry:
    workdir = entry.workdir
    settings, about = read_settings(workdir), read_about(workdir)
    headline, steps = measures(about, entry.name)[0], about.get("steps")
    del about  # each of these may be large
    result = read_result(workdir)
    step = next((record["step"] for record in newest(workdir)), (result or {}).get("steps", 0))
    ended = (result or {}).get(headline.key)
    logged = (record.get(headline.key) for record in newest(workdir, headline.key))
    score = ended if ended is not None else next((value for value in logged if value is not None), None)
    losses = [record.get("train_loss") for record in sampled(workdir, _POINTS)]
    return entry._replace(
        state="running" if running else result["status"] if result else "interrupted",
        step=step,
        steps=steps if isinstance(steps, int) else 0,
        score=score,
        metric=headline.title,
        result="" if score is None else headline.text(score),
        method=settings["method"][:LETTERS],
        compressor=settings["compressor"][:LETTERS],
        seed=(settings["seeds"] or str(settings["seed"]))[:LETTERS],
        losses=tuple(loss for loss in losses if loss is not None),
    )


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
