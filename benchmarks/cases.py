"""The benchmarks by name, with what each measures."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks import measure
from benchmarks.child import compile_jobs, memory_jobs
from benchmarks.growth import growth_jobs
from benchmarks.measure import Row, result
from benchmarks.methods import method_jobs
from benchmarks.parts import compressor_jobs, evaluation_jobs, gossip_jobs
from benchmarks.soak import soak_jobs
from benchmarks.steps import process_jobs, step_jobs
from benchmarks.torch_bridge import bridge_jobs
from benchmarks.work import Job, Options
from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError


class Case(NamedTuple):
    """A benchmark: what it measures, and its jobs."""

    meaning: str
    jobs: Callable[[str, Options], list[Job]]


CASES: dict[str, Case] = {
    "q_saddle": Case("a Q-SADDLe step of 10 agents, ResNet-20, batch 32", step_jobs),
    "n_saddle": Case("an N-SADDLe step, the same", step_jobs),
    "forty": Case("both with 40 agents", step_jobs),
    "many": Case("Q-SADDLe with 256 and 1,024 agents of the small CNN and the MLP", step_jobs),
    "processes": Case("both with 10 agents, against a PyTorch process for each agent", process_jobs),
    "torch_bridge": Case("a torch module in our step, against flax and against PyTorch", bridge_jobs),
    "gossip": Case("a round of gossip against a copy, 10 to 1,000 agents, three graphs", gossip_jobs),
    "compressors": Case("each compressor against a copy", compressor_jobs),
    "evaluation": Case("evaluation of the consensus model", evaluation_jobs),
    "methods": Case("each method and estimator against D-PSGD: step time and compile time", method_jobs),
    "compile": Case("compile time of each step", compile_jobs),
    "memory": Case("peak memory of each step", memory_jobs),
    "growth": Case("step time and memory against agents, model size and degree", growth_jobs),
    "soak": Case("10,000 steps of 1,024 agents: memory, compilations, rate; only if it is named", soak_jobs),
}
# The cases that run by default: all but the soak test, which takes a quarter of an hour.
USUAL = tuple(name for name in CASES if name != "soak")


def jobs_of(names: Sequence[str], options: Options) -> list[Job]:
    """Lists the jobs of the named cases in order."""
    for name in names:
        if name not in CASES:
            raise ArgumentError(
                f"{checks.suggestion(name, CASES)}CASE must be one of {', '.join(CASES)}, "
                f"or input alone, got {name!r}"
            )
    return [job for name in names for job in CASES[name].jobs(name, options)]


def run(jobs: Sequence[Job], tell: Callable[[str], None]) -> list[Row]:
    """Runs one job after another; `tell` is called with the next job and with each result."""
    rows = []
    for number, job in enumerate(jobs, start=1):
        tell(f"[{number}/{len(jobs)}] {job.case}: {job.what}")
        rows.append(job.run())
        tell(f"    {result(rows[-1])}")
    return rows


def record(rows: Sequence[Row], options: Options) -> dict[str, Any]:
    """Returns the rows with machine, versions and options as a JSON object."""
    return {
        "machine": measure.description(),
        "options": dataclasses.asdict(options),
        "rows": [row.to_json() for row in rows],
    }
