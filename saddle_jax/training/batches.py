"""What steps are fed with: stored samples by an order that is drawn for each epoch, or streamed ones."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array
from saddle_jax.training.program import Inputs, Program


class Feed:
    """The inputs of one call after the other, from a step on; they follow from the step's number alone."""

    def __init__(self, program: Program, step: int = 0):
        self._per_epoch = program.trial.batches.steps_per_epoch
        self._streamed = streamed(program, step) if program.trial.dataset.is_streamed else None
        self._stored = functools.lru_cache(maxsize=1)(functools.partial(stored, program))

    def at(self, step: int) -> Inputs:
        """Returns the inputs of the steps from `step` to its epoch's end; streamed, of this one alone."""
        if self._streamed is not None:
            return next(self._streamed)
        return self._stored(step // self._per_epoch)


def stored(program: Program, epoch: int) -> Inputs:
    """Returns what the steps of an epoch are fed with, where all samples lie on every device."""
    orders = [trial.batches.epoch(epoch) for trial in program.trials]
    # Subsets of the runs lie one after the other, see `Program.device_data`.
    size = program.trial.dataset.size if program.has_subsets else 0
    samples = _stacked([samples for samples, _ in orders], size)
    return Inputs(program.device_data, *_placed(program, samples, orders[0][1]))


@jax.jit
def _stacked(orders: list[Array], size: int) -> Array:
    """Stacks the sample numbers [R, n, A, B] of all runs; each one's data begins `size` samples later."""
    own = jnp.stack(orders)
    offsets = size * jnp.arange(len(orders), dtype=jnp.int32)[:, None, None, None]
    return jnp.where(own < 0, own, own + offsets)


def streamed(program: Program, step: int) -> Iterator[Inputs]:
    """Returns what one step after the other is fed with, the next one's being fetched meanwhile.

    A device gets the samples of its own agents, [A, R, B] in a row, and a process fetches no others. With
    three agents on each of two devices, two runs and batches of four, a device holds 3 x 2 x 4 samples; the
    one numbered (a, r, b) among its own is number (a 2 + r) 4 + b there.
    """
    trials, placement, batches = program.trials, program.placement, program.trial.batches
    rows = np.array(placement.own_rows)
    rows[rows >= placement.agents] = 0  # idle agents see the first one's
    shape = (placement.agents, len(trials), batches.size)
    numbers = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    numbers %= placement.per_device * len(trials) * batches.size  # among those of its device
    samples = numbers.swapaxes(0, 1)[:, None]  # [R, 1, A, B]

    @functools.lru_cache(maxsize=1)
    def orders(epoch: int) -> list[list[np.ndarray]]:
        return [[np.asarray(part) for part in trial.batches.epoch(epoch)] for trial in trials]

    def start(step: int) -> Any:
        epoch, number = divmod(step, batches.steps_per_epoch)
        fetched = [
            jax.tree.map(
                functools.partial(_ahead, samples=order[number][rows].reshape(-1)), trial.dataset.train
            )
            for trial, (order, _) in zip(trials, orders(epoch), strict=True)
        ]
        return fetched, orders(epoch)[0][1][number][None]

    def by_agents(*waits: Any) -> Any:
        """Returns one leaf's parts of all runs, each [A B, ...], as one array [A R B, ...] on the devices."""
        parts = [wait() for wait in waits]
        apart = [part.reshape(len(rows), -1, *part.shape[1:]) for part in parts]
        return placement.from_own_rows(np.stack(apart, axis=1).reshape(-1, *parts[0].shape[1:]))

    upcoming = start(step)
    while True:
        fetched, mask = upcoming
        step += 1
        if step < program.trial.steps:
            upcoming = start(step)
        yield Inputs(jax.tree.map(by_agents, *fetched), *_placed(program, samples, mask))


def _ahead(leaf: Any, samples: np.ndarray) -> Callable[[], np.ndarray]:
    """Starts to fetch samples of an array, or of a source that may do so meanwhile; returns how to wait."""
    if hasattr(leaf, "ahead"):
        wait: Callable[[], np.ndarray] = leaf.ahead(samples)
        return wait
    return lambda: np.asarray(leaf[samples])


def _placed(program: Program, samples: Any, mask: Any) -> tuple[Array, Array]:
    """Returns an order [R, n, A, B] and its mask [n, B] on the devices, with rows for idle agents."""
    placement = program.placement
    return placement.by_agents(samples, axis=2), placement.everywhere(mask)
