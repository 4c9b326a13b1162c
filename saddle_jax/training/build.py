"""From the parts that all runs of a program share to one run's own: its samples, partition and batches."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, cast

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from saddle_jax.base import brought
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Batch, Key, LossFn, Params
from saddle_jax.core.method import Method
from saddle_jax.core.mixing import Graphs
from saddle_jax.core.trees import replicate
from saddle_jax.data import Batches, Dataset, Partition, given_partition, make_partition
from saddle_jax.kernels.convolution import Lowering
from saddle_jax.models import initialise
from saddle_jax.models.functions import Functions
from saddle_jax.models.precision import Precision, in_precision
from saddle_jax.settings.config import Config
from saddle_jax.tasks import objectives
from saddle_jax.tasks.objectives import Ground, Objective
from saddle_jax.training import methods, parts
from saddle_jax.training.parts import Parts

# What the random numbers of a run are for, beside the batches' own.
_INITIALISATION, _METHOD = 10, 11
_MOST_STEPS = 2**31 - 1
# Kinds of partitions that deal samples out without a look at their classes.
_WITHOUT_CLASSES = ("iid", "quantity_skew")


@dataclasses.dataclass(frozen=True, eq=False)
class Replica:
    """One run of a program: what it trains on, and with what it is measured; `make` makes it.

    A replica knows nothing of devices or of other runs: see `program.Program`.

    Attributes:
      config: its settings.
      parts: what it shares with other runs.
      dataset: its samples, which may be a subset of the data that all share.
      partition: who holds which of them.
      batches: the order in which they are seen.
    """

    config: Config
    parts: Parts
    dataset: Dataset
    partition: Partition
    batches: Batches

    @property
    def steps(self) -> int:
        """How many steps the whole run takes."""
        return self.config.epochs * self.batches.steps_per_epoch

    @property
    def root(self) -> Key:
        """The key that all random numbers of the run come from."""
        return jax.random.key(self.config.seed)

    @property
    def topology(self) -> Graphs:
        """Who hears whom, without idle agents."""
        return self.parts.topology(self.config)

    @property
    def model(self) -> Functions:
        """The network of every agent, compiled as the settings say."""
        return _model(self.config, self.parts)

    @functools.cached_property
    def objective(self) -> Objective:
        """What is learned, and how well."""
        return self.parts.objective(self.model)

    @property
    def ground(self) -> Ground:
        """What the metrics of a model alone may depend on."""
        return Ground(self.dataset, self.partition, methods.weight_decay_of(self.config))

    @property
    def loss_fn(self) -> LossFn:
        """The loss of one agent on its own batch, with numbers to log beside it."""
        return self.objective.loss

    def loss_of(self, lowering: Lowering) -> LossFn:
        """Returns the same loss in float32, compiled in another way: "plain" has derivatives of all kinds."""
        return self.parts.objective(in_precision(self.parts.model(lowering), "float32")).loss

    def batch_shapes(self) -> Batch:
        """Returns the shapes and dtypes of one agent's batch, as its loss sees it."""
        size = self.batches.size

        def many(leaf: Any) -> Any:
            return jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype)

        batch = jax.eval_shape(self.dataset.prepared, jax.tree.map(many, self.dataset.train))
        if self.objective.masked:
            batch = {**batch, "mask": jax.ShapeDtypeStruct((size,), np.float32)}
        return batch

    def test_shapes(self, size: int) -> Batch:
        """Returns the shapes and dtypes of so many samples to test with, as they are stored."""
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype), self.dataset.test)

    def first_model(self) -> Params:
        """Returns one agent's model before the first step: the same for everybody."""
        key = jax.random.fold_in(self.root, _INITIALISATION)
        return initialise(self.model, self.dataset.inputs_of_one, key)

    def first_params(self) -> Params:
        """Returns all agents' models before the first step, stacked [A, ...], on one device."""
        return replicate(self.first_model(), self.config.agents)

    def evaluate(self, params: Params, mesh: Mesh | None = None) -> dict[str, float]:
        """Returns the objective's metrics of one model, on the whole test set; a mesh shares the samples."""
        found = objectives.evaluate(self.objective, params, self.dataset.test, self.dataset.recipe, mesh)
        if self._of_model is not None:
            found |= {name: float(value) for name, value in self._of_model(params).items()}
        return {metric.name: found[metric.name] for metric in self.objective.metrics}

    @functools.cached_property
    def _of_model(self) -> Any:
        of_model = self.objective.of_model
        return None if of_model is None else of_model(self.ground)

    def method_on(
        self, topology: Graphs, numbers: dict[str, Any] | None = None
    ) -> tuple[Method, optax.Schedule | None]:
        """Returns method and learning rate on a graph; `numbers` replace settings, and may be traced."""
        return self.parts.method(self.config, topology, self.batches.steps_per_epoch, numbers or {})


def method_key(root: Key, step: Any) -> Key:
    """Returns the key of one step's compression and other random choices of the method."""
    return jax.random.fold_in(jax.random.fold_in(root, _METHOD), step)


def build(config: Config) -> Replica:
    """Loads the data and makes the parts of one run."""
    return make(config, parts.of_settings(config))


