"""Downsampling a long metrics.jsonl for plots: it keeps all peaks, and can follow a growing file.

The lines of a kind are divided into buckets of equal length, a power of two. Each bucket keeps its first
line, and for each number the lines with its minimum and maximum. So a plot of these lines looks like one of
all lines. Runs with the same logging interval share the first lines of their buckets.
"""

import dataclasses
import json
import os
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from saddle_jax.base.errors import RunError
from saddle_jax.base.files import atomic_write
from saddle_jax.base.reading import open_to_read, read_object, reading
from saddle_jax.runs.metrics import FILE, LONGEST, Record, check_short, read_metrics, record_of
from saddle_jax.runs.run_folder import all_ended, check_same, read_about, read_config

MOST_BYTES = 2**23  # of the lines kept for a page or a plot; they take about ten times as much memory
_KINDS = 16  # kinds of lines that are downsampled separately; our own files have three
_PLACES = ("step", "epoch")


@dataclasses.dataclass(frozen=True)
class Downsampled:
    """A selection of a file's lines: of each kind the first, the last, and those with extreme values.

    Attributes:
      records: the selected lines in order.
      lines: the number of complete lines in the file.
    """

    records: list[Record]
    lines: int

    @property
    def is_whole(self) -> bool:
        """Whether no line was left out, as for all but long files."""
        return len(self.records) == self.lines


def read_downsampled(workdir: pathlib.Path, most: int, most_bytes: int = MOST_BYTES) -> Downsampled:
    """Reads at most twice `most` lines of each kind, fewer if they are long, in bounded memory.

    Lines with the same names are of one kind. Logged steps, evaluations and measured curvatures are
    downsampled separately, so that a few evaluations are not lost among many steps.

    Raises:
      DamagedError: as `logged.read_metrics` does.
    """
    return Following(workdir, most, most_bytes).update()


class Following:
    """A reader of a metrics.jsonl that may grow: each update reads the new lines only."""

    def __init__(self, workdir: pathlib.Path, most: int, most_bytes: int = MOST_BYTES) -> None:
        self._path, self._asked, self._most_bytes = workdir / FILE, max(1, most), most_bytes
        self._begin(None)

    def _begin(self, identity: tuple[int, int] | None) -> None:
        self._identity, self._most = identity, self._asked
        self._offset = self._lines = self._count = self._size = 0
        self._kinds: dict[frozenset[str], _Kind] = {}

    @property
    def size(self) -> int:
        """The size of the selected lines in bytes."""
        return sum(kind.size for kind in list(self._kinds.values()))

    def update(self) -> Downsampled:
        """Reads the lines added since the last update; all lines if the file was replaced.

        Raises:
          DamagedError: as `logged.read_metrics` does.
        """
        try:
            file = open_to_read(self._path)
        except FileNotFoundError:
            self._begin(None)
            return Downsampled([], 0)
        with file, reading(self._path):
            about = os.fstat(file.fileno())
            identity = about.st_dev, about.st_ino
            if identity != self._identity or about.st_size < self._offset:
                self._begin(identity)
            try:
                self._read(file)
            except BaseException:
                self._begin(None)  # the next update raises the error again
                raise
        kept = sorted(
            (each for kind in self._kinds.values() for each in kind.kept()), key=lambda each: each[0]
        )
        return Downsampled([record for _, record in kept], self._count)

    def _read(self, file: BinaryIO) -> None:
        file.seek(self._offset)
        while line := file.readline(LONGEST):
            check_short(line)
            record = record_of(line, self._path, f"line {self._lines + 1:,}")
            if record:
                self._take(record, len(line))
            elif not line.endswith(b"\n"):
                return  # it is being written
            self._offset += len(line)
            self._lines += 1

    def _take(self, record: Record, size: int) -> None:
        if size > self._most_bytes // 4:  # too few lines would be left
            raise ValueError(
                f"a line has {size:,} bytes; where so much is shown it may have a quarter of "
                f"{self._most_bytes:,}"
            )
        if self._size + size > self._most_bytes:
            self._size = self.size  # some kinds may have been downsampled
        while self._size + size > self._most_bytes:
            if self._most == 1:
                raise ValueError(f"the lines that are kept of it have more than {self._most_bytes:,} bytes")
            self._most //= 2
            for kind in self._kinds.values():
                kind.downsample_to(self._most)
            self._size = self.size
        self._size += size
        names = frozenset(record)
        if names not in self._kinds and len(self._kinds) >= _KINDS:
            names = frozenset()  # not one of our files: the other kinds are merged
        if names not in self._kinds:
            self._kinds[names] = _Kind(self._most)
        self._kinds[names].take(self._count, record, size)
        self._count += 1


