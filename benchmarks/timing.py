"""How benchmarks measure: interleaved, repeated; medians with their spread."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax


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
        """Compares two functions round by round: what slows a whole round down cancels out."""
        pairs = zip(self.rounds[above], self.rounds[below], strict=True)
        return spread([a / b for a, b in pairs])


def interleaved(runs: Mapping[str, Callable[[], Any]], repeats: int) -> Timing:
    """Calls the functions in turn, so that a busy minute hits all alike; another one leads each round."""
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
