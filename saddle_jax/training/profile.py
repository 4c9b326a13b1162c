"""Measures where the time of a session goes, and writes a JAX trace of some of its steps."""

import contextlib
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import jax

# The calls of the step that are traced: after compilation, and few enough to look at.
_TRACE_FROM, _TRACE_TO = 5, 25


class Profile:
    """Clocks for the parts of the loop; the time that none of them covers is the loop itself."""

    def __init__(self, workdir: pathlib.Path):
        self._folder = workdir / "trace"
        self._spent = {
            "start": 0.0,
            "compilation": 0.0,
            "steps": 0.0,
            "evaluation": 0.0,
            "saving": 0.0,
            "trace": 0.0,
        }
        self._seen: set[Any] = set()
        self._calls, self._tracing = 0, False
        self._started = time.perf_counter()

    @contextlib.contextmanager
    def clock(self, what: str, key: Any) -> Iterator[None]:
        """Adds the time of a block to its part. The first step with each `key` counts as compilation.

        The time before the very first step is the start: it makes the first models and compiles that.
        """
        if what == "steps":
            if not self._calls:
                self._spent["start"] = time.perf_counter() - self._started
            if key not in self._seen:
                self._seen.add(key)
                what = "compilation"
            started = time.perf_counter()
            self._trace()
            self._spent["trace"] += time.perf_counter() - started
        started = time.perf_counter()
        yield
        self._spent[what] += time.perf_counter() - started

    def _trace(self) -> None:
        self._calls += 1
        if self._calls == _TRACE_FROM:
            jax.profiler.start_trace(str(self._folder))
            self._tracing = True
        elif self._calls == _TRACE_TO:
            self.stop()

    def stop(self) -> None:
        """Ends the trace, if one is being written."""
        if self._tracing:
            self._tracing = False
            jax.profiler.stop_trace()

    def shares(self) -> dict[str, float]:
        """Returns the seconds of this session by part; "loop" is the rest."""
        total = time.perf_counter() - self._started
        return {**self._spent, "loop": total - sum(self._spent.values())}
