"""How well models do: in training, in result.json at the end, and for runs that are trained already.

A new metric of trained models is a function below and a line in MEASURES. All are of one model, or of all
agents' models, on the whole test set, unless their names say otherwise.
"""

import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import registry, user_code
from saddle_jax.base.checks import ArgumentError, shown, suggestion
from saddle_jax.base.types import Array, Params
from saddle_jax.data.recipes import prepared
from saddle_jax.runs.checkpoints import tree_sha256
from saddle_jax.runs.run_folder import write_json
from saddle_jax.runs.schema import read_evaluations
from saddle_jax.settings import sweep
from saddle_jax.settings.settings import Settings
from saddle_jax.tasks import objectives
from saddle_jax.tasks.objectives import Metric
from saddle_jax.training import reopen
from saddle_jax.training.build import Trial
from saddle_jax.training.program import Program
from saddle_jax.training.reopen import choose


def score(program: Program, number: int, params: Params, every_agent: bool) -> dict[str, Any]:
    """Evaluates one run on the whole test set: the consensus model, and every agent's own if asked for."""
    trial = program.trials[number]
    # Of several processes each evaluates by itself: a model lies on one of its own devices.
    mesh = program.placement.mesh if jax.process_count() == 1 else None
    found = trial.evaluate(program.consensus(params), mesh)
    record: dict[str, Any] = {f"test_{name}": value for name, value in found.items()}
    record["consensus_distance"] = float(program.consensus_distance(params))
    if every_agent:
        name, fetch = trial.objective.headline.name, program.placement.fetch
        agents = [
            trial.evaluate(fetch(_one_agent, params, i), mesh)[name] for i in range(program.config.agents)
        ]
        record[f"agent_{name}_mean"] = float(np.mean(agents))
        record[f"agent_{name}_std"] = float(np.std(agents))
        record[f"agent_{name}_each"] = agents
    return record


def is_finite(program: Program, params: Params) -> bool:
    """Tells whether all numbers of a run's models are finite."""
    return bool(program.placement.fetch(_all_finite, params))


def params_sha256(program: Program, params: Params) -> str:
    """Returns the hash of all agents' models, idle rows apart, wherever they were computed."""
    agents = program.config.agents
    return tree_sha256(jax.tree.map(lambda x: np.asarray(x)[:agents], program.whole(params)))


def ending(status: str, last: dict[str, Any], first_bad: int, last_finite: dict[str, Any]) -> dict[str, Any]:
    """Returns what result.json says of how one run ended.

    Args:
      status: finished, diverged or interrupted, of the whole program.
      last: its last evaluation, if there is one.
      first_bad: its first step, from zero, whose loss was not finite; -1: none.
      last_finite: the last loss that was.
    """
    if first_bad < 0:
        return {"status": status, **last}
    return {"status": "diverged", **last, "diverged_at_step": first_bad + 1, "last_finite": last_finite}


def summary(config: Settings, ends: Sequence[dict[str, Any]], metrics: Sequence[Metric]) -> dict[str, Any]:
    """Joins the endings of all trials: means and spreads over those that did not diverge, then each.

    With a sweep, "settings" has the same for the seeds of each combination of numbers. What a trial that
    diverged was worth before says nothing about its end: its numbers are null.
    """
    own = sweep.settings_of(config.seeds, config.sweep)
    result = {"status": next((e["status"] for e in ends if e["status"] != "diverged"), "diverged")}
    result |= _means(ends)
    if config.sweep:
        result["swept"] = list(sweep.parse_sweep(config.sweep))
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for setting, end in zip(own, ends, strict=True):
            numbers = tuple((name, value) for name, value in setting.items() if name != "seed")
            groups.setdefault(numbers, []).append(end)
        result["settings"] = [{**dict(numbers), **_means(those)} for numbers, those in groups.items()]
    scores = [*(f"test_{metric.name}" for metric in metrics), "consensus_distance"]
    listed = [{**setting, **_nulled(end, scores)} for setting, end in zip(own, ends, strict=True)]
    return result | {"trials": listed}


def _nulled(end: dict[str, Any], scores: Sequence[str]) -> dict[str, Any]:
    if end["status"] != "diverged":
        return end
    return dict.fromkeys(scores) | {
        name: None if isinstance(value, float | list) else value for name, value in end.items()
    }


