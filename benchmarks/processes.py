"""Steps against what programs for decentralized learning mostly are: a PyTorch process for each agent."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax

from benchmarks.jobs import Job, Options, pytorch
from benchmarks.ours import OurStep
from benchmarks.rows import Row, compared
from benchmarks.timing import Timing, interleaved, spread
from benchmarks.work import Work

# Of each call: a process waits for its neighbours alone, so others may be in the next step already.
_STEPS = 3
_NORMS = ("textbook", "few passes")  # EvoNorm as published programs have it, and PyTorch's fastest


def process_jobs(case: str, options: Options) -> list[Job]:
    """Lists a job for each method and for each way to write EvoNorm in PyTorch."""
    methods = ("q_saddle", "n_saddle")
    works = [Work(each, "cnn", 3, 4, (8, 8, 1)) if options.quick else Work(each) for each in methods]
    return [
        Job(case, f"{work}, {norm} EvoNorm", functools.partial(_measure, case, work, norm, options))
        for work in options.applied(works)
        for norm in _NORMS
    ]


class _Noted:
    """A function that returns seconds of processor time, and what each call of it returned."""

    def __init__(self, run: Callable[[], float]):
        self._run = run
        self.returned: list[float] = []

    def __call__(self) -> None:
        self.returned.append(self._run())


def _measure(case: str, work: Work, norm: str, options: Options) -> Row:
    what, ours = f"{work}, {norm} EvoNorm", OurStep(work)
    runs = {"ours": _Noted(lambda: _steps(ours))}
    opponent = pytorch("processes")
    if opponent is None:
        return Row(case, what, _of_one_step(interleaved(runs, options.repeats)).seconds("ours"))
    with opponent.Processes(work) as theirs:
        trial = {way: functools.partial(theirs.step, way) for way in opponent.ways(work.model, norm)}
        timing = interleaved({str(way): run for way, run in trial.items()}, repeats=2)
        tried = {way: timing.seconds(str(way)).low for way in trial}
        best = min(tried, key=tried.__getitem__)
        runs["PyTorch"] = _Noted(lambda: theirs.step(best, _STEPS))
        timing = _of_one_step(interleaved(runs, options.repeats))
    cpu = {name: spread(run.returned[1:]).median / _STEPS for name, run in runs.items()}  # not the warm-up
    figures: dict[str, Any] = {
        "CPU s": cpu["ours"],
        "PyTorch CPU s": cpu["PyTorch"],
        "CPU ratio": cpu["PyTorch"] / cpu["ours"],
        "tried": {str(way): seconds for way, seconds in tried.items()},
    }
    against = f"{work.agents} PyTorch processes: {best}"
    return compared(case, what, timing, "ours", "PyTorch", against, figures)


def _steps(ours: OurStep) -> float:
    """Takes several of our steps and returns the processor's time."""
    started = time.process_time()
    for _ in range(_STEPS):
        jax.block_until_ready(ours())
    return time.process_time() - started


def _of_one_step(timing: Timing) -> Timing:
    return Timing({name: [t / _STEPS for t in rounds] for name, rounds in timing.rounds.items()})
