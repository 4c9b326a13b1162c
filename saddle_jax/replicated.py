"""Several runs as one program: everything that a run carries gets a leading replica axis [R, ...].

One run's step is lifted over the replicas by vmap, so all inside it keeps its meaning: agents gossip within
their replica, and each has its own data order, partition, initialisation and noise. The numbers in which the
replicas differ are arguments of the step [R]. Counters, which are the same for all, have no replica axis.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax import experiment
from saddle_jax.agents import group_size
from saddle_jax.config import Config
from saddle_jax.data import load
from saddle_jax.experiment import Experiment
from saddle_jax.replicas import parse_sweep
from saddle_jax.types import Array


@dataclasses.dataclass(frozen=True, eq=False)
class Replicas(Experiment):
    """Runs that differ in seed and numbers; its parts, unless they are replaced here, are the first one's.

    Attributes:
      runs: each by itself.
    """

    runs: tuple[Experiment, ...] = ()

    @property
    def members(self) -> tuple[Experiment, ...]:
        return self.runs

    def of_member(self, tree: Any, number: int) -> Any:
        return jax.tree.map(lambda x: x[number] if jnp.ndim(x) else x, tree)

    def _step(self, carry: Any, *inputs: Any) -> Any:
        images, labels, (samples, mask), position, ascend = inputs

        def of_one(carry, root, numbers, samples):
            method, schedule = self.runs[0].with_numbers(numbers, self._group)
            data = images, labels, (samples, mask)
            return self.runs[0].take_step(method, schedule, root, carry, *data, position, ascend)

        return jax.vmap(of_one, in_axes=(self._axes, 0, 0, 0), out_axes=(self._axes, 0))(
            carry, self._roots, self._numbers, samples
        )

    def _first_models(self) -> Any:
        """Stacked [R, ...]."""
        return jax.tree.map(lambda *x: jnp.stack(x), *[run.first_model() for run in self.runs])

    def _carry(self, ones: Any) -> Any:
        return jax.vmap(self._start, out_axes=self._axes)(ones, self._numbers)

    def _start(self, one: Any, numbers: Any) -> Any:
        return self.start(self.runs[0].with_numbers(numbers, self._group)[0], one)

    @functools.cached_property
    def _axes(self) -> Any:
        """Where the replica axis of the carry is: in front, and nowhere in the counters of the state."""

        def start(numbers: Any) -> Any:
            return self._start(self.runs[0].first_model(), numbers)

        numbers = {name: jax.ShapeDtypeStruct((), jnp.float32) for name in self._numbers}
        _, state, _ = jax.eval_shape(start, numbers)
        return 0, jax.tree.map(lambda x: 0 if x.ndim else None, state), 0

    @functools.cached_property
    def _carry_shardings(self) -> Any:
        return self.placement.shardings(self.carry_shapes, axis=1)

    @property
    def _roots(self) -> Any:
        return jnp.stack([jax.random.key(run.config.seed) for run in self.runs])

    @property
    def _numbers(self) -> dict[str, np.ndarray]:
        """The swept settings [R]."""
        return {
            name: np.array([getattr(run.config, name) for run in self.runs], np.float32)
            for name in parse_sweep(self.config.sweep)
        }

    @property
    def _group(self) -> int:
        """How many agents of each replica are computed at a time: they share what is meant for all."""
        agents, count = self.placement.per_device, len(self.runs)
        return max(1, group_size(agents * count, self.config.group) // count)

    def order(self, epoch: int) -> tuple[Array, Array]:
        """As a run's, samples [R, steps, A, B]; subsets of their own are numbered in turn."""
        orders = [run.batches.epoch(epoch) for run in self.runs]
        samples = jnp.stack([samples for samples, _ in orders])
        return self.place_order(samples + self._offsets, orders[0][1])

    def place_order(self, samples: Any, mask: Any) -> tuple[Array, Array]:
        return self.placement.by_agents(samples, axis=2), self.placement.everywhere(mask)

    @property
    def _own_data(self) -> bool:
        return any(run.dataset.train_images is not self.dataset.train_images for run in self.runs)

    @property
    def _offsets(self) -> Array:
        """Where the samples of each replica start [R, 1, 1, 1]."""
        size = len(self.dataset.train_labels) if self._own_data else 0
        return size * jnp.arange(len(self.runs), dtype=jnp.int32)[:, None, None, None]

    @functools.cached_property
    def device_data(self) -> tuple[Any, Array]:
        """All training images and labels, on every device; subsets one after the other."""
        runs = self.runs if self._own_data else self.runs[:1]
        images = np.concatenate([np.asarray(run.dataset.train_images) for run in runs])
        labels = np.concatenate([run.dataset.train_labels for run in runs])
        return self.placement.everywhere((jnp.asarray(images), jnp.asarray(labels)))


def build(config: Config) -> Experiment:
    """The parts of a run, or of all runs that the settings name."""
    data = load(config.dataset, config.data_dir or None)
    runs = tuple(experiment.make(each, data) for each in config.each())
    if not config.has_replicas:
        return runs[0]
    steps = {run.batches.steps_per_epoch for run in runs}
    if len(steps) > 1:
        raise ValueError(
            f"seeds must give equally many steps to be trained at once, got {sorted(steps)} steps per epoch "
            f"with partition {config.partition}: train them one by one"
        )
    parts = {field.name: getattr(runs[0], field.name) for field in dataclasses.fields(Experiment)}
    return Replicas(**{**parts, "config": config}, runs=runs)
