"""One run as objects: method, data, model, objective, partition and batches.

A `Trial` is made of settings by `of_settings`, or of objects by `sj.Experiment`. The trials of one program
differ in seed and swept numbers. Nothing is known here of devices or of other runs: see `program`.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from saddle_jax.base import user_code
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.registry import is_code, is_object
from saddle_jax.base.types import Array, Batch, Key, LossFn, Params, Tree
from saddle_jax.core.hyperparams import with_hyperparams
from saddle_jax.core.method import Method
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import replicate
from saddle_jax.data import Batches, Dataset, Partition, given_partition, load, make_partition, user_data
from saddle_jax.data.partition import PARTITIONS
from saddle_jax.data.recipes import Augmentation
from saddle_jax.kernels.convolution import ConvImpl
from saddle_jax.methods import METHODS
from saddle_jax.models import initialise, make_model
from saddle_jax.models.functions import Functions
from saddle_jax.models.layers import Norm
from saddle_jax.models.precision import Precision, in_precision
from saddle_jax.sam import GRADIENTS
from saddle_jax.settings import network
from saddle_jax.settings.settings import Settings, build_topology, is_whole
from saddle_jax.settings.sweep import options_among, own_option, parse_sweep, settings_of
from saddle_jax.tasks import objectives
from saddle_jax.tasks.objectives import Objective, TaskContext, make_objective

# ---- the learning rate over a run ----


_MILESTONES = {"step": (0.5, 0.75), "imagenet": (0.33, 0.67, 0.9)}  # parts of the epochs
_DECAY_AT_MILESTONES = 0.1
_DECAY_PER_EPOCH = 0.981


def build_schedule(config: Settings, steps_per_epoch: int, eta: Any) -> optax.Schedule:
    """Builds the schedule that the settings name. Like the paper's, it changes at whole epochs."""
    total = config.epochs * steps_per_epoch
    if config.schedule == "constant":
        schedule = optax.constant_schedule(eta)
    elif config.schedule == "cosine":
        schedule = optax.cosine_decay_schedule(eta, total)
    elif config.schedule == "exponential":
        schedule = optax.exponential_decay(eta, steps_per_epoch, _DECAY_PER_EPOCH, staircase=True)
    else:
        boundaries: dict[int, float] = {}
        for part in _MILESTONES[config.schedule]:
            step = int(part * config.epochs) * steps_per_epoch
            if step:  # in very short runs, milestones can fall on the start or on each other
                boundaries[step] = boundaries.get(step, 1.0) * _DECAY_AT_MILESTONES
        schedule = optax.piecewise_constant_schedule(eta, boundaries)
    warmup = config.warmup_epochs * steps_per_epoch
    if not warmup:
        return schedule
    # The rate rises to the schedule's own value, and then follows the schedule.
    return lambda step: schedule(step) * optax.linear_schedule(0.0, 1.0, warmup)(step + 1)


# ---- the method: its options, its gradient, what wraps it, and its network ----


def method_of(config: Settings, topology: Graphs, steps_per_epoch: int, numbers: Mapping[str, Any]) -> Method:
    """Returns the method of a run on a graph; `numbers`, which may be arrays, take the place of settings."""
    return build_method(config, topology, rate_of(config, steps_per_epoch, numbers), numbers)


def rate_of(config: Settings, steps_per_epoch: int, numbers: Mapping[str, Any]) -> optax.Schedule:
    """Returns the learning rate of a run; `numbers`, which may be arrays, take the place of settings."""
    return build_schedule(config, steps_per_epoch, numbers.get("learning_rate", config.learning_rate))


