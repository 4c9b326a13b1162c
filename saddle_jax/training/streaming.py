"""What steps are fed with where images are decoded batch by batch."""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from saddle_jax.training.experiment import Experiment


def streamed_inputs(experiment: Experiment, step: int) -> Iterator[Any]:
    """Images, labels and order of one step after the other, the next one's being decoded meanwhile.

    A device gets the images of its own agents, [A, R, B] in a row, and a process decodes no others.
    """
    batches, members, placement = experiment.batches, experiment.members, experiment.placement
    rows = np.array(placement.own_rows)
    rows[rows >= placement.agents] = 0  # idle agents see the first one's
    leading = (len(members),) if experiment.config.has_replicas else ()
    shape = (placement.agents, len(members), batches.batch_size)
    numbered = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    numbered %= placement.per_device * len(members) * batches.batch_size  # among those of its device
    numbered = numbered.swapaxes(0, 1).reshape(*leading, 1, placement.agents, batches.batch_size)

    @functools.lru_cache(maxsize=1)
    def orders(epoch: int) -> list[list[np.ndarray]]:
        return [[np.asarray(part) for part in member.batches.epoch(epoch)] for member in members]

    def start(step: int) -> Any:
        epoch, number = divmod(step, batches.steps_per_epoch)
        waiting, labels = [], []
        found = orders(epoch)
        for member, (samples, _) in zip(members, found, strict=True):
            own = samples[number][rows].reshape(-1)
            waiting.append(member.dataset.train_images.ahead(own))
            labels.append(member.dataset.train_labels[own])
        return waiting, labels, found[0][1][number][None]

    def by_agents(parts: list[np.ndarray]) -> Any:
        """Of each member [A B, ...], all together [A R B, ...]."""
        apart = [part.reshape(len(rows), -1, *part.shape[1:]) for part in parts]
        return placement.from_own_rows(np.stack(apart, axis=1).reshape(-1, *parts[0].shape[1:]))

    upcoming = start(step)
    while True:
        waiting, labels, mask = upcoming
        step += 1
        if step < experiment.steps:
            upcoming = start(step)
        images = by_agents([wait() for wait in waiting])
        yield images, by_agents(labels), experiment.place_order(numbered, mask)
