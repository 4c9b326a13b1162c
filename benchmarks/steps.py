"""Whole steps: ours against the fastest PyTorch variant in one program, and against one process per agent."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax

from benchmarks import measure
from benchmarks.measure import Row, Timing, compared, interleaved, spread
from benchmarks.work import Job, Options, OurStep, Work, pytorch
from saddle_jax.base.errors import short_line

# PyTorch's variants are tried with at most so many agents, and the fastest is measured with all.
_TRIAL_AGENTS = 16
_GEMM_SIZE = 2048

_SMALL_IMAGE = (8, 8, 1)  # the embedded digits


def works(case: str, quick: bool) -> list[Work]:
    """Lists the workloads of a case; quick ones compile in a second or two."""
    if case == "many":
        kinds = [("mlp", 66)] if quick else [(model, n) for model in ("cnn", "mlp") for n in (256, 1024)]
        return [Work("q_saddle", model, agents, 32, _SMALL_IMAGE) for model, agents in kinds]
    if quick:
        model, agents = ("cnn", 3) if case == "q_saddle" else ("mlp", 5)
        method = "q_saddle" if case == "forty" else case
        return [Work(method, model, agents, 8, _SMALL_IMAGE)]
    if case == "forty":
        return [Work(method, agents=40) for method in ("q_saddle", "n_saddle")]
    return [Work(case)]


def step_jobs(case: str, options: Options) -> list[Job]:
    """Lists a job for each workload of the case."""
    return [
        Job(case, str(work), functools.partial(_measure_step, case, work, options))
        for work in options.applied(works(case, options.quick))
    ]


def _measure_step(case: str, work: Work, options: Options) -> Row:
    product, operations = measure.gemm(256 if options.quick else _GEMM_SIZE)
    runs: dict[str, Any] = {"ours": OurStep(work), "gemm": product}
    opponent = pytorch("steps")
    figures: dict[str, Any] = {}
    if opponent is not None:
        variant, figures = best_variant(opponent, work)
        runs["PyTorch"] = opponent.PyTorchStep(work, variant)
    timing = interleaved(runs, options.repeats)
    seconds, gemm_seconds = timing.seconds("ours"), timing.seconds("gemm")
    rate, peak = work.flops() / seconds.median, operations / gemm_seconds.median
    figures = {"GFLOP/s": rate / 1e9, "of GEMM": rate / peak, "GEMM GFLOP/s": peak / 1e9, **figures}
    if opponent is None:
        return Row(case, str(work), seconds, figures=figures)
    return compared(case, str(work), timing, "ours", "PyTorch", f"PyTorch: {variant}", figures)


def best_variant(opponent: Any, work: Work) -> tuple[Any, dict[str, Any]]:
    """Finds PyTorch's fastest variant for a workload; returns it with the seconds of all variants."""
    trial = dataclasses.replace(work, agents=min(work.agents, _TRIAL_AGENTS))
    variants = {str(variant): variant for variant in opponent.variants(work.model)}
    steps = {name: opponent.PyTorchStep(trial, variant) for name, variant in variants.items()}
    timing = interleaved(steps, repeats=2)
    seconds = {name: timing.seconds(name).low for name in steps}
    fastest = min(seconds, key=seconds.__getitem__)
    compiled = dataclasses.replace(variants[fastest], compiled=True)
    try:
        step = opponent.compiled_step(trial, compiled)
    except opponent.CannotCompileError as error:
        return variants[fastest], {"torch.compile": f"left out ({short_line(error)})", "tried": seconds}
    timing = interleaved({fastest: steps[fastest], str(compiled): step}, repeats=2)
    seconds[str(compiled)] = timing.seconds(str(compiled)).low
    wins = timing.seconds(str(compiled)).low < timing.seconds(fastest).low
    return compiled if wins else variants[fastest], {"tried": seconds}


# ---- one PyTorch process per agent, as in most code for decentralized learning ----

# Steps per call: a process waits only for its neighbours, so others may be in the next step already.
_STEPS = 3
_NORMS = ("textbook", "few passes")  # EvoNorm as in published code, and the fastest version


def process_jobs(case: str, options: Options) -> list[Job]:
    """Lists a job for each method and each implementation of EvoNorm in PyTorch."""
    methods = ("q_saddle", "n_saddle")
    works = [Work(each, "cnn", 3, 4, (8, 8, 1)) if options.quick else Work(each) for each in methods]
    return [
        Job(case, f"{work}, {norm} EvoNorm", functools.partial(_measure_processes, case, work, norm, options))
        for work in options.applied(works)
        for norm in _NORMS
    ]


class _Noted:
    """Wraps a function that returns CPU seconds, and records its results."""

    def __init__(self, run: Callable[[], float]):
        self._run = run
        self.returned: list[float] = []

    def __call__(self) -> None:
        self.returned.append(self._run())


def _measure_processes(case: str, work: Work, norm: str, options: Options) -> Row:
    what, ours = f"{work}, {norm} EvoNorm", OurStep(work)
    runs = {"ours": _Noted(lambda: _our_steps(ours))}
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
    cpu = {name: spread(run.returned[1:]).median / _STEPS for name, run in runs.items()}  # no warm-up
    figures: dict[str, Any] = {
        "CPU s": cpu["ours"],
        "PyTorch CPU s": cpu["PyTorch"],
        "CPU ratio": cpu["PyTorch"] / cpu["ours"],
        "tried": {str(way): seconds for way, seconds in tried.items()},
    }
    against = f"{work.agents} PyTorch processes: {best}"
    return compared(case, what, timing, "ours", "PyTorch", against, figures)


def _our_steps(ours: OurStep) -> float:
    """Takes several of our steps and returns the CPU time."""
    started = time.process_time()
    for _ in range(_STEPS):
        jax.block_until_ready(ours())
    return time.process_time() - started


def _of_one_step(timing: Timing) -> Timing:
    return Timing({name: [t / _STEPS for t in rounds] for name, rounds in timing.rounds.items()})