def build_method(
    config: Settings, topology: Graphs, schedule: optax.Schedule, numbers: Mapping[str, Any] | None = None
) -> Method:
    """Returns the method that the settings name, on a graph.

    `numbers`, which may be arrays, take the place of settings, and of options such as "method.mu".
    """
    numbers = numbers or {}
    options = functools.partial(options_among, numbers=numbers)
    spec = METHODS.with_options(METHODS.parse(config.method), options("method"))
    method: Method = METHODS.make(spec, topology=topology, learning_rate=schedule)
    if method.topology.size != topology.size:
        raise ArgumentError(
            f"method {config.method} must be on the graph that it is given, of {topology.size} agents, got "
            f"one of {method.topology.size}"
        )
    if config.gradient != "auto":
        eta = numbers.get("learning_rate", config.learning_rate)
        spec = GRADIENTS.with_options(GRADIENTS.parse(config.gradient), options("gradient"))
        method = dataclasses.replace(method, gradient=GRADIENTS.make(spec, share=lambda t: schedule(t) / eta))
    return dataclasses.replace(
        method,
        faults=network.make_faults(config.faults, config.agents, options("faults")),
        timing=network.make_timing(config.timing, config.agents, options("timing")),
    )


def options_of(method: Method) -> dict[str, Any]:
    """Returns the arguments that made a method, and those of a method that it wraps; none of your own."""
    arguments = method.arguments
    inner = arguments.get("method")
    return {**(options_of(inner) if isinstance(inner, Method) else {}), **arguments}


# ---- from settings to objects ----


def of_settings(config: Settings, data: Dataset | None = None) -> "Trial":
    """Makes the run that the settings name; its data is loaded, unless what stands in for it is given."""
    data = load(config.dataset, config.data_dir or None) if data is None else data
    if config.objective == "regression":  # of classes, too, which are then numbers
        data = dataclasses.replace(data, outputs=user_data.outputs_of(data.train))
    objective = data.objective if config.objective == "auto" else config.objective
    return Trial(
        config,
        data=_augmented(data, config),
        network_of=network_of(config.model, data, config.norm),
        objective_of=functools.cache(functools.partial(make_objective, objective)),
        topology_of=build_topology,
        method_of=method_of,
        rate_of=rate_of,
    )


def _augmented(dataset: Dataset, config: Settings) -> Dataset:
    if config.augmentation == "auto":
        return dataset
    if dataset.recipe is None:
        raise ArgumentError(
            f"augmentation must be auto for {dataset.name}, which has no images, got {config.augmentation!r}"
        )
    recipe = dataclasses.replace(dataset.recipe, augmentation=cast(Augmentation, config.augmentation))
    return dataclasses.replace(dataset, recipe=recipe)


def network_of(model: str, data: Dataset, norm: str) -> Callable[[ConvImpl], Functions]:
    """Returns the model of a name, by the way in which it is compiled; "auto" is the data's own."""
    name = data.model if model == "auto" else model
    # The same functions again and again: they are compiled once.
    return functools.cache(lambda conv_impl: make_model(name, data.num_outputs, cast(Norm, norm), conv_impl))


