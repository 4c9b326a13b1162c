"""Measuring: interleaved timings, medians with ranges, rows of results, and the machine."""

import dataclasses
import importlib.metadata
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array
from saddle_jax.version import __version__


class Spread(NamedTuple):
    """The median and the range of repeated measurements."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Returns the median, the smallest and the largest value."""
    return Spread(statistics.median(values), min(values), max(values))


class Timing(NamedTuple):
    """Seconds of each function, one per round."""

    rounds: dict[str, list[float]]

    def seconds(self, name: str) -> Spread:
        """Returns how long a function takes, in seconds."""
        return spread(self.rounds[name])

    def ratio(self, above: str, below: str) -> Spread:
        """Returns the ratio of two functions by round, which cancels slowdowns of whole rounds."""
        pairs = zip(self.rounds[above], self.rounds[below], strict=True)
        return spread([a / b for a, b in pairs])


def interleaved(runs: Mapping[str, Callable[[], Any]], repeats: int) -> Timing:
    """Calls the functions in turn, so that slowdowns affect all alike; the first one of a round rotates."""
    rounds: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        jax.block_until_ready(run())  # compiles, warms up
    names = list(runs)
    for turn in range(repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            start = time.perf_counter()
            jax.block_until_ready(runs[name]())
            rounds[name].append(time.perf_counter() - start)
    return Timing(rounds)


# ---- results: rows, as a table and as JSON ----


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table of results.

    Attributes:
      case: the benchmark's name.
      what: what was measured.
      seconds: our time; None if no time was measured.
      against: the baseline, such as "PyTorch: loop"; empty without one.
      against_seconds: the time of the baseline.
      ratio: against_seconds / seconds, round by round: above 1, ours is faster.
      figures: other measurements, such as {"GFLOP/s": 60.1}; nested dicts are not in the table.
    """

    case: str
    what: str
    seconds: Spread | None = None
    against: str = ""
    against_seconds: Spread | None = None
    ratio: Spread | None = None
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the row as a JSON object."""
        content = dataclasses.asdict(self)
        for name in ("seconds", "against_seconds", "ratio"):
            value = getattr(self, name)
            content[name] = None if value is None else value._asdict()
        return content


def compared(
    case: str, what: str, timing: Timing, ours: str, other: str, name: str, figures: dict[str, Any]
) -> Row:
    """Makes the row of two functions measured together; `name` is the label of the other one."""
    return Row(
        case,
        what,
        timing.seconds(ours),
        name,
        timing.seconds(other),
        timing.ratio(other, ours),
        figures,
    )


def table(rows: Sequence[Row]) -> str:
    """Formats rows as lines of text with aligned columns."""
    cells = [["case", "what", "ours", "against", "", "ratio", ""]]
    cells += [[row.case, row.what, *_cells(row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)


def result(row: Row) -> str:
    """Formats the result of a row in one line."""
    return "  ".join(filter(None, _cells(row)))


def _cells(row: Row) -> list[str]:
    numbers = {name: value for name, value in row.figures.items() if not isinstance(value, dict)}
    figures = ", ".join(f"{name} {_figure(value)}" for name, value in numbers.items())
    return [_time(row.seconds), row.against, _time(row.against_seconds), _ratio(row.ratio), figures]


def _time(seconds: Spread | None) -> str:
    """Formats a time, such as "12.3 ms"."""
    if seconds is None:
        return ""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds.median * scale >= 1:
            return f"{seconds.median * scale:.3g} {unit}"
    return f"{seconds.median * 1e6:.3g} us"


def _ratio(ratio: Spread | None) -> str:
    """Formats a ratio with its range, such as "1.20 (1.15 to 1.31)"."""
    return "" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _figure(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


# ---- the machine and its peak rates ----


_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch")


def description() -> dict[str, object]:
    """Describes hardware, system and versions, for the record."""
    devices = jax.devices()
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "system": platform.platform(),
        "python": platform.python_version(),
        "saddle_jax": __version__,
        **{name: _version(name) for name in _PACKAGES},
    }


def gemm(size: int) -> tuple[Callable[[], Array], float]:
    """Returns a product of two float32 matrices [size, size], and its floating-point operations."""
    random = np.random.default_rng(0)
    left, right = (jnp.asarray(random.standard_normal((size, size), np.float32)) for _ in range(2))
    product = jax.jit(jnp.matmul)
    return lambda: product(left, right), 2.0 * size**3


def copy(x: Array) -> tuple[Callable[[], Array], int]:
    """Returns a plain copy of an array, and the bytes that it moves: each is read and written once."""
    run = jax.jit(jnp.copy)
    return lambda: run(x), 2 * x.nbytes


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """Returns the processor's name if the system reports it, or else its architecture."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
