"""Metrics of models that are trained already: those of the objective, and more, which training does without.

A new one is a function below and a line in MEASURES. All are of one model, or of all agents' models, on the
whole test set, unless their names say otherwise.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from saddle_jax.base import brought
from saddle_jax.base.checks import ArgumentError, did_you_mean
from saddle_jax.base.types import Array, Params
from saddle_jax.data.recipes import prepared
from saddle_jax.tasks import objectives
from saddle_jax.training.build import Replica
from saddle_jax.training.reopen import choose

_BATCH = 500  # test samples in one compiled call
_BINS = 15  # of confidence, as Guo et al. (2017) have them


@dataclasses.dataclass(frozen=True, eq=False)
class Look:
    """One model of a run, and those of all its agents; what several metrics need is computed once.

    Attributes:
      replica: the run.
      params: all agents' models [A, ...].
      agent: whose model is looked at; None looks at the consensus model.
    """

    replica: Replica
    params: Params
    agent: int | None = None

    @functools.cached_property
    def model(self) -> Params:
        """The one model that is looked at."""
        return choose(self.params, self.agent)

    @functools.cached_property
    def test(self) -> dict[str, float]:
        """The objective's metrics on the test set."""
        return self.replica.evaluate(self.model)

    @functools.cached_property
    def train(self) -> dict[str, float]:
        """The objective's metrics on all training samples, as they are stored, not augmented."""
        data = self.replica.dataset
        return objectives.evaluate(self.replica.objective, self.model, data.train, data.recipe)

    @functools.cached_property
    def logits(self) -> np.ndarray:
        """What the model gives for the test samples, float [N, C]."""
        return _outputs(self.replica, self.model)

    @property
    def labels(self) -> np.ndarray:
        """The classes of the test samples, int [N]."""
        return np.asarray(self.replica.dataset.test["targets"])

    @functools.cached_property
    def hits(self) -> np.ndarray:
        """Which test samples the model gets right, bool [N]."""
        return np.asarray(np.argmax(self.logits, axis=-1) == self.labels)

    @functools.cached_property
    def each(self) -> list[dict[str, float]]:
        """The objective's metrics of every agent's own model, A of them."""
        return [self.replica.evaluate(choose(self.params, i)) for i in range(self.replica.config.agents)]


class Measure(NamedTuple):
    """How a metric is computed and written."""

    function: Callable[[Look], Any]  # -> a number, a list of numbers, or a list of lists
    percent: bool = False
    of_classes: bool = False  # whether it is of logits and classes alone
    labels: Callable[[Replica], Sequence[str]] | None = None  # what the numbers of a list are of


def top5(look: Look) -> float:
    """Returns the share of samples whose class is among the five likeliest."""
    own = np.take_along_axis(look.logits, look.labels[:, None], axis=-1)
    return float(np.mean(np.sum(look.logits > own, axis=-1) < 5))


def class_accuracy(look: Look) -> list[float]:
    """Returns the accuracy on the samples of each class [C]; NaN where the test set has none."""
    members = np.bincount(look.labels, minlength=_classes(look))
    right = np.bincount(look.labels[look.hits], minlength=_classes(look))
    return [float(hits / size) if size else float("nan") for hits, size in zip(right, members, strict=True)]


def confusion(look: Look) -> list[list[int]]:
    """Returns how many samples of each class (rows) the model takes for which one (columns), [C, C]."""
    size = max(_classes(look), look.logits.shape[-1])
    pairs = look.labels * size + np.argmax(look.logits, axis=-1)
    table: list[list[int]] = np.bincount(pairs, minlength=size * size).reshape(size, size).tolist()
    return table


def expected_calibration_error(look: Look) -> float:
    """Returns how far confidence is from accuracy: the mean over 15 equal bins, weighted by their samples."""
    shifted = np.exp(look.logits - look.logits.max(axis=-1, keepdims=True))
    confidence = (shifted / shifted.sum(axis=-1, keepdims=True)).max(axis=-1)
    bins = np.clip(np.ceil(confidence * _BINS).astype(int) - 1, 0, _BINS - 1)
    gaps = np.bincount(bins, weights=look.hits - confidence, minlength=_BINS)
    return float(np.abs(gaps).sum() / len(bins))


def disagreement(look: Look) -> float:
    """Returns the share of samples that two agents take for different classes: the mean over all pairs."""
    agents = look.replica.config.agents
    if agents < 2:
        return 0.0
    taken = [np.argmax(_outputs(look.replica, choose(look.params, i)), axis=-1) for i in range(agents)]
    votes = np.zeros_like(look.logits, dtype=np.int64)
    for each in taken:
        votes[np.arange(len(each)), each] += 1
    alike = (votes * (votes - 1)).sum(axis=-1) / (agents * (agents - 1))
    return float(np.mean(1 - alike))


