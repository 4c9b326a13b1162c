"""Cases (a) to (d): whole steps, ours against PyTorch's best, beside a matrix product."""

import dataclasses
import functools
from typing import Any

from benchmarks import machine
from benchmarks.jobs import Job, Options, pytorch
from benchmarks.ours import OurStep
from benchmarks.rows import Row, compared
from benchmarks.timing import interleaved
from benchmarks.work import Work
from saddle_jax.base.errors import short_line

# PyTorch's variants are tried with no more agents than this, and the fastest is measured with all.
_TRIAL_AGENTS = 16
_GEMM_SIZE = 2048

_SMALL_IMAGE = (8, 8, 1)  # the embedded digits


def works(case: str, quick: bool) -> list[Work]:
    """Lists the steps that a case measures. Quick ones compile in a second or two."""
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
    """Lists a job for each step that the case measures."""
    return [
        Job(case, str(work), functools.partial(_measure, case, work, options))
        for work in options.applied(works(case, options.quick))
    ]


def _measure(case: str, work: Work, options: Options) -> Row:
    product, operations = machine.gemm(256 if options.quick else _GEMM_SIZE)
    runs: dict[str, Any] = {"ours": OurStep(work), "gemm": product}
    opponent = pytorch("steps")
    figures: dict[str, Any] = {}
    if opponent is not None:
        variant, figures = best_variant(opponent, work)
        runs["PyTorch"] = opponent.TheirStep(work, variant)
    timing = interleaved(runs, options.repeats)
    seconds, gemm_seconds = timing.seconds("ours"), timing.seconds("gemm")
    rate, peak = work.flops() / seconds.median, operations / gemm_seconds.median
    figures = {"GFLOP/s": rate / 1e9, "of GEMM": rate / peak, "GEMM GFLOP/s": peak / 1e9, **figures}
    if opponent is None:
        return Row(case, str(work), seconds, figures=figures)
    return compared(case, str(work), timing, "ours", "PyTorch", f"PyTorch: {variant}", figures)


def best_variant(opponent: Any, work: Work) -> tuple[Any, dict[str, Any]]:
    """Finds PyTorch's fastest way to do this work; returns it with figures: the seconds of all."""
    trial = dataclasses.replace(work, agents=min(work.agents, _TRIAL_AGENTS))
    variants = {str(variant): variant for variant in opponent.variants(work.model)}
    steps = {name: opponent.TheirStep(trial, variant) for name, variant in variants.items()}
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
