"""What steps are fed with where images are decoded batch by batch."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from saddle_jax.experiment import Experiment


def streamed_inputs(experiment: Experiment, step: int) -> Iterator[Any]:
    """Images, labels and order of one step after the other, the next one's being decoded meanwhile.

    A device gets the images of its own agents, [A, R, B] in a row, and a process decodes no others.
    """
    batches, members, placement = experiment.batches, experiment.members, experiment.placement
    rows = np.array(placement.own_rows)
    rows[rows >= placement.agents] = 0  # idle agents see the first one's
    leading = (len(members),) if experiment.config.has_replicas else ()

    def start(step: int) -> Any:
        epoch, number = divmod(step, batches.steps_per_epoch)
        waiting, labels = [], []
        for member in members:
            samples, mask = (np.asarray(part[number]) for part in member.batches.epoch(epoch))
            own = samples[rows].reshape(-1)
            waiting.append(member.dataset.train_images.ahead(own))
            labels.append(member.dataset.train_labels[own])
        agents, size = samples.shape
        numbered = np.arange(agents * len(members) * size, dtype=np.int32).reshape(agents, len(members), size)
        numbered %= placement.per_device * len(members) * size  # among those of its device
        order = numbered.swapaxes(0, 1).reshape(*leading, 1, agents, size), mask[None]
        return waiting, labels, order

    def by_agents(parts: list[np.ndarray]) -> Any:
        """Of each member [A B, ...], all together [A R B, ...]."""
        apart = [part.reshape(len(rows), -1, *part.shape[1:]) for part in parts]
        return placement.from_own_rows(np.stack(apart, axis=1).reshape(-1, *parts[0].shape[1:]))

    upcoming = start(step)
    while True:
        waiting, labels, order = upcoming
        step += 1
        if step < experiment.steps:
            upcoming = start(step)
        images = by_agents([wait() for wait in waiting])
        yield images, by_agents(labels), experiment.place_order(*order)