def worst_agent(look: Look) -> float:
    """Returns the first metric of the objective of the agent that is worst at it."""
    metric = look.replica.objective.headline
    values = [each[metric.name] for each in look.each]
    return min(values) if metric.better == "higher" else max(values)


def agents(look: Look) -> list[float]:
    """Returns the first metric of the objective of every agent's own model, [A]."""
    return [each[look.replica.objective.headline.name] for each in look.each]


def _class_names(replica: Replica) -> Sequence[str]:
    return replica.dataset.class_names


def _agent_names(replica: Replica) -> Sequence[str]:
    return [str(number) for number in range(replica.config.agents)]


# Beside them: the objective's own metrics, NAME and train_NAME, and FILE.py:NAME.
MEASURES = {
    "generalisation_gap": Measure(lambda look: look.test["loss"] - look.train["loss"]),
    "agents": Measure(agents, labels=_agent_names),
    "worst_agent": Measure(worst_agent),
    "top5": Measure(top5, True, True),
    "class_accuracy": Measure(class_accuracy, True, True, _class_names),
    "worst_class": Measure(lambda look: float(np.nanmin(class_accuracy(look))), True, True),
    "confusion": Measure(confusion, False, True, _class_names),
    "expected_calibration_error": Measure(expected_calibration_error, True, True),
    "disagreement": Measure(disagreement, True, True),
}


def measures_of(replica: Replica, names: Sequence[str]) -> dict[str, Measure]:
    """Returns how the metrics are computed that a user names, for a run; see MEASURES.

    Raises:
      ArgumentError: a name is unknown, or means nothing to what this run learns.
    """
    found = {}
    for name in names:
        if brought.is_brought(name):
            spelt = brought.parse("metrics", name)
            found[spelt.name] = Measure(_own(name))
        else:
            found[name] = _named(replica, name)
    return found


def _named(replica: Replica, name: str) -> Measure:
    objective = replica.objective
    for metric in objective.metrics:
        if name == metric.name:
            return Measure(lambda look: look.test[name], metric.percent)
        if name == f"train_{metric.name}":
            return Measure(functools.partial(_of_train, name=metric.name), metric.percent)
    if name not in MEASURES:
        own = [metric.name for metric in objective.metrics]
        known = [*own, *(f"train_{each}" for each in own), *MEASURES]
        hint = did_you_mean(name, known)
        raise ArgumentError(f"{hint}metrics must be of {', '.join(known)}, or FILE.py:NAME, got {name!r}")
    measure = MEASURES[name]
    if measure.of_classes and objective.name != "classification":
        raise ArgumentError(f"metrics: {name} is of classification, and this run learns {objective.name}")
    if name in ("agents", "worst_agent"):
        return measure._replace(percent=objective.headline.percent)
    return measure


def _of_train(look: Look, name: str) -> float:
    if name not in look.train:
        raise ArgumentError(f"metrics: train_{name} must be of samples, and {name} is of a model alone")
    return look.train[name]


def _own(text: str) -> Callable[[Look], float]:
    """Returns the mean over the test set of a user's (params, batch) -> number, or numbers [B]."""
    function = brought.factory("metrics", text)

    def score(params: Params, batch: Any) -> dict[str, Any]:
        return {"own": function(params, batch)}

    def measure(look: Look) -> float:
        own = dataclasses.replace(look.replica.objective, metrics=(), score=score, finish=dict)
        data = look.replica.dataset
        with brought.failing_as(f"metrics {text} failed"):
            return objectives.evaluate(own, look.model, data.test, data.recipe)["own"]

    return measure


def _classes(look: Look) -> int:
    return len(look.replica.dataset.class_names)


def _outputs(replica: Replica, model: Params) -> np.ndarray:
    """Returns what a model gives for all test samples, [N, ...]."""
    data = replica.dataset
    chunks = []
    for start in range(0, data.test_size, _BATCH):
        batch = jax.tree.map(lambda leaf, start=start: np.asarray(leaf[start : start + _BATCH]), data.test)
        chunks.append(np.asarray(_applied(replica.model, data.recipe, model, batch), np.float64))
    return np.concatenate(chunks)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _applied(model: Any, recipe: Any, params: Params, batch: Any) -> Array:
    return model.apply(params, prepared(recipe, batch)["inputs"])
