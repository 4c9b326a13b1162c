"""From settings to the parts of a run: data, batches, model, method, and one compiled step."""

import dataclasses
import functools
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from saddle_jax import models
from saddle_jax.base.types import Array, Key, LossFn, Params
from saddle_jax.core.ledger import Ledger, open_ledger
from saddle_jax.core.method import Method
from saddle_jax.core.trees import consensus, consensus_distance, replicate
from saddle_jax.data import Batches, Dataset, Partition, load, make_partition, take
from saddle_jax.data.batches import augmentation_key
from saddle_jax.data.recipes import Augmentation
from saddle_jax.data.streaming import StreamedImages
from saddle_jax.devices import lifting
from saddle_jax.devices.dispatch import in_turn
from saddle_jax.devices.placement import Placement, place
from saddle_jax.methods import METHODS, options_of
from saddle_jax.models.convolution import Lowering
from saddle_jax.models.layers import Norm
from saddle_jax.training import classification
from saddle_jax.training.config import Config, build_topology, parse_compressor
from saddle_jax.training.schedules import build_schedule

# What the random numbers of a run are for, beside the batches' own.
_INITIALISATION, _METHOD = 10, 11
# On accelerators, where the time between two calls would otherwise show with small models. It divides the
# default of log_every_steps, between whose steps nothing else is to be done.
_STEPS_PER_DISPATCH = 5


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """The parts of a run, made from its settings by `build`."""

    config: Config
    dataset: Dataset
    partition: Partition
    batches: Batches
    model: Any
    method: Method
    schedule: optax.Schedule
    ledger: Ledger
    placement: Placement

    @property
    def steps(self) -> int:
        """Of the whole run."""
        return self.config.epochs * self.batches.steps_per_epoch

    def first_model(self) -> Params:
        """One agent's model before the first step: the same for everybody."""
        key = _stream(jax.random.key(self.config.seed), _INITIALISATION)
        return models.init(self.model, self.dataset.image_shape, key)

    def first_params(self) -> Params:
        """All agents' models before the first step, stacked [A, ...], on one device."""
        return replicate(self.first_model(), self.config.agents)

    def first_carry(self) -> Any:
        """What `compiled_steps` carries, before the first step, on the devices where it belongs."""
        models_before = self._first_models()  # under a mesh each operation would be a program on all devices
        with self.placement.active():
            return in_turn(jax.jit(self._carry, out_shardings=self._carry_shardings), models_before)

    def _first_models(self) -> Params:
        """What `_carry` starts from."""
        return self.first_model()

    def _carry(self, one: Params) -> Any:
        return self.start(self.method, one)

    @functools.cached_property
    def carry_shapes(self) -> Any:
        """Of `first_carry`, without computing it; idle agents included."""
        return jax.eval_shape(lambda: self._carry(self._first_models()))

    def start(self, method: Method, one: Params) -> Any:
        """What `take_step` carries, before the first, for agents that all have this one model."""
        params = replicate(one, self.placement.size)
        return params, method.init(params), jnp.int32(-1)

    @functools.cached_property
    def _carry_shardings(self) -> Any:
        return self.placement.shardings(self.carry_shapes)

    @property
    def saved(self) -> Any:
        """Shapes, dtypes and places of what is saved, see `packed`."""
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        shardings = self._carry_shardings or jax.tree.map(lambda _: here, self.carry_shapes)
        return jax.tree.map(
            lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
            self.carry_shapes,
            shardings,
        )

    @property
    def steps_per_dispatch(self) -> int:
        """How many steps one call of `compiled_steps` takes."""
        if self.is_streamed:  # its images come batch by batch
            return 1
        if self.config.steps_per_dispatch:
            return self.config.steps_per_dispatch
        return 1 if jax.default_backend() == "cpu" else _STEPS_PER_DISPATCH

    @property
    def agent_axis(self) -> int:
        """Which axis of what is saved is the agents'."""
        return 0

    @property
    def members(self) -> "tuple[Experiment, ...]":
        """The runs that this one consists of: itself; see `replicated.Replicas`."""
        return (self,)

    def params_of(self, carry: Any, number: int) -> Params:
        """All agents' models [A, ...] of a member."""
        return carry[0]

    def first_bad(self, carry: Any) -> np.ndarray:
        """Of every member, the first step whose loss was not finite; -1: none yet."""
        return np.array(jax.device_get(carry[2]), ndmin=1)

    def collect(self, metrics: Any) -> list[Any]:
        """Every member's part of the metrics that `take_steps` returned, once they are fetched."""
        return [metrics]

    def packed(self, carry: Any) -> Any:
        """What `take_steps` carries, in the form in which it is saved."""
        return carry

    def unpacked(self, carry: Any) -> Any:
        """And back."""
        return carry

    @property
    def at_once(self) -> int:
        """How many members one call of `compiled_steps` computes."""
        return 1

    @functools.cached_property
    def compiled_steps(self) -> Any:
        """(carry, images, labels, order, positions, phase) -> (carry, metrics of the last); see take_steps.

        carry: params, state and the first step whose loss was not finite (-1: none yet); donated.
        images, labels: of which the order numbers samples.
        order: an epoch's samples [steps, A, B] and mask [steps, B], or those of one step.
        positions: int32 [n, 4], for each of n steps: which of the order's, its epoch, which of the
          epoch's, which of the run's.
        phase: which kind of steps these are, see `Method.phase`; None where n steps differ in that.
        """

        def run_steps(carry, images, labels, order, positions, phase):
            if len(positions) == 1:
                return self._step(carry, images, labels, order, positions[0], phase)
            carry, metrics = jax.lax.scan(
                lambda c, position: self._step(c, images, labels, order, position, phase), carry, positions
            )
            return carry, jax.tree.map(lambda x: x[-1], metrics)

        everywhere = self.placement.sharding()
        return jax.jit(
            run_steps,
            static_argnums=5,
            donate_argnums=0,
            out_shardings=None if everywhere is None else (self._carry_shardings, everywhere),
        )

    def _step(self, carry: Any, *inputs: Any) -> Any:
        root = jax.random.key(self.config.seed)
        return self.take_step(self.method, self.schedule, root, self.config.group, carry, *inputs)

    def take_step(
        self,
        method: Method,
        schedule: Any,
        root: Key,
        group: int,
        carry: Any,
        images: Any,
        labels: Any,
        order: Any,
        position: Any,
        phase: int | None,
    ) -> Any:
        """One step, to be traced; `root` is the key that all random numbers of the run come from."""
        params, state, first_bad = carry
        row, epoch, number, step = position[0], position[1], position[2], position[3]
        samples, mask = order[0][row], order[1][row]
        # Of stored images every device has all, of streamed ones those of its own agents.
        pick = lifting.on_shards(take, everywhere=() if self.is_streamed else (0,))
        present = jnp.asarray(method.topology.present, mask.dtype)
        batch = {
            "images": self.dataset.recipe.for_agents(
                augmentation_key(root, epoch, number), pick(images, samples)
            ),
            "labels": pick(labels, samples),
            "mask": present[:, None] * mask[None],
        }
        params, state, metrics = method.step(
            self.loss_fn,
            params,
            state,
            self.placement.cut_batches(batch),
            jax.random.fold_in(_stream(root, _METHOD), step),
            phase=phase,
            diagnostics=self.config.diagnostics,
            group=group,
        )
        is_bad = ~jnp.all(jnp.isfinite(metrics["loss"]))
        first_bad = jnp.where((first_bad < 0) & is_bad, step, first_bad)
        metrics = metrics.adding(learning_rate=schedule(state.t - 1), first_bad=first_bad)
        return (params, state, first_bad), metrics

    @functools.cached_property
    def loss_fn(self) -> LossFn:
        """Of one agent."""
        return classification.cross_entropy(self.model)

    def with_numbers(self, numbers: dict[str, Any]) -> tuple[Method, optax.Schedule]:
        """Method and learning rate with other numbers, which may be traced."""
        config = dataclasses.replace(self.config, **numbers)
        schedule = build_schedule(config, self.batches.steps_per_epoch)
        return _build_method(config, self.method.topology, schedule), schedule

    def take_steps(self, *arguments: Any) -> Any:
        """`compiled_steps` on the devices of the run."""
        with self.placement.active():
            return in_turn(self.compiled_steps, *arguments)

    def order(self, epoch: int) -> tuple[Array, Array]:
        """An epoch's samples [steps, A, B] and mask [steps, B], on the devices; idle agents included."""
        return self.place_order(*self.batches.epoch(epoch))

    def place_order(self, samples: Any, mask: Any) -> tuple[Array, Array]:
        """An order of one's own, with the axes of `order`."""
        return self.placement.by_agents(samples, axis=1), self.placement.everywhere(mask)

    @functools.cached_property
    def device_data(self) -> tuple[Any, Array]:
        """All training images and labels, on every device."""
        images = jnp.asarray(np.asarray(self.dataset.train_images))
        return self.placement.everywhere((images, jnp.asarray(self.dataset.train_labels)))

    def consensus(self, params: Params) -> Params:
        """The average model of agents on their devices, on one device."""
        return self.placement.pull(consensus, params, self.method.topology.present)

    def consensus_distance(self, params: Params) -> Array:
        """How far agents on their devices are from their average."""
        return self.placement.pull(consensus_distance, params, self.method.topology.present)

    @property
    def is_streamed(self) -> bool:
        """Whether images are decoded batch by batch."""
        return isinstance(self.dataset.train_images, StreamedImages)

    def evaluate(self, params: Params) -> classification.Score:
        """One model on the whole test set."""
        dataset = self.dataset
        return classification.evaluate(
            self.model, params, dataset.test_images, dataset.test_labels, dataset.recipe
        )


