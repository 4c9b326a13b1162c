"""Objectives: the loss of one agent, and the metrics of one model on the test set.

Nothing here depends on the other agents. An objective is made for a model, see `saddle_jax.models.functions`:
by its name in OBJECTIVES, or from your own loss by `own_loss`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError, shown
from saddle_jax.base.registry import parameters_of
from saddle_jax.base.types import Array, Batch, LossFn, Params, Tree
from saddle_jax.data.dataset import Dataset
from saddle_jax.data.partition import Partition
from saddle_jax.data.recipes import Recipe, prepared
from saddle_jax.devices.placement import in_turn
from saddle_jax.models.functions import Functions
from saddle_jax.models.precision import products
from saddle_jax.tasks import OBJECTIVES

Better = Literal["higher", "lower"]
_BATCH = 500  # test samples per compiled call


@dataclasses.dataclass(frozen=True)
class Metric:
    """An evaluation metric of a model.

    Attributes:
      name: recorded as test_NAME in metrics.jsonl and result.json.
      better: "higher" or "lower".
      function: (params, batch) -> the mean over a batch, or the value of each sample [B], for a metric of
        your own; None for one that the objective computes itself.
      title: its name in tables and pictures; the default is `name`.
      percent: whether it is a fraction, which is shown in percent.

    >>> worst = lambda params, batch: jnp.max(jnp.abs(params["w"] - batch))
    >>> sj.Metric("worst", "lower", worst).name
    'worst'
    """

    name: str
    better: Better
    function: Callable[[Params, Batch], Any] | None = None
    title: str = ""
    percent: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.isidentifier()):
            raise ArgumentError(f"name of a metric must be a word such as 'top5', got {self.name!r}")
        checks.choice(f"better of metric {self.name}", self.better, ("higher", "lower"))

    def record(self) -> dict[str, Any]:
        """Returns the entry of the metric in config.json."""
        title = self.title or self.name.replace("_", " ")
        return {"name": self.name, "better": self.better, "title": title, "percent": self.percent}


class TaskContext(NamedTuple):
    """The data and weight decay of a run, on which metrics of a model alone may depend."""

    dataset: Dataset
    partition: Partition
    weight_decay: float


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """A training loss and evaluation metrics.

    Attributes:
      name: such as "classification".
      metrics: the evaluation metrics, the headline first; one of them is "loss".
      loss: (params, batch) -> (scalar, aux) of one agent. A batch is a tree of samples [B, ...], with "mask"
        [B] if the objective is `masked`: the loss is the mean over the samples whose mask is one. The values
        in aux are logged as train_NAME.
      score: (params, batch) -> means over a batch, by name; this batch has no mask.
      finish: converts the means over the test set to the metrics, such as a perplexity.
      of_model: context -> (params -> metrics by name): metrics that need no samples, such as the distance to
        a known optimum; None if there are none.
      facts: context -> constants of the task by name, for the run's heading and config.json.
      masked: whether the loss uses the mask. If not, an epoch ends with the last full batch, and the
        remaining samples are skipped.
      check: (outputs for inputs [1, ...], dataset) -> None; raises an ArgumentError if they do not fit.

    >>> samples = (np.ones((8, 2)), np.ones(8))
    >>> sj.Experiment(sj.qgm(sj.ring(2), 0.1), samples, samples).trial.data.objective
    'regression'
    """

    name: str
    metrics: tuple[Metric, ...]
    loss: LossFn
    score: Callable[[Params, Batch], Mapping[str, Any]]
    finish: Callable[[dict[str, float]], dict[str, float]] = dict
    of_model: Callable[[TaskContext], Callable[[Params], Mapping[str, Any]]] | None = None
    facts: Callable[[TaskContext], dict[str, float]] | None = None
    masked: bool = True
    check: Callable[[Any, Dataset], None] | None = None

    @property
    def headline(self) -> Metric:
        """The metric that tables show first."""
        return self.metrics[0]

    def record(self) -> dict[str, Any]:
        """Returns the entry of the objective in config.json."""
        return {"name": self.name, "metrics": [metric.record() for metric in self.metrics]}


def masked_mean(values: Array, batch: Batch) -> Array:
    """Returns the mean of values [B] over the samples whose mask is one."""
    return jnp.sum(values * batch["mask"]) / jnp.maximum(jnp.sum(batch["mask"]), 1)


def evaluate(
    objective: Objective, params: Params, samples: Tree, recipe: Recipe | None, mesh: Mesh | None = None
) -> dict[str, float]:
    """Evaluates one model on samples [n, ...]; every sample counts exactly once.

    Args:
      objective: the objective, whose metrics are returned.
      params: of one model.
      samples: as the dataset stores them.
      recipe: their preprocessing.
      mesh: devices to split batches over, if the objective scores samples independently; None: one device.
    """
    count = int(jax.tree.leaves(samples)[0].shape[0])
    score = _score(objective, recipe, mesh, params, jax.tree.map(lambda leaf: leaf[:1], samples))
    totals: dict[str, float] = {}
    for start in range(0, count, _BATCH):
        batch = jax.tree.map(lambda leaf, start=start: np.asarray(leaf[start : start + _BATCH]), samples)
        size = int(jax.tree.leaves(batch)[0].shape[0])
        for name, value in score(batch).items():
            totals[name] = totals.get(name, 0.0) + size * float(np.mean(value, dtype=np.float64))
    return objective.finish({name: total / count for name, total in totals.items()})


def _score(
    objective: Objective, recipe: Recipe | None, mesh: Mesh | None, params: Params, one: Batch
) -> Callable[[Batch], Mapping[str, Any]]:
    """Returns a function that scores a batch on one device, or split over several."""
    if mesh is None or not _scores_each(objective, recipe, params, one):
        return lambda batch: jax.device_get(scored(objective, recipe, params, batch))
    everywhere = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
    by_samples = NamedSharding(mesh, PartitionSpec(mesh.axis_names))

    def score(batch: Batch) -> Mapping[str, Any]:
        size = int(jax.tree.leaves(batch)[0].shape[0])
        filled = np.arange(-(-size // mesh.size) * mesh.size) % size  # repeats samples as padding
        parts = jax.device_put(jax.tree.map(lambda leaf: leaf[filled], batch), by_samples)
        scored = jax.device_get(in_turn(_scored_in_parts, objective, recipe, mesh, everywhere, parts))
        return {name: value[:size] for name, value in scored.items()}

    return score


def _scores_each(objective: Objective, recipe: Recipe | None, params: Params, one: Batch) -> bool:
    """Returns whether the objective scores samples independently, as arrays [B]."""
    two = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape[1:]), leaf.dtype), one)
    scores = jax.eval_shape(functools.partial(scored, objective, recipe), params, two)
    return all(score.shape == (2,) for score in scores.values())


@functools.partial(jax.jit, static_argnums=(0, 1))
def scored(objective: Objective, recipe: Recipe | None, params: Params, batch: Batch) -> dict[str, Any]:
    """Returns the scores of a stored batch [B, ...]: means, or the values of its samples [B]."""
    seen = prepared(recipe, batch)
    with products():
        own = {m.name: m.function(params, seen) for m in objective.metrics if m.function is not None}
        return {**objective.score(params, seen), **own}


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _scored_in_parts(
    objective: Objective, recipe: Recipe | None, mesh: Mesh, params: Params, batch: Batch
) -> dict[str, Any]:
    by_samples = PartitionSpec(mesh.axis_names)
    score = functools.partial(scored, objective, recipe)
    parts: dict[str, Any] = jax.shard_map(
        score, mesh=mesh, in_specs=(PartitionSpec(), by_samples), out_specs=by_samples
    )(params, batch)
    return parts


# ---- your own loss ----


def own_loss(
    loss: Callable[[Params, Batch], Any], metrics: Sequence[Metric] = (), name: str | None = None
) -> Objective:
    """Makes an objective from the loss of one agent, (params, batch) -> loss or (loss, aux).

    Args:
      loss: the mean over a batch of samples [B, ...]; batches are full, without a mask. If aux is a dict, its
        values are logged as train_NAME, and are metrics of the test set, too.
      metrics: the evaluation metrics, the headline first; a metric without a function is a value of aux.
        "loss" is added if it is not named.
      name: the objective's name; the default is that of the loss function.

    >>> objective = sj.own_loss(lambda params, batch: jnp.mean((params["w"] - batch) ** 2), name="mean")
    >>> objective.name, [metric.name for metric in objective.metrics]
    ('mean', ['loss'])
    """
    if not callable(loss):
        raise ArgumentError(f"loss must be a function (params, batch) -> loss, got {shown(loss)}")
    for metric in metrics:
        if not isinstance(metric, Metric):
            raise ArgumentError(f"metrics must be sj.Metric(name, better, function), got {shown(metric)}")
    names = [metric.name for metric in metrics]
    if len(set(names)) < len(names):
        raise ArgumentError(f"metrics must have different names, got {', '.join(names)}")
    listed = (*metrics, *(() if "loss" in names else (Metric("loss", "lower"),)))

    def both(params: Params, batch: Batch) -> tuple[Array, dict[str, Any]]:
        result = loss(params, batch)
        value, aux = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
        return value, {key: jnp.mean(number) for key, number in aux.items()} if _is_named(aux) else {}

    def score(params: Params, batch: Batch) -> dict[str, Any]:
        value, aux = both(params, batch)
        computed = {**aux, "loss": value}
        for metric in listed:
            if metric.function is None and metric.name not in computed:
                raise ArgumentError(
                    f"metric {metric.name} must have a function, or be a number of the loss's aux, got aux "
                    f"with {', '.join(aux) or 'nothing'}"
                )
        return computed

    title = str(name or getattr(loss, "__name__", type(loss).__name__))
    return Objective(title, listed, both, score, masked=False)


def is_loss(thing: Any) -> bool:
    """Returns whether a function is a loss (params, batch) rather than a factory that takes `apply`."""
    parameters = parameters_of(thing).values()
    needed = [each for each in parameters if each.default is each.empty and each.kind != each.KEYWORD_ONLY]
    return len(needed) == 2


def _is_named(aux: Any) -> bool:
    return isinstance(aux, Mapping) and all(isinstance(key, str) for key in aux)


# ---- objectives from names, losses and factories ----


@functools.lru_cache(maxsize=64)
def make(name: str, model: Functions) -> Objective:
    """Makes a named objective for a model, cached so that equal models share compiled programs."""
    made: Objective = OBJECTIVES.make(name, model=model)
    return made


def make_objective(text: str, model: Functions) -> Objective:
    """Makes the objective that a text names: a registered one, or a user's loss or factory."""
    spec = OBJECTIVES.parse(text)
    if not spec.is_code:
        return make(text, model)
    thing = OBJECTIVES.factory(spec)
    if is_loss(thing) and not spec.args and not spec.kwargs:
        return own_loss(thing)
    made = OBJECTIVES.call(spec, thing, model=model, apply=model.apply)
    return objective_of(made, model, name=spec.name.rpartition(":")[2])


def objective_of(
    thing: Any, model: Functions, metrics: Sequence[Metric] = (), name: str | None = None
) -> Objective:
    """Converts a user's objective or loss to an Objective for a model.

    Args:
      thing: the name of an objective; an Objective; a loss (params, batch); or a function that takes the
        model's `apply` and returns a loss or an Objective.
      model: the model to train.
      metrics: metrics to put before the objective's own.
      name: the name for a loss; the default is that of the function.
    """
    if callable(thing) and not isinstance(thing, Objective) and not is_loss(thing):
        thing = thing(model.apply)
    if isinstance(thing, str):
        thing = make(thing, model)
    if not isinstance(thing, Objective):
        return own_loss(thing, metrics, name)
    names, known = [metric.name for metric in metrics], [metric.name for metric in thing.metrics]
    for metric in metrics:
        if metric.function is None and metric.name not in known:
            raise ArgumentError(
                f"metric {metric.name} must have a function, or be of {thing.name}: {', '.join(known)}"
            )
    own = tuple(metric for metric in thing.metrics if metric.name not in names)
    return dataclasses.replace(thing, metrics=(*metrics, *own)) if metrics else thing
