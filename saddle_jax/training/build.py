"""From settings to one run's problem: its data, partition, batches, model and loss."""

import dataclasses
import functools
from typing import Any, cast

import jax
import optax

from saddle_jax import models
from saddle_jax.base.types import Key, LossFn, Params
from saddle_jax.core.method import Method
from saddle_jax.core.mixing import Graphs
from saddle_jax.core.topology import Topology
from saddle_jax.core.trees import replicate
from saddle_jax.data import Batches, Dataset, Partition, load, make_partition
from saddle_jax.data.recipes import Augmentation
from saddle_jax.data.streaming import StreamedImages
from saddle_jax.methods import METHODS, options_of
from saddle_jax.models.convolution import Lowering
from saddle_jax.models.layers import Norm
from saddle_jax.training import classification
from saddle_jax.training.config import Config, build_topology, parse_compressor
from saddle_jax.training.schedules import build_schedule

# What the random numbers of a run are for, beside the batches' own.
_INITIALISATION, _METHOD = 10, 11


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """What one run trains on, and with what it is measured; made from its settings by `build`.

    A problem knows nothing of devices or of other runs: see `program.Program`.
    """

    config: Config
    dataset: Dataset
    partition: Partition
    batches: Batches
    model: Any

    @property
    def steps(self) -> int:
        """How many steps the whole run takes."""
        return self.config.epochs * self.batches.steps_per_epoch

    @property
    def is_streamed(self) -> bool:
        """Whether images are decoded batch by batch."""
        return isinstance(self.dataset.train_images, StreamedImages)

    @property
    def root(self) -> Key:
        """The key that all random numbers of the run come from."""
        return jax.random.key(self.config.seed)

    @property
    def topology(self) -> Topology:
        """Who hears whom, without idle agents."""
        return build_topology(self.config)

    @functools.cached_property
    def loss_fn(self) -> LossFn:
        """The loss of one agent on its own batch, with its accuracy beside it."""
        return classification.cross_entropy(self.model)

    def first_model(self) -> Params:
        """Returns one agent's model before the first step: the same for everybody."""
        key = jax.random.fold_in(self.root, _INITIALISATION)
        return models.init(self.model, self.dataset.image_shape, key)

    def first_params(self) -> Params:
        """Returns all agents' models before the first step, stacked [A, ...], on one device."""
        return replicate(self.first_model(), self.config.agents)

    def evaluate(self, params: Params) -> classification.Score:
        """Tells how well one model does on the whole test set."""
        data = self.dataset
        return classification.evaluate(self.model, params, data.test_images, data.test_labels, data.recipe)

    def method_on(
        self, topology: Graphs, numbers: dict[str, Any] | None = None
    ) -> tuple[Method, optax.Schedule]:
        """Returns method and learning rate on a graph; `numbers` replace settings, and may be traced."""
        config = dataclasses.replace(self.config, **(numbers or {}))
        schedule = build_schedule(config, self.batches.steps_per_epoch)
        return _build_method(config, topology, schedule), schedule


def method_key(root: Key, step: Any) -> Key:
    """Returns the key of one step's compression and other random choices of the method."""
    return jax.random.fold_in(jax.random.fold_in(root, _METHOD), step)


def build(config: Config) -> Problem:
    """Loads the data and makes the parts of one run."""
    return make(config, load(config.dataset, config.data_dir or None))


def make(config: Config, data: Dataset) -> Problem:
    """Returns the parts of a run on the data that was loaded for it."""
    dataset = data.subset(config.subset, config.seed) if config.subset else data
    if config.augmentation != "auto":
        recipe = dataclasses.replace(dataset.recipe, augmentation=cast(Augmentation, config.augmentation))
        dataset = dataclasses.replace(dataset, recipe=recipe)
    partition = make_partition(
        config.partition, dataset.train_labels, config.agents, alpha=config.alpha, seed=config.seed
    )
    model = models.build(
        config.model,
        dataset.num_classes,
        norm=cast(Norm, config.norm),
        lowering=cast(Lowering, config.lowering),
    )
    return Problem(config, dataset, partition, Batches(partition, config.batch_size, config.seed), model)


def _build_method(config: Config, topology: Graphs, schedule: optax.Schedule) -> Method:
    """Returns the method that the settings name, with those of its options that are settings."""
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
    taken = options_of(config.method)
    chosen = {name: value for name, value in options.items() if name in taken}
    return METHODS[config.method](topology, learning_rate=schedule, **chosen)