def build(config: Config) -> Experiment:
    """Loads the data and makes the parts of one run; `replicated.build` also makes several at once."""
    return make(config, load(config.dataset, config.data_dir or None))


def make(config: Config, data: Dataset) -> Experiment:
    """The parts of a run on the data that was loaded for it."""
    dataset = data.subset(config.subset, config.seed) if config.subset else data
    if config.augmentation != "auto":
        recipe = dataclasses.replace(dataset.recipe, augmentation=cast(Augmentation, config.augmentation))
        dataset = dataclasses.replace(dataset, recipe=recipe)
    partition = make_partition(
        config.partition, dataset.train_labels, config.agents, alpha=config.alpha, seed=config.seed
    )
    batches = Batches(partition, config.batch_size, config.seed)
    placement = place(config.agents, config.batch_size, config.devices)
    model = models.build(
        config.model,
        dataset.num_classes,
        norm=cast(Norm, config.norm),
        lowering=cast(Lowering, config.lowering),
    )
    schedule = build_schedule(config, batches.steps_per_epoch)
    method = _build_method(config, placement.graph(build_topology(config)), schedule)
    shapes = jax.eval_shape(
        lambda: replicate(models.init(model, dataset.image_shape, jax.random.key(0)), placement.size)
    )
    return Experiment(
        config=config,
        dataset=dataset,
        partition=partition,
        batches=batches,
        model=model,
        method=method,
        schedule=schedule,
        ledger=open_ledger(method, shapes),
        placement=placement,
    )


def _build_method(config: Config, topology: Any, schedule: optax.Schedule) -> Method:
    factory, taken = METHODS[config.method], options_of(config.method)
    options: dict[str, Any] = {
        "beta": config.beta,
        "mu": None if config.mu < 0 else config.mu,
        "nesterov": config.nesterov,
        "weight_decay": config.weight_decay,
        "gamma": config.gamma,
        "compressor": parse_compressor(config.compressor),
        "order": config.order,
        "form": config.form,
        "self_gradient": config.self_gradient,
        "rho": config.rho,
        "ascent_every": config.ascent_every,
        "ascent_reuse": config.ascent_reuse,
    }
    chosen = {name: value for name, value in options.items() if name in taken}
    return factory(topology, learning_rate=schedule, **chosen)


def _stream(root: Key, purpose: int) -> Key:
    return jax.random.fold_in(root, purpose)