# What the random numbers of a run are for, beside the batches' own.
_INITIALISATION, _METHOD = 10, 11
_MOST_STEPS = 2**31 - 1
# Kinds of partitions that deal samples out without a look at their classes.
_WITHOUT_CLASSES = ("iid", "quantity_skew")


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """One run as objects; the trials of a program differ in the seed of their settings and in numbers.

    Attributes:
      config: its settings.
      data: the samples of all trials, before a subset is chosen.
      network_of: conv_impl -> the network of every agent, see `kernels.convolution`.
      objective_of: a network -> what it learns.
      topology_of: settings -> the communication graph, without idle agents.
      method_of: settings, graph, steps per epoch and swept numbers, which may be arrays -> the method.
      rate_of: settings, steps per epoch and swept numbers -> the learning rate; None where only the method
        knows it.
      numbers: the values of what is swept, by name: the method has them in its state.
    """

    config: Settings
    data: Dataset
    network_of: Callable[[ConvImpl], Functions]
    objective_of: Callable[[Functions], Objective]
    topology_of: Callable[[Settings], Graphs]
    method_of: Callable[[Settings, Graphs, int, Mapping[str, Any]], Method]
    rate_of: Callable[[Settings, int, Mapping[str, Any]], optax.Schedule | None]
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def each(self) -> "tuple[Trial, ...]":
        """Returns the runs that the settings name, one for each seed and combination of swept numbers."""
        return tuple(
            dataclasses.replace(
                self, config=config, numbers={name: own[name] for name in own if name != "seed"}
            )
            for config, own in zip(
                self.config.each(), settings_of(self.config.seeds, self.config.sweep), strict=True
            )
        )

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The samples of this run, which may be a subset."""
        return self.data.subset(self.config.subset, self.config.seed) if self.config.subset else self.data

    @functools.cached_property
    def partition(self) -> Partition:
        """Which agent has which samples."""
        return _partition(self.config, self.dataset)

    @functools.cached_property
    def batches(self) -> Batches:
        """The order in which the samples are seen."""
        config = self.config
        if config.batch_size == 0 and self.dataset.is_streamed:  # which is done for what exceeds the memory
            raise ArgumentError(
                f"batch_size must be at least 1 for {self.dataset.name}, which is streamed, got 0"
            )
        return Batches(self.partition, config.batch_size, config.seed, partial=self.objective.masked)

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
        """The communication graph, without idle agents."""
        return self.topology_of(self.config)

    @functools.cached_property
    def model(self) -> Functions:
        """The network of every agent, compiled and with products as the settings say."""
        network = self.network_of(cast(ConvImpl, self.config.conv_impl))
        return in_precision(network, cast(Precision, self.config.precision))

    @functools.cached_property
    def objective(self) -> Objective:
        """What is learned, and how well."""
        return self.objective_of(self.model)

    @property
    def context(self) -> TaskContext:
        """What the metrics of a model alone may depend on."""
        return TaskContext(self.dataset, self.partition, self.weight_decay)

    @property
    def weight_decay(self) -> float:
        """The weight decay of the method: none if it has no such option."""
        return float(options_of(self.method_on(self.topology)).get("weight_decay", 0.0))

    @property
    def loss_fn(self) -> LossFn:
        """The loss of one agent on its own batch, with numbers to log beside it."""
        return self.objective.loss

    def loss_of(self, conv_impl: ConvImpl) -> LossFn:
        """Returns the same loss in float32, compiled in another way: "plain" has derivatives of all kinds."""
        return self.objective_of(in_precision(self.network_of(conv_impl), "float32")).loss

    def batch_shapes(self) -> Batch:
        """Returns the shapes and dtypes of one agent's batch, as its loss sees it."""
        size = self.batches.size
        batch = jax.eval_shape(self.dataset.prepared, _shapes_of(size, self.dataset.train))
        if self.objective.masked:
            batch = {**batch, "mask": jax.ShapeDtypeStruct((size,), np.float32)}
        return batch

    def test_shapes(self, size: int) -> Batch:
        """Returns the shapes and dtypes of so many samples to test with, as they are stored."""
        return _shapes_of(size, self.dataset.test)

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
        return None if of_model is None else of_model(self.context)

    def method_on(self, topology: Graphs) -> Method:
        """Returns the method on a graph; swept numbers are hyperparameters of its state."""

        def make(**numbers: Any) -> Method:
            return self.method_of(self.config, topology, self.batches.steps_per_epoch, numbers)

        return with_hyperparams(make, self.numbers)

    def rate(self, numbers: Mapping[str, Any]) -> optax.Schedule | None:
        """Returns the learning rate by step; swept numbers may be arrays. None: only the method knows it."""
        return self.rate_of(self.config, self.batches.steps_per_epoch, numbers)


def _shapes_of(size: int, samples: Tree) -> Tree:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype), samples)


def method_key(root: Key, step: Any) -> Key:
    """Returns the key of one step's compression and other random choices of the method."""
    return jax.random.fold_in(jax.random.fold_in(root, _METHOD), step)


def build(config: Settings) -> Trial:
    """Loads the data and makes one run."""
    return checked(of_settings(config))


