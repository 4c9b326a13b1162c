"""Several runs as one program: everything that a run carries gets a leading replica axis.

One run's step is lifted over replicas by vmap, so all inside it keeps its meaning: agents gossip within their
replica, and each has its own data order, partition, initialisation and noise. The numbers in which they
differ are arguments of the step.

The compiled program takes C of the R replicas at a time and is called R / C times for a step; the carry is a
list of so many trees [C, A, ...]. An accelerator takes all: its operations want to be wide. A CPU takes one
after the other: nothing is gained by more, and the convolutions, of which each agent has its own there, would
take C times as long to compile. What is saved is stacked [R, A, ...], wherever it was computed.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Params
from saddle_jax.core.method import MethodState
from saddle_jax.data import load
from saddle_jax.devices.dispatch import in_turn
from saddle_jax.devices.lifting import group_size
from saddle_jax.training import experiment
from saddle_jax.training.config import Config
from saddle_jax.training.experiment import Experiment
from saddle_jax.training.sweep import parse_sweep


@dataclasses.dataclass(frozen=True, eq=False)
class Replicas(Experiment):
    """Runs that differ in seed and numbers; its parts, unless they are replaced here, are the first one's.

    Attributes:
      runs: each by itself.
    """

    runs: tuple[Experiment, ...] = ()

    @property
    def agent_axis(self) -> int:
        return 1

    @property
    def members(self) -> tuple[Experiment, ...]:
        return self.runs

    def params_of(self, carry: Any, number: int) -> Params:
        part, place = divmod(number, self.at_once)
        return in_turn(self._params_at, carry[part][0], place)

    def first_bad(self, carry: Any) -> np.ndarray:
        return np.concatenate([jax.device_get(part[2]) for part in carry])

    def collect(self, metrics: Any) -> list[Any]:
        places = [(part, place) for part in metrics for place in range(self.at_once)]
        return [jax.tree.map(lambda x, place=place: x[place], part) for part, place in places]

    def packed(self, carry: Any) -> Any:
        """Stacked [R, A, ...]."""
        return in_turn(self._joined, *carry)

    def unpacked(self, carry: Any) -> Any:
        return [in_turn(self._part, carry, first) for first in range(0, len(self.runs), self.at_once)]

    @functools.cached_property
    def _params_at(self) -> Any:
        def at(params: Any, place: Any) -> Any:
            return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, place, keepdims=False), params)

        return jax.jit(at, out_shardings=self.placement.shardings(self.runs[0].carry_shapes[0]))

    @functools.cached_property
    def _joined(self) -> Any:
        def join(*parts: Any) -> Any:
            return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)

        return jax.jit(join, out_shardings=self._carry_shardings)

    @functools.cached_property
    def _part(self) -> Any:
        def part(carry: Any, first: Any) -> Any:
            return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, first, self.at_once), carry)

        return jax.jit(part, out_shardings=self._carry_shardings)

    @property
    def at_once(self) -> int:
        """C, which divides R; `group` bounds it where given: it counts the agents of all replicas."""
        most, count = 1 if jax.default_backend() == "cpu" else len(self.runs), len(self.runs)
        if self.config.group:
            most = max(1, self.config.group // self.placement.per_device)
        return max(n for n in range(1, count + 1) if count % n == 0 and n <= most)

    def take_steps(self, carry: Any, images: Any, labels: Any, order: Any, positions: Any, phase: Any) -> Any:
        """As a run's; carry and metrics are lists, see above."""
        found = []
        for number, part in enumerate(carry):
            # The program is told which replicas it has in a fifth column of the positions.
            told = np.insert(np.asarray(positions), 4, number * self.at_once, axis=1)
            found.append(super().take_steps(part, images, labels, order, told, phase))
        return [part for part, _ in found], [metrics for _, metrics in found]

    def first_carry(self) -> Any:
        """As a run's, a list."""
        return self.unpacked(super().first_carry())

    def _step(self, carry: Any, *inputs: Any) -> Any:
        images, labels, (samples, mask), position, phase = inputs

        def own(tree: Any) -> Any:
            return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, position[4], self.at_once), tree)

        def of_one(carry, root, numbers, samples):
            method, schedule = self.runs[0].with_numbers(numbers)
            data = images, labels, (samples, mask)
            return self.runs[0].take_step(method, schedule, root, self._group, carry, *data, position, phase)

        arguments = own((self._roots, self._numbers, samples))
        if self.at_once == 1:  # XLA is slow with axes of one
            result = of_one(*jax.tree.map(lambda x: x[0], (carry, *arguments)))
            return jax.tree.map(lambda x: jnp.asarray(x)[None], result)
        # The step's number is the same for all replicas: without an axis it can decide what is computed.
        params, state, first_bad = carry
        axes = (0, MethodState(t=None, ascent=0, rule=0), 0)  # type: ignore[arg-type]
        lifted = jax.vmap(of_one, in_axes=(axes, 0, 0, 0), out_axes=(axes, 0))
        carry, metrics = lifted((params, state._replace(t=state.t[0]), first_bad), *arguments)
        params, state, first_bad = carry
        return (params, state._replace(t=jnp.broadcast_to(state.t, (self.at_once,))), first_bad), metrics

    def _first_models(self) -> Any:
        """Stacked [R, ...]."""
        return jax.tree.map(lambda *x: jnp.stack(x), *[run.first_model() for run in self.runs])

    def _carry(self, ones: Any) -> Any:
        return jax.vmap(self._start)(ones, self._numbers)

    def _start(self, one: Any, numbers: Any) -> Any:
        return self.start(self.runs[0].with_numbers(numbers)[0], one)

    @functools.cached_property
    def _carry_shardings(self) -> Any:
        return self.placement.shardings(self.carry_shapes, axis=self.agent_axis)

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
        """How many agents of each replica are computed at a time."""
        size = self.at_once
        return max(1, group_size(self.placement.per_device * size, self.config.group) // size)

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
    # They decide steps and mask, which are the same for all.
    shares = {run.partition.samples.shape[1] for run in runs}
    if len(shares) > 1:
        raise ArgumentError(
            f"seeds must give equally long epochs to be trained at once, got {sorted(shares)} samples "
            f"with partition {config.partition}: train them one by one"
        )
    parts = {field.name: getattr(runs[0], field.name) for field in dataclasses.fields(Experiment)}
    return Replicas(**{**parts, "config": config}, runs=runs)
