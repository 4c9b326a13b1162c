"""What is learned, and how well: the loss of one agent, and the metrics of a model on a whole test set.

Nothing here knows of agents. An objective is made for a model, see `saddle_jax.models.functions`: by its name
in OBJECTIVES, or of a loss of your own by `own_loss`.
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
_BATCH = 500  # test samples in one compiled call


@dataclasses.dataclass(frozen=True)
class Metric:
    """A number that tells how good a model is.

    Attributes:
      name: in metrics.jsonl and result.json it is test_NAME.
      better: "higher" or "lower".
      function: (params, batch) -> the mean over a batch, or each sample's number [B], for a metric of your
        own; None for one that the objective computes itself.
      title: what tables and pictures call it; the default is its name.
      percent: whether it is a share, which is shown in percent.

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
        """Returns what config.json says of the metric."""
        title = self.title or self.name.replace("_", " ")
        return {"name": self.name, "better": self.better, "title": title, "percent": self.percent}


class TaskContext(NamedTuple):
    """What the metrics of a model alone may depend on: one run's data, and what it adds to the loss."""

    dataset: Dataset
    partition: Partition
    weight_decay: float


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """A loss to train with and metrics to compare by.

    Attributes:
      name: such as "classification".
      metrics: the metrics of an evaluation, the one that tables show first; one of them is "loss".
      loss: (params, batch) -> (scalar, aux) of one agent. A batch is a tree of samples [B, ...], with "mask"
        [B] if the objective is `masked`: the loss is the mean over the samples whose mask is one. The numbers
        in aux are logged as train_NAME.
      score: (params, batch) -> means over a batch, by name; a batch has no mask.
      finish: turns the means over the test set into the metrics, such as a perplexity.
      of_model: context -> (params -> numbers by name): metrics that need no samples, such as the distance to
        a known optimum. None: there are none.
      facts: context -> numbers about the task, for the heading and config.json, such as known constants.
      masked: whether the loss reads the mask. If it does not, batches are whole: what is left of an epoch
        after the last whole batch is not seen in it.
      check: (what the model gives for inputs [1, ...], dataset) -> None, or an ArgumentError if it cannot be.

    >>> sj.Problem((np.ones((8, 2)), np.ones(8)), (np.ones((8, 2)), np.ones(8))).dataset.objective
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
        """Returns what config.json says of the objective."""
        return {"name": self.name, "metrics": [metric.record() for metric in self.metrics]}


def masked_mean(values: Array, batch: Batch) -> Array:
    """Returns the mean of numbers [B] over the samples whose mask is one."""
    return jnp.sum(values * batch["mask"]) / jnp.maximum(jnp.sum(batch["mask"]), 1)


def evaluate(
    objective: Objective, params: Params, samples: Tree, recipe: Recipe | None, mesh: Mesh | None = None
) -> dict[str, float]:
    """Evaluates one model on samples [n, ...] as they are stored; every sample counts exactly once.

    Args:
      objective: what is learned.
      params: one model's.
      samples: as the dataset stores them.
      recipe: how they become what the model sees.
      mesh: devices that share the samples, if the objective scores each sample by itself; None is one device.
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
    """Returns the function that scores a batch: on one device, or on several a part of the samples each."""
    if mesh is None or not _scores_each(objective, recipe, params, one):
        return lambda batch: jax.device_get(scored(objective, recipe, params, batch))
    everywhere = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
    by_samples = NamedSharding(mesh, PartitionSpec(mesh.axis_names))

    def score(batch: Batch) -> Mapping[str, Any]:
        size = int(jax.tree.leaves(batch)[0].shape[0])
        filled = np.arange(-(-size // mesh.size) * mesh.size) % size  # repeats some, which are cut off again
        parts = jax.device_put(jax.tree.map(lambda leaf: leaf[filled], batch), by_samples)
        scored = jax.device_get(in_turn(_scored_in_parts, objective, recipe, mesh, everywhere, parts))
        return {name: value[:size] for name, value in scored.items()}

    return score


def _scores_each(objective: Objective, recipe: Recipe | None, params: Params, one: Batch) -> bool:
    """Tells whether a batch's scores are numbers of its samples [B], which do not depend on the others."""
    two = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape[1:]), leaf.dtype), one)
    scores = jax.eval_shape(functools.partial(scored, objective, recipe), params, two)
    return all(score.shape == (2,) for score in scores.values())


@functools.partial(jax.jit, static_argnums=(0, 1))
def scored(objective: Objective, recipe: Recipe | None, params: Params, batch: Batch) -> dict[str, Any]:
    """Returns the scores of a batch [B, ...] as it is stored: means, or numbers of its samples [B]."""
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


# ---- a loss of your own ----


def own_loss(
    loss: Callable[[Params, Batch], Any], metrics: Sequence[Metric] = (), name: str | None = None
) -> Objective:
    """Makes an objective of (params, batch) -> loss, or -> (loss, aux), of one agent.

    Args:
      loss: the mean over a batch of samples [B, ...]; there is no mask, batches are whole. Numbers in aux, a
        dict, are logged as train_NAME, and measured on the test set too.
      metrics: the metrics of an evaluation, the one that tables show first; one without a function is a
        number of aux. "loss" is added where it is not named.
      name: what the objective is called; the default is the loss's own name.

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
    """Tells whether a function is a loss of (params, batch); one of `apply` alone makes such a loss."""
    parameters = parameters_of(thing).values()
    needed = [each for each in parameters if each.default is each.empty and each.kind != each.KEYWORD_ONLY]
    return len(needed) == 2


def _is_named(aux: Any) -> bool:
    return isinstance(aux, Mapping) and all(isinstance(key, str) for key in aux)


# ---- objectives by name, and whatever settings or a script mean by one ----


@functools.lru_cache(maxsize=64)
def make(name: str, model: Functions) -> Objective:
    """Makes a named objective for a model; the same one again for equal models, which compile once."""
    made: Objective = OBJECTIVES.make(name, model=model)
    return made


def make_objective(text: str, model: Functions) -> Objective:
    """Makes the objective that a text names: one of ours, or a user's own loss or function that makes one."""
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
    """Returns what a user means by a loss as an objective for a model.

    Args:
      thing: the name of an objective; an Objective; a loss (params, batch); or a function that makes a loss
        or an Objective of the model's `apply`.
      model: what learns.
      metrics: metrics that go before the objective's own.
      name: what a loss is called; the default is its own name.
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