class _Kind:
    """Lines of one kind, downsampled to at most `most` whenever they exceed twice as many."""

    def __init__(self, most: int) -> None:
        self._most, self._length, self._seen = most, 1, 0
        self._entries: list[tuple[int, int, Record, int]] = []  # index in kind, in file, line, bytes
        self.size = 0  # in bytes

    def take(self, number: int, record: Record, size: int) -> None:
        """Adds the next line, with its index in the file and its length."""
        if len(self._entries) >= 2 * self._most:
            self._thin()
        self._entries.append((self._seen, number, record, size))
        self.size += size
        self._seen += 1

    def kept(self) -> list[tuple[int, Record]]:
        """Returns the selected lines, including the last one, with their indices."""
        return [(number, record) for _, number, record, _ in self._entries]

    def downsample_to(self, most: int) -> None:
        """Downsamples to at most `most` lines, now and from now on."""
        self._most = most
        if len(self._entries) > most:
            self._thin()

    def _thin(self) -> None:
        values = _numbers([record for _, _, record, _ in self._entries])  # [lines, names]
        places = np.array([place for place, _, _, _ in self._entries])
        stretches = max(1, self._most // (2 * values.shape[1] + 1))
        while -(-self._seen // self._length) > stretches:
            self._length *= 2
        kept = extremes(places // self._length, values)
        self._entries = [self._entries[number] for number in kept]
        self.size = sum(size for *_, size in self._entries)


def extremes(stretch: np.ndarray, values: np.ndarray) -> list[int]:
    """Returns the lines to keep: of each bucket the first, and the minimum and maximum of each number.

    Args:
      stretch: the bucket of each line, int [N], non-decreasing.
      values: the numbers of each line [N, F]; NaN if missing.
    """
    starts = np.flatnonzero(np.diff(stretch, prepend=-1))
    kept = {*starts.tolist()}
    group = np.cumsum(np.isin(np.arange(len(stretch)), starts)) - 1  # buckets renumbered without gaps
    for sign in (1.0, -1.0):
        signed = np.where(np.isnan(values), np.inf, sign * values)
        lowest = np.minimum.reduceat(signed, starts, axis=0)
        hits = (signed == lowest[group]) & np.isfinite(signed)
        for column in hits.T:
            lines = np.flatnonzero(column)
            kept.update(lines[np.unique(group[lines], return_index=True)[1]].tolist())
    return sorted(kept)


def _numbers(records: list[Record]) -> np.ndarray:
    """Returns the numbers of the lines [N, F], one column for each metric and trial."""
    names = [name for name in records[0] if name not in _PLACES]
    columns: list[list[Any]] = []
    for name in names:
        values = [record.get(name) for record in records]
        if not any(isinstance(value, list) for value in values):
            columns.append(values)
        elif name.endswith("_by_trial"):
            count = min(len(value) if isinstance(value, list) else 0 for value in values)
            lists: list[list[Any]] = [list(value or ()) for value in values]
            each = [[value[number] for value in lists] for number in range(count)]
            columns += [one for one in each if not any(isinstance(value, list) for value in one)]
    table = np.array(columns, dtype=np.float64) if columns else np.zeros((0, len(records)))
    return table.T


# Small copies of runs that can be published with a paper: settings, results, and averaged metrics.
#
# A run's folder has megabytes of checkpoints and a line for every few steps. Tables and most pictures only
# need config.json, result.json, paper.json and sharpness.json, and metrics.jsonl with several lines averaged
# into one.


_COPIED = ("result.json", "paper.json", "sharpness.json")
_DIGITS = 6  # significant digits, as many as pictures and tables show
# Progress counters: the last of some lines counts, not their mean.
_LAST_OF = ("step", "epoch", "learning_rate", "simulated_seconds")
_COUNTS = "bytes_sent_per_agent"
_LISTS = "_by_layer"  # lists with an entry per layer are left out


def downsample(workdir: pathlib.Path, folder: pathlib.Path, every: int) -> pathlib.Path:
    """Writes a small copy of a finished run into a folder of its name below `folder`; returns its path.

    Each `every` logged lines are averaged; evaluations are copied one by one. An existing copy is replaced.
    config.json records `every`, and the data's source without its location on disk.

    Raises:
      RunError: the run has not ended, the copy would replace it, or there is a copy of another run.
    """
    all_ended([workdir])
    copy = folder / workdir.resolve().name
    if copy.resolve() == workdir.resolve():
        raise RunError(f"output must be another folder than that of the run, got {folder}")
    if (copy / "config.json").exists():
        check_same(copy, read_config(workdir))
    copy.mkdir(parents=True, exist_ok=True)
    about = read_about(workdir)
    settings, data = {**about["config"], "data_dir": ""}, about["dataset"]
    changes = {"config": settings, "dataset": {**data, "source": _placeless(data["source"])}}
    _write(copy / "config.json", [{**about, **changes, "downsampled": every}])
    for name in _COPIED:
        content = read_object(workdir / name)
        if content is None:
            (copy / name).unlink(missing_ok=True)  # left over from the previous copy
        else:
            _write(copy / name, [content])
    _write(copy / FILE, means(read_metrics(workdir), every))
    return copy


def _placeless(source: str) -> str:
    """Returns a dataset's source without its location: the last two names of DIR/cifar10/3.0.2."""
    path = pathlib.PurePath(source)
    return "/".join(path.parts[-2:]) if path.is_absolute() else source


def means(records: Sequence[Record], every: int) -> list[Record]:
    """Averages each `every` lines of training into one; evaluations keep their places between them."""
    training = [record for record in records if "train_loss" in record]
    found = [_mean(training[start : start + every]) for start in range(0, len(training), every)]
    found += [_short(record) for record in records if "train_loss" not in record]
    return sorted(found, key=lambda record: (record["step"], "train_loss" not in record))


def _mean(records: Sequence[Record]) -> Record:
    last = records[-1]
    names = [name for name in last if _LISTS not in name]
    return {
        name: _short_value(last[name] if _is_place(name) else _averaged([r.get(name) for r in records]))
        for name in names
    }


def _is_place(name: str) -> bool:
    return name.removesuffix("_by_trial") in _LAST_OF or _COUNTS in name


def _averaged(values: Sequence[Any]) -> Any:
    """Returns the mean, elementwise for lists; None if a value is missing, which a mean must not hide."""
    if any(value is None for value in values):
        return None
    if isinstance(values[0], list):
        return [_averaged(numbers) for numbers in zip(*values, strict=True)]
    return statistics.fmean(values)


def _short(record: Record) -> Record:
    return {name: _short_value(value) for name, value in record.items() if _LISTS not in name}


def _short_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_short_value(one) for one in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _write(path: pathlib.Path, objects: Sequence[Any]) -> None:
    with atomic_write(path) as partial:
        partial.write_text("".join(json.dumps(one, allow_nan=False) + "\n" for one in objects))