def make(config: Config, shared: Parts) -> Replica:
    """Returns one run, of the parts that were made for it or for several."""
    dataset = shared.dataset.subset(config.subset, config.seed) if config.subset else shared.dataset
    partition = _partition(config, dataset)
    objective = shared.objective(_model(config, shared))
    if config.batch_size == 0 and dataset.is_streamed:  # which is done for what does not fit into memory
        raise ArgumentError(f"batch_size must be at least 1 for {dataset.name}, which is streamed, got 0")
    batches = Batches(partition, config.batch_size, config.seed, partial=objective.masked)
    replica = Replica(config, shared, dataset, partition, batches)
    _check_length(replica)
    _check_model(replica)
    _check_reach(replica)
    if brought.is_brought(config.method):
        with brought.failing_as(f"method {config.method} failed in a step"):
            method, _ = replica.method_on(replica.topology)
            jax.eval_shape(method.init, jax.eval_shape(replica.first_params))  # which traces a step
    return replica


def _check_length(replica: Replica) -> None:
    """Checks that steps can be counted: their numbers have 32 bits on devices."""
    per_epoch = replica.batches.steps_per_epoch
    if replica.steps > _MOST_STEPS:
        raise ArgumentError(
            f"epochs must be at most {_MOST_STEPS // per_epoch:,} with {per_epoch:,} steps each, of which "
            f"there can be {_MOST_STEPS:,}, got {replica.config.epochs}"
        )


def _model(config: Config, shared: Parts) -> Functions:
    """Returns the network of every agent as the settings say: how it is compiled, and how it multiplies."""
    return in_precision(shared.model(cast(Lowering, config.lowering)), cast(Precision, config.precision))


def _partition(config: Config, dataset: Dataset) -> Partition:
    """Deals a dataset out to the agents, unless that is done already."""
    if dataset.shares is not None:
        if config.partition not in ("auto", "given"):
            raise ArgumentError(
                f"partition must be auto or given for {dataset.name}, which is divided already, got "
                f"{config.partition!r}"
            )
        return given_partition(dataset.shares, config.agents, dataset.labels, dataset.size)
    kind = "dirichlet" if config.partition == "auto" else config.partition
    if kind == "given":
        raise ArgumentError(f"partition must not be given for {dataset.name}, which is not divided")
    labels = dataset.labels
    if labels is None:
        if config.partition == "auto":
            kind = "iid"
        elif kind not in _WITHOUT_CLASSES:
            raise ArgumentError(
                f"partition must be {' or '.join(_WITHOUT_CLASSES)} for {dataset.name}, whose samples have "
                f"no classes, got {kind!r}"
            )
        labels = np.zeros(dataset.size, np.int32)
    return make_partition(kind, labels, config.agents, alpha=config.alpha, seed=config.seed)


def _check_model(replica: Replica) -> None:
    """Checks, without computing anything, that the model takes the inputs and gives what is learned."""
    objective, inputs = replica.objective, replica.dataset.inputs_of_one
    with _failing(replica, f"model {replica.model.name} failed on inputs {_shapes(inputs)}"):
        params = jax.eval_shape(replica.first_model)
        outputs = jax.eval_shape(replica.model.apply, params, inputs) if objective.check else None
    if objective.check is not None:
        objective.check(outputs, replica.dataset)
    with brought.failing_as(f"the loss {objective.name} failed"):
        loss, _ = jax.eval_shape(objective.loss, params, replica.batch_shapes())
    if loss.shape != ():
        raise ArgumentError(f"the loss {objective.name} must return one number, got {list(loss.shape)}")
    with brought.failing_as(f"the metrics of {objective.name} failed"):
        jax.eval_shape(
            functools.partial(objectives.scored, objective, replica.dataset.recipe),
            params,
            replica.test_shapes(2),
        )


def _check_reach(replica: Replica) -> None:
    """Checks that a precision reaches what is computed: a loss of one's own need not ask the model for it."""
    config, model = replica.config, replica.model
    if config.precision == "float32":
        return
    asked = []

    def apply(params: Params, inputs: Any) -> Any:
        asked.append(inputs)
        return model.apply(params, inputs)

    objective = replica.parts.objective(model._replace(apply=apply))
    jax.eval_shape(objective.loss, jax.eval_shape(replica.first_model), replica.batch_shapes())
    if not asked:
        raise ArgumentError(
            f"precision must be float32 for the loss {objective.name}, which does not call the model that it "
            f"is given, got {config.precision!r}"
        )


@contextlib.contextmanager
def _failing(replica: Replica, line: str) -> Iterator[None]:
    """Tells what a model raises: of a user's own with its traceback, of ours in one line."""
    is_own = brought.is_brought(replica.config.model)
    try:
        with brought.failing_as(line):
            yield
    except brought.BroughtError as error:
        if is_own:
            raise
        raise ArgumentError(str(error)) from error


def _shapes(inputs: Any) -> str:
    leaves = [f"{leaf.dtype} {['B', *leaf.shape[1:]]}" for leaf in jax.tree.leaves(inputs)]
    return ", ".join(leaves).replace("'", "")