def checked(trial: Trial) -> Trial:
    """Checks, without computing anything, that the parts of a run go together."""
    _check_length(trial)
    _check_model(trial)
    _check_reach(trial)
    config = trial.config
    if not METHODS.is_ours(config.method):
        with user_code.failing_as(f"method {config.method} failed in a step"):
            method = trial.method_on(trial.topology)
            jax.eval_shape(method.init, jax.eval_shape(trial.first_params))  # which traces a step
    return trial


def _check_length(trial: Trial) -> None:
    """Checks that steps can be counted: their numbers have 32 bits on devices."""
    per_epoch = trial.batches.steps_per_epoch
    if trial.steps > _MOST_STEPS:
        raise ArgumentError(
            f"epochs must be at most {_MOST_STEPS // per_epoch:,} with {per_epoch:,} steps each, of which "
            f"there can be {_MOST_STEPS:,}, got {trial.config.epochs}"
        )


def _partition(config: Settings, dataset: Dataset) -> Partition:
    """Deals a dataset out to the agents, unless that is done already."""
    if dataset.agent_samples is not None:
        if config.partition not in ("auto", "given"):
            raise ArgumentError(
                f"partition must be auto or given for {dataset.name}, which is divided already, got "
                f"{config.partition!r}"
            )
        return given_partition(dataset.agent_samples, config.agents, dataset.labels, dataset.size)
    text = "dirichlet" if config.partition == "auto" else config.partition
    if text == "given":
        raise ArgumentError(f"partition must not be given for {dataset.name}, which is not divided")
    labels = dataset.labels
    if labels is None:
        if config.partition == "auto":
            text = "iid"
        elif (name := PARTITIONS.parse(text).name) in PARTITIONS.ours and name not in _WITHOUT_CLASSES:
            raise ArgumentError(
                f"partition must be {' or '.join(_WITHOUT_CLASSES)} for {dataset.name}, whose samples have "
                f"no classes, got {text!r}"
            )
        labels = np.zeros(dataset.size, np.int32)
    return make_partition(text, labels, config.agents, seed=config.seed)


def _check_model(trial: Trial) -> None:
    """Checks, without computing anything, that the model takes the inputs and gives what is learned."""
    objective, inputs = trial.objective, trial.dataset.inputs_of_one
    with _failing(trial, f"model {trial.model.name} failed on inputs {_shapes(inputs)}"):
        params = jax.eval_shape(trial.first_model)
        outputs = jax.eval_shape(trial.model.apply, params, inputs) if objective.check else None
    if objective.check is not None:
        objective.check(outputs, trial.dataset)
    with user_code.failing_as(f"the loss {objective.name} failed"):
        loss, _ = jax.eval_shape(objective.loss, params, trial.batch_shapes())
    if loss.shape != ():
        raise ArgumentError(f"the loss {objective.name} must return one number, got {list(loss.shape)}")
    with user_code.failing_as(f"the metrics of {objective.name} failed"):
        jax.eval_shape(
            functools.partial(objectives.scored, objective, trial.dataset.recipe),
            params,
            trial.test_shapes(2),
        )


def _check_reach(trial: Trial) -> None:
    """Checks that a precision reaches what is computed: a loss of one's own need not ask the model for it."""
    config, model = trial.config, trial.model
    if config.precision == "float32":
        return
    asked = []

    def apply(params: Params, inputs: Any) -> Any:
        asked.append(inputs)
        return model.apply(params, inputs)

    objective = trial.objective_of(model._replace(apply=apply))
    jax.eval_shape(objective.loss, jax.eval_shape(trial.first_model), trial.batch_shapes())
    if not asked:
        raise ArgumentError(
            f"precision must be float32 for the loss {objective.name}, which does not call the model that it "
            f"is given, got {config.precision!r}"
        )


@contextlib.contextmanager
def _failing(trial: Trial, line: str) -> Iterator[None]:
    """Tells what a model raises: of a user's own with its traceback, of ours in one line."""
    is_own = is_code(trial.config.model)
    try:
        with user_code.failing_as(line):
            yield
    except user_code.UserCodeError as error:
        if is_own:
            raise
        raise ArgumentError(str(error)) from error


