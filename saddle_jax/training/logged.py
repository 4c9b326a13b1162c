"""Reading metrics.jsonl: all of it, its newest lines, or few enough of them to be drawn.

A line is an object with `step` and `epoch`; its other values are numbers or null. Lists are allowed where
names end in _by_layer, _each or _by_replica. A long run has millions of lines, so nothing but `read_metrics`
holds all of them in memory. What a crash may leave, half a line or none of ours, is passed over. A line of
ours with other values than these is damage, and told.
"""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from saddle_jax.base.errors import one_line
from saddle_jax.base.reading import damaged, open_to_read, parse, reading

FILE = "metrics.jsonl"
_LONGEST = 2**26  # bytes of a line
_BLOCK = 2**16  # bytes that are read at once from the end
_KINDS = 16  # kinds of lines that are thinned by themselves; files of ours have three

Record = dict[str, Any]


def read_metrics(workdir: pathlib.Path) -> list[Record]:
    """Reads all complete lines of metrics.jsonl as a list of records; there may be no file.

    Raises:
      DamagedError: the file cannot be read, or a line is not what a run writes.
    """
    return list(_records(workdir / FILE))


def newest(workdir: pathlib.Path, having: str = "") -> Iterator[Record]:
    """Yields the complete lines from the last one to the first, without reading more of them than asked for.

    Args:
      workdir: the run's folder.
      having: a name; lines in which it does not appear are skipped unread.

    Raises:
      DamagedError: as above, once the iterator comes to such a line.
    """
    path = workdir / FILE
    try:
        file = open_to_read(path)
    except FileNotFoundError:
        return
    with file, reading(path):
        sign = json.dumps(having).encode() if having else b""
        for line in _backwards(file):
            if sign in line and (record := _record(line, path, "near its end")):
                yield record


def last_evaluation(workdir: pathlib.Path) -> Record:
    """Returns the numbers of the newest evaluation and `evaluated_at_step`, or nothing if there was none."""
    for record in newest(workdir, "test_loss"):
        if record.get("test_loss") is not None:
            numbers = {name: value for name, value in record.items() if name not in ("step", "epoch")}
            return {**numbers, "evaluated_at_step": record["step"]}
    return {}


@dataclasses.dataclass(frozen=True)
class Thinned:
    """Some lines of a file: of each kind of line the first, the last and every `stride`-th or fewer.

    Attributes:
      records: the lines that were kept, in their order.
      lines: how many complete lines the file has.
    """

    records: list[Record]
    lines: int

    @property
    def is_whole(self) -> bool:
        """Whether no line was left out, as it is with all but long files."""
        return len(self.records) == self.lines


def read_thinned(workdir: pathlib.Path, most: int) -> Thinned:
    """Reads at most about twice `most` lines of each kind, evenly spread, in memory that does not grow.

    Lines of the same names are of a kind: logged steps, evaluations and measured curvatures are thinned by
    themselves, so that a few evaluations are not lost among many steps.

    Raises:
      DamagedError: as `read_metrics` does.
    """
    kinds: dict[frozenset[str], _Kind] = {}
    count = 0
    for number, record in enumerate(_records(workdir / FILE)):
        count += 1
        names = frozenset(record)
        if names not in kinds and len(kinds) >= _KINDS:
            names = frozenset()  # no file of ours: all other kinds together
        kinds.setdefault(names, _Kind(max(1, most))).take(number, record)
    kept = sorted((entry for kind in kinds.values() for entry in kind.kept()), key=lambda entry: entry[0])
    return Thinned([record for _, record in kept], count)


class _Kind:
    """Lines of one kind, of which every `stride`-th is kept; where they become too many, every other goes."""

    def __init__(self, most: int) -> None:
        self._most, self._stride, self._seen = most, 1, 0
        self._entries: list[tuple[int, Record]] = []
        self._last: tuple[int, Record] | None = None

    def take(self, number: int, record: Record) -> None:
        """Takes in the next line, with its number in the file."""
        self._last = (number, record)
        if self._seen % self._stride == 0:
            self._entries.append(self._last)
        self._seen += 1
        if len(self._entries) > 2 * self._most:
            self._entries, self._stride = self._entries[::2], 2 * self._stride

    def kept(self) -> list[tuple[int, Record]]:
        """Returns the lines that are kept, the last one among them, with their numbers."""
        tail = [] if self._last is None or self._entries[-1] == self._last else [self._last]
        return [*self._entries, *tail]


def _records(path: pathlib.Path) -> Iterator[Record]:
    try:
        file = open_to_read(path)
    except FileNotFoundError:
        return
    with file, reading(path):
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
            _check_short(line)
            if record := _record(line, path, f"line {number:,}"):
                yield record


def _backwards(file: BinaryIO) -> Iterator[bytes]:
    """Yields the lines of a file from the last to the first."""
    position, rest = file.seek(0, os.SEEK_END), b""
    while position or rest:
        while position and b"\n" not in rest[:-1]:
            _check_short(rest)
            size = min(max(_BLOCK, len(rest)), position)
            position = file.seek(position - size)
            rest = file.read(size) + rest
        *earlier, line = rest[:-1].rpartition(b"\n")
        _check_short(line)
        yield line + rest[-1:]
        rest = b"".join(earlier)


def _check_short(line: bytes) -> None:
    if len(line) >= _LONGEST:
        raise ValueError(f"a line has more than {_LONGEST:,} bytes")


def _record(line: bytes, path: pathlib.Path, where: str) -> Record | None:
    """Returns the object of a line, None of what is none; numbers that are not finite become None."""
    try:
        found = parse(line)
        if not isinstance(found, dict) or not {"step", "epoch"} <= set(found):
            return None
        record = {name: _checked(name, value, _depth(name)) for name, value in found.items()}
        if not isinstance(record["step"], int) or record["step"] < 0:
            raise ValueError(f"'step' must be a whole number >= 0, got {_shown(found['step'])}")
        if record["epoch"] is None:
            raise ValueError(f"'epoch' must be a number, got {_shown(found['epoch'])}")
        return record
    except json.JSONDecodeError:
        return None
    except ValueError as error:
        raise damaged(path, f"{where}: {one_line(error)}") from error


def _depth(name: str) -> int:
    """Returns how many lists may be around a number: one per replica, one of layers or agents."""
    alone = name.removesuffix("_by_replica")
    return (alone != name) + alone.endswith(("_by_layer", "_each"))


def _checked(name: str, value: Any, depth: int) -> Any:
    if value is None:
        return None
    if isinstance(value, list) and depth:
        return [_checked(name, one, depth - 1) for one in value]
    is_bare = name.endswith("_by_replica") and depth > 0  # a number where each replica must have one
    if is_bare or isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name[:40]!r} must be {'a list' if is_bare else 'a number'}, got {_shown(value)}")
    return value if math.isfinite(value) else None


def _shown(value: Any) -> str:
    """Returns a value as a message shows it, which may be long, or lists in lists."""
    return repr(str(value)[:40]) if not isinstance(value, list | dict) else f"a {type(value).__name__}"
