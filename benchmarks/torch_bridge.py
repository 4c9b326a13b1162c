"""A module of PyTorch in our step, against our own flax network, and against PyTorch itself."""

import functools
import time
from typing import Any

import jax

from benchmarks.measure import Row, compared, interleaved
from benchmarks.work import NO_PYTORCH, Job, Options, Work, pytorch
from saddle_jax import models
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.trees import replicate
from saddle_jax.methods.dpsgd import dpsgd
from saddle_jax.models.functions import Functions
from saddle_jax.models.torch_modules import from_torch
from saddle_jax.tasks import supervised


def bridge_jobs(case: str, options: Options) -> list[Job]:
    """Lists two jobs, one for each opponent."""
    work = Work("dpsgd", "resnet8", 3, 8, (16, 16, 3)) if options.quick else Work("dpsgd")
    return [
        Job(
            case,
            f"{work}, GroupNorm, from torch, against {against}",
            functools.partial(_measure, case, work, against, options),
        )
        for against in ("flax", "PyTorch")
    ]


def _measure(case: str, work: Work, against: str, options: Options) -> Row:
    opponent = pytorch("resnet")
    if opponent is None:
        return Row(case, f"{work}: {NO_PYTORCH}")
    make = functools.partial(opponent.ResNet20, 3 if work.model == "resnet20" else 1)
    try:
        runs: dict[str, Any] = {"from torch": _Step(work, from_torch(make))}
    except ArgumentError as error:  # torchax is not installed
        return Row(case, f"{work}: {error}")
    if against == "flax":
        runs[against] = _Step(work, models.make_model(work.model, 10, "groupnorm", "auto"))
    else:
        runs[against] = opponent.LoopStep(make, work.topology.mixing, work.batch())
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    timing = interleaved(
        {name: functools.partial(_clocked, run, cpu[name]) for name, run in runs.items()}, options.repeats
    )
    seconds = {name: sorted(taken[1:])[len(taken[1:]) // 2] for name, taken in cpu.items()}  # no warm-up
    figures = {"CPU ratio": seconds[against] / seconds["from torch"]}
    return compared(case, f"{work}, GroupNorm", timing, "from torch", against, against, figures)


def _clocked(run: Any, taken: list[float]) -> None:
    started = time.process_time()
    jax.block_until_ready(run())
    taken.append(time.process_time() - started)


class _Step:
    """A step of D-PSGD in our program."""

    def __init__(self, work: Work, model: Functions):
        method = dpsgd(work.topology, 0.1)
        self._params = replicate(models.init(model, work.image_shape, jax.random.key(0)), work.agents)
        self._state, self._batch = method.init(self._params), work.batch()
        loss = supervised.cross_entropy(model)
        self._step = jax.jit(
            lambda x, state, batch: method.step(loss, x, state, batch), donate_argnums=(0, 1)
        )

    def __call__(self) -> Any:
        self._params, self._state, metrics = self._step(self._params, self._state, self._batch)
        return metrics["loss"]
