"""How a run's models do, and what result.json says in the end: of one run, or of several at once."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Params
from saddle_jax.runs.checkpoints import tree_sha256
from saddle_jax.settings import sweep
from saddle_jax.settings.config import Config
from saddle_jax.tasks.objectives import Metric
from saddle_jax.training.program import Program


def score(program: Program, number: int, params: Params, every_agent: bool) -> dict[str, Any]:
    """Evaluates one run on the whole test set: the consensus model, and every agent's own if asked for."""
    replica = program.replicas[number]
    # Of several processes each evaluates by itself: a model lies on one of its own devices.
    mesh = program.placement.mesh if jax.process_count() == 1 else None
    found = replica.evaluate(program.consensus(params), mesh)
    record: dict[str, Any] = {f"test_{name}": value for name, value in found.items()}
    record["consensus_distance"] = float(program.consensus_distance(params))
    if every_agent:
        name, pull = replica.objective.headline.name, program.placement.pull
        agents = [
            replica.evaluate(pull(_one_agent, params, i), mesh)[name] for i in range(program.config.agents)
        ]
        record[f"agent_{name}_mean"] = float(np.mean(agents))
        record[f"agent_{name}_std"] = float(np.std(agents))
        record[f"agent_{name}_each"] = agents
    return record


def is_finite(program: Program, params: Params) -> bool:
    """Tells whether all numbers of a run's models are finite."""
    return bool(program.placement.pull(_all_finite, params))


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


def summary(config: Config, ends: Sequence[dict[str, Any]], metrics: Sequence[Metric]) -> dict[str, Any]:
    """Joins the endings of all replicas: means and spreads over those that did not diverge, then each.

    With a sweep, "settings" has the same for the seeds of each combination of numbers. What a replica that
    diverged was worth before says nothing about its end: its numbers are null.
    """
    own = sweep.settings_of(config.seeds, config.sweep)
    result = {"status": next((e["status"] for e in ends if e["status"] != "diverged"), "diverged")}
    result |= _means(ends)
    if config.sweep:
        result["swept"] = list(sweep.parse_sweep(config.sweep))
        groups: dict[tuple, list[dict[str, Any]]] = {}
        for setting, end in zip(own, ends, strict=True):
            numbers = tuple((name, value) for name, value in setting.items() if name != "seed")
            groups.setdefault(numbers, []).append(end)
        result["settings"] = [{**dict(numbers), **_means(those)} for numbers, those in groups.items()]
    scores = [*(f"test_{metric.name}" for metric in metrics), "consensus_distance"]
    listed = [{**setting, **_nulled(end, scores)} for setting, end in zip(own, ends, strict=True)]
    return result | {"replicas": listed}


def _nulled(end: dict[str, Any], scores: Sequence[str]) -> dict[str, Any]:
    if end["status"] != "diverged":
        return end
    return dict.fromkeys(scores) | {
        name: None if isinstance(value, float | list) else value for name, value in end.items()
    }


def _means(ends: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns mean and spread of every number of the evaluations, and how many replicas they are not of."""
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