def _shapes(inputs: Any) -> str:
    leaves = [f"{leaf.dtype} {['B', *leaf.shape[1:]]}" for leaf in jax.tree.leaves(inputs)]
    return ", ".join(leaves).replace("'", "")


# ---- which numbers one compiled step takes as arguments ----
#
# Nobody lists them: a step of a small model is traced with the number unknown. If the trace succeeds and the
# step depends on the number, runs that differ in it can share a program.


_SHAPE = (64, 64)  # of the small model: a matrix, which some compressors want, with many entries
_SAMPLES = 4  # of an agent's batch


def small_models(agents: int) -> dict[str, Any]:
    """Returns the shapes of all agents' small models, [A, ...], for traces that compute nothing."""
    return {"w": jax.ShapeDtypeStruct((agents, *_SHAPE), jnp.float32)}


def is_argument(
    config: Settings, name: str, numbers: Mapping[str, float], trial: Trial | None = None
) -> bool:
    """Returns whether a step depends on a swept number without asking what it is.

    Args:
      config: the settings of a run.
      name: of the number: a setting, or "method.NAME".
      numbers: values of all that is swept.
      trial: the run as objects; None takes the method that the settings name.

    Raises:
      ArgumentError: there is no such run, whatever the number.
    """
    make, rate = (method_of, rate_of) if trial is None else (trial.method_of, trial.rate_of)
    topology = (build_topology if trial is None else trial.topology_of)(config)
    make(config, topology, 1, numbers)  # what is wrong without a sweep is reported as ever
    arrays = {other: jnp.float32(value) for other, value in numbers.items()}

    def step(number: Array, x: Any, batch: Any, seed: Array) -> Any:
        own = {**arrays, name: number}
        method, schedule = make(config, topology, 1, own), rate(config, 1, own)
        state = method.init(x)
        taken = method.step(_loss, x, state, batch, jax.random.key(seed), diagnostics=config.diagnostics)
        return state, taken[:2], dict(taken[2]), schedule and schedule(state.t)

    number = jax.ShapeDtypeStruct((), jnp.float32)
    samples = jax.ShapeDtypeStruct((config.agents, _SAMPLES), jnp.float32)
    batch = {"inputs": samples, "mask": samples}
    seed = jax.ShapeDtypeStruct((), jnp.int32)
    try:
        traced = jax.make_jaxpr(step)(number, small_models(config.agents), batch, seed).jaxpr
    except Exception:  # whatever a method does with a number that it wants to know
        return False
    unknown = traced.invars[0]
    used = any(unknown is operand for equation in traced.eqns for operand in equation.invars)
    return used or any(unknown is result for result in traced.outvars)


def is_one_program(
    config: Settings, name: str, numbers: Mapping[str, Sequence[float]], trial: Trial | None = None
) -> bool:
    """Returns whether runs that differ in this one of the numbers that are swept can be one program."""
    if own := own_option(name):
        text = getattr(config, own[0])
        if not is_object(text) and is_whole(text, *own):
            return False
    elif Settings.__dataclass_fields__[name].type is not float:
        return False
    return is_argument(config, name, {other: values[0] for other, values in numbers.items()}, trial)


def check_one_program(trial: Trial) -> None:
    """Checks that everything which the settings sweep can be one program."""
    config = trial.config
    numbers = parse_sweep(config.sweep)
    base = dataclasses.replace(config, seeds="", sweep="") if numbers else config
    for name in numbers:
        if not is_one_program(base, name, numbers, trial):
            raise ArgumentError(
                f"sweep must name numbers on which a step of {config.method} depends and which it need not "
                f"know in advance, got {name}: runs of their own can have it, as saddle train --sweep makes"
            )


def _loss(x: Any, batch: Any) -> Array:
    return jnp.sum(batch["inputs"] * batch["mask"]) * jnp.sum(x["w"] ** 2)
