"""How benchmarks measure: interleaved, repeated, medians."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


def interleaved(runs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each function, called in turn so that a busy minute hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        jax.block_until_ready(run())  # compiles, warms up
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
