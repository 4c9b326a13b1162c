"""Reading metrics.jsonl, all of it or its newest lines, and writing TensorBoard event files.

A line is an object with `step` and `epoch`; its other values are numbers or null, or lists if their names end
in _by_layer, _each or _by_trial. A long run has millions of lines, so only `read_metrics` holds all of them
in memory; `downsample` reads few. Lines that are not complete objects, which a crash may leave, are skipped.
Complete lines with other values are reported as damage.
"""

import contextlib
import functools
import io
import json
import os
import pathlib
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from saddle_jax.base.errors import one_line
from saddle_jax.base.reading import TOO_LARGE, damaged, open_to_read, parse, reading

FILE = "metrics.jsonl"
LONGEST = 2**22  # bytes of a line; one with a number for each of 10,000 agents has 200,000
_BLOCK = 2**16  # bytes per read from the end

Record = dict[str, Any]


def read_metrics(workdir: pathlib.Path) -> list[Record]:
    """Reads all complete lines of metrics.jsonl; none if there is no file.

    Raises:
      DamagedError: the file cannot be read, or a line is not what a run writes.
    """
    path, records = workdir / FILE, []
    with _opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST), b""), 1):
            check_short(line)
            if record := record_of(line, path, f"line {number:,}"):
                records.append(record)
    return records


def newest(workdir: pathlib.Path, having: str = "") -> Iterator[Record]:
    """Yields the complete lines from last to first, reading only as many as are consumed.

    Args:
      workdir: the run's folder.
      having: a name; lines without it are skipped before parsing.

    Raises:
      DamagedError: as `read_metrics`, when the iterator reaches such a line.
    """
    path, sign = workdir / FILE, json.dumps(having).encode() if having else b""
    with _opened(path) as file:
        for line in _backwards(file):
            if sign in line and (record := record_of(line, path, "near its end")):
                yield record


def last_evaluation(workdir: pathlib.Path) -> Record:
    """Returns the newest evaluation's numbers and `evaluated_at_step`; empty if there was none."""
    for record in newest(workdir, "test_loss"):
        if record.get("test_loss") is not None:
            numbers = {name: value for name, value in record.items() if name not in ("step", "epoch")}
            return {**numbers, "evaluated_at_step": record["step"]}
    return {}


def sampled(workdir: pathlib.Path, count: int) -> Iterator[Record]:
    """Yields about `count` complete lines from evenly spaced places in the file.

    Raises:
      DamagedError: as `read_metrics` does, for the lines that it meets.
    """
    path = workdir / FILE
    with _opened(path) as file:
        size = file.seek(0, os.SEEK_END)
        if size <= _BLOCK:
            file.seek(0)
            lines = file.read().splitlines(keepends=True)
            for n in range(0, len(lines), max(1, len(lines) // count)):
                if record := record_of(lines[n], path, f"line {n + 1:,}"):
                    yield record
            return
        last = -1
        for number in range(count):
            file.seek(number * size // count)
            if number:
                file.readline(LONGEST)  # the rest of a line
            place, line = file.tell(), file.readline(LONGEST)
            if place > last and line.endswith(b"\n") and (record := record_of(line, path, f"byte {place:,}")):
                yield record
            last = max(last, place)


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Opens a file, or an empty one in its place if there is none, and reports errors over its content."""
    try:
        file = open_to_read(path)
    except FileNotFoundError:
        file = io.BytesIO()
    with file, reading(path):
        yield file


def _backwards(file: BinaryIO) -> Iterator[bytes]:
    """Yields the lines of a file from the last to the first."""
    position, rest = file.seek(0, os.SEEK_END), b""
    while position or rest:
        while position and b"\n" not in rest[:-1]:
            check_short(rest)
            size = min(max(_BLOCK, len(rest)), position)
            position = file.seek(position - size)
            rest = file.read(size) + rest
        *earlier, line = rest[:-1].rpartition(b"\n")
        check_short(line)
        yield line + rest[-1:]
        rest = b"".join(earlier)


def check_short(line: bytes) -> None:
    """Checks that a line is not too long."""
    if len(line) >= LONGEST:
        raise ValueError(f"a line has more than {LONGEST:,} bytes")


def record_of(line: bytes, path: pathlib.Path, where: str) -> Record | None:
    """Parses a line; None if it is not a complete object. Infinite, NaN and huge numbers become None.

    Raises:
      DamagedError: an object has values that no run writes; `where` says in which line.
    """
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


@functools.lru_cache(maxsize=256)
def _depth(name: str) -> int:
    """Returns how deeply numbers may be nested in lists: one level for trials, one for layers or agents."""
    alone = name.removesuffix("_by_trial")
    return (alone != name) + alone.endswith(("_by_layer", "_each"))


def _checked(name: str, value: Any, depth: int) -> Any:
    if type(value) is float and not depth:  # the most frequent case
        return value if -TOO_LARGE < value < TOO_LARGE else None
    if value is None:
        return None
    if isinstance(value, list) and depth:
        return [_checked(name, one, depth - 1) for one in value]
    is_bare = name.endswith("_by_trial") and depth > 0  # a single number in place of one per trial
    if is_bare or isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name[:40]!r} must be {'a list' if is_bare else 'a number'}, got {_shown(value)}")
    return value if -TOO_LARGE < value < TOO_LARGE else None


def _shown(value: Any) -> str:
    """Formats a value for an error message, in a bounded length."""
    return repr(str(value)[:40]) if not isinstance(value, list | dict) else f"a {type(value).__name__}"


# ---- TensorBoard event files, written without a thread, so that the writer sees errors like a full disk ----


_EVERY = 30.0  # seconds between flushes


class Events:
    """A writer of one event file, with one event per step."""

    def __init__(self, folder: pathlib.Path, purge_step: int):
        """Creates the file; TensorBoard hides events of earlier files from `purge_step` on."""
        from tensorboardX import RecordWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        # An absolute path cannot be mistaken for a URL such as gs:...
        self._records = RecordWriter(os.path.abspath(folder / name))
        self._flushed = 0.0
        version = "brain.Event:2"
        self._write(Event(wall_time=time.time(), file_version=version))
        self._write(Event(step=purge_step, file_version=version))
        self._write(Event(step=purge_step, session_log=SessionLog(status=SessionLog.START)))

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Appends the numbers of a step by name, as one event."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        if time.monotonic() - self._flushed > _EVERY:
            self.flush()

    def flush(self) -> None:
        """Writes buffered events to disk."""
        self._records.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Closes the file; nothing can be appended afterwards."""
        self._records.close()

    def _write(self, event: object) -> None:
        self._records.write(event.SerializeToString())  # type: ignore[attr-defined]