def _means(ends: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns mean and spread of every number of the evaluations, and how many trials they are not of."""
    sound = [end for end in ends if end["status"] != "diverged"]
    scores = [{name: value for name, value in end.items() if isinstance(value, float)} for end in sound]
    means = sweep.without_lists(sweep.together(scores))
    at = {name: end[name] for end in sound for name in ("evaluated_at_step",) if name in end}
    sent = {
        name: round(sum(end[name] for end in sound) / len(sound))
        for name in ("bytes_sent_per_agent", "paper_bytes_sent_per_agent")
        if sound and all(name in end for end in sound)
    }
    return {**means, **at, **sent, "diverged": len(ends) - len(sound)}


def _all_finite(tree: Any) -> Any:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


def _one_agent(params: Params, agent: int) -> Params:
    """Picks one agent's model by a sum, which moves one model; an index would move all of them."""

    def leaf(x: Any) -> Any:
        is_it = (jnp.arange(x.shape[0]) == agent).reshape(-1, *(1,) * (x.ndim - 1))
        return jnp.sum(jnp.where(is_it, x, 0), axis=0, dtype=x.dtype)

    return jax.tree.map(leaf, params)


# ---- metrics of models that are trained already ----


_BATCH = 500  # test samples in one compiled call
_BINS = 15  # of confidence, as Guo et al. (2017) have them


@dataclasses.dataclass(frozen=True, eq=False)
class Look:
    """One model of a run, and those of all its agents; what several metrics need is computed once.

    Attributes:
      trial: the run.
      params: all agents' models [A, ...].
      agent: whose model is looked at; None looks at the consensus model.
    """

    trial: Trial
    params: Params
    agent: int | None = None

    @functools.cached_property
    def model(self) -> Params:
        """The one model that is looked at."""
        return choose(self.params, self.agent)

    @functools.cached_property
    def test(self) -> dict[str, float]:
        """The objective's metrics on the test set."""
        return self.trial.evaluate(self.model)

    @functools.cached_property
    def train(self) -> dict[str, float]:
        """The objective's metrics on all training samples, as they are stored, not augmented."""
        data = self.trial.dataset
        return objectives.evaluate(self.trial.objective, self.model, data.train, data.recipe)

    @functools.cached_property
    def logits(self) -> np.ndarray:
        """What the model gives for the test samples, float [N, C]."""
        return _outputs(self.trial, self.model)

    @property
    def labels(self) -> np.ndarray:
        """The classes of the test samples, int [N]."""
        return np.asarray(self.trial.dataset.test["targets"])

    @functools.cached_property
    def hits(self) -> np.ndarray:
        """Which test samples the model gets right, bool [N]."""
        return np.asarray(np.argmax(self.logits, axis=-1) == self.labels)

    @functools.cached_property
    def each(self) -> list[dict[str, float]]:
        """The objective's metrics of every agent's own model, A of them."""
        return [self.trial.evaluate(choose(self.params, i)) for i in range(self.trial.config.agents)]


class Measure(NamedTuple):
    """How a metric is computed and written."""

    function: Callable[[Look], Any]  # -> a number, a list of numbers, or a list of lists
    percent: bool = False
    of_classes: bool = False  # whether it is of logits and classes alone
    labels: Callable[[Trial], Sequence[str]] | None = None  # what the numbers of a list are of


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
    agents = look.trial.config.agents
    if agents < 2:
        return 0.0
    taken = [np.argmax(_outputs(look.trial, choose(look.params, i)), axis=-1) for i in range(agents)]
    votes = np.zeros_like(look.logits, dtype=np.int64)
    for each in taken:
        votes[np.arange(len(each)), each] += 1
    alike = (votes * (votes - 1)).sum(axis=-1) / (agents * (agents - 1))
    return float(np.mean(1 - alike))


def worst_agent(look: Look) -> float:
    """Returns the first metric of the objective of the agent that is worst at it."""
    metric = look.trial.objective.headline
    values = [each[metric.name] for each in look.each]
    return min(values) if metric.better == "higher" else max(values)


def agents(look: Look) -> list[float]:
    """Returns the first metric of the objective of every agent's own model, [A]."""
    return [each[look.trial.objective.headline.name] for each in look.each]


def _class_names(trial: Trial) -> Sequence[str]:
    return trial.dataset.class_names


def _agent_names(trial: Trial) -> Sequence[str]:
    return [str(number) for number in range(trial.config.agents)]


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


def measures_of(trial: Trial, names: Sequence[str]) -> dict[str, Measure]:
    """Returns how the metrics are computed that a user names, for a run; see MEASURES.

    Raises:
      ArgumentError: a name is unknown, or means nothing to what this run learns.
    """
    found = {}
    for name in names:
        if registry.is_code(name):
            place = registry.parse("metrics", name).name
            found[place.rpartition(":")[2]] = Measure(_own(place))
        else:
            found[name] = _named(trial, name)
    return found


def _named(trial: Trial, name: str) -> Measure:
    objective = trial.objective
    for metric in objective.metrics:
        if name == metric.name:
            return Measure(lambda look: look.test[name], metric.percent)
        if name == f"train_{metric.name}":
            return Measure(functools.partial(_of_train, name=metric.name), metric.percent)
    if name not in MEASURES:
        own = [metric.name for metric in objective.metrics]
        known = [*own, *(f"train_{each}" for each in own), *MEASURES]
        hint = suggestion(name, known)
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
    function = user_code.load("metrics", text)
    if not callable(function):
        raise ArgumentError(f"metrics {text} must be a function or a class, got {shown(function)}")

    def score(params: Params, batch: Any) -> dict[str, Any]:
        return {"own": function(params, batch)}

    def measure(look: Look) -> float:
        own = dataclasses.replace(look.trial.objective, metrics=(), score=score, finish=dict)
        data = look.trial.dataset
        with user_code.failing_as(f"metrics {text} failed"):
            return objectives.evaluate(own, look.model, data.test, data.recipe)["own"]

    return measure


def _classes(look: Look) -> int:
    return len(look.trial.dataset.class_names)


def _outputs(trial: Trial, model: Params) -> np.ndarray:
    """Returns what a model gives for all test samples, [N, ...]."""
    data = trial.dataset
    chunks = []
    for start in range(0, data.test_size, _BATCH):
        batch = jax.tree.map(lambda leaf, start=start: np.asarray(leaf[start : start + _BATCH]), data.test)
        chunks.append(np.asarray(_applied(trial.model, data.recipe, model, batch), np.float64))
    return np.concatenate(chunks)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _applied(model: Any, recipe: Any, params: Params, batch: Any) -> Array:
    result: Array = model.apply(params, prepared(recipe, batch)["inputs"])
    return result


# ---- which models they are asked of, and evaluation.json, which keeps them ----


FILE = "evaluation.json"
_KEY = ("run", "whose", "step")  # what tells evaluations apart


def evaluate(
    workdir: pathlib.Path,
    whole: Program,
    names: Sequence[str],
    epochs: Sequence[str],
    report: Callable[[str], None],
    trial: int | None = None,
    agent: int | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Measure]]:
    """Computes metrics of a run's models, or of all runs' in a folder, and writes them to evaluation.json.

    Args:
      workdir: the folder.
      whole: its program, on one device.
      names: of the metrics, see MEASURES; none takes those of the objective.
      epochs: ["all"] or some of those with a checkpoint; none takes the newest checkpoint.
      report: is called with checkpoints that had to be passed over.
      trial: the number of one run of a folder that holds several; None takes all of them.
      agent: whose model; None takes the consensus model.

    Returns:
      One record for each model: its run, whose it is, step, epoch and metrics; and how each is measured.
    """
    first = whole.trial
    chosen = names or [metric.name for metric in first.objective.metrics]
    measures = measures_of(first, chosen)
    numbers = range(len(whole.trials)) if trial is None else [trial]
    own = sweep.settings_of(whole.config.seeds, whole.config.sweep)
    records = []
    for step, models in reopen.stages_of(workdir, whole, epochs, report):
        for number in numbers:
            look = Look(whole.trials[number], models(number), agent)
            found = {name: _plain(measure.function(look)) for name, measure in measures.items()}
            about = {"run": own[number], "whose": "consensus" if agent is None else agent, "step": step}
            epoch = step / first.batches.steps_per_epoch
            records.append({**about, "epoch": epoch, "metrics": found})
    _write(workdir, records)
    return records, measures


def _write(workdir: pathlib.Path, records: Sequence[dict[str, Any]]) -> None:
    """Adds records to those that the folder keeps; a metric that is there already is replaced."""
    kept = {_key(record): record for record in read_evaluations(workdir / FILE)}
    for record in records:
        before = kept.get(_key(record), {"metrics": {}})
        kept[_key(record)] = {**record, "metrics": {**before["metrics"], **record["metrics"]}}
    write_json(workdir / FILE, {"evaluations": list(kept.values())})


def _key(record: dict[str, Any]) -> str:
    return json.dumps([record[name] for name in _KEY], sort_keys=True)


def _plain(value: Any) -> Any:
    """Returns numbers as JSON has them: what is not finite becomes null."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if math.isfinite(value) else None
