"""The objectives that have names, and objectives from whatever settings or a program name as one."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from saddle_jax.base import brought, checks, tables
from saddle_jax.base.checks import ArgumentError
from saddle_jax.models.functions import Functions
from saddle_jax.tasks.objectives import Metric, Objective
from saddle_jax.tasks.own_losses import is_loss, own_loss

# A new objective is a file in this folder and a line here: a function from a model to an Objective.
OBJECTIVES: tables.Table[Callable[[Functions], Objective]] = tables.load(
    {
        "classification": "saddle_jax.tasks.classification:classification",
        "regression": "saddle_jax.tasks.regression:regression",
        "language": "saddle_jax.tasks.language:language",
        "ridge": "saddle_jax.tasks.convex:ridge",
        "logistic": "saddle_jax.tasks.convex:logistic",
    }
).and_installed("saddle_jax.objectives")


@functools.lru_cache(maxsize=64)
def make(name: str, model: Functions) -> Objective:
    """Makes a named objective for a model; the same one again for equal models, which compile once."""
    checks.known("objective", name, OBJECTIVES)
    return OBJECTIVES[name](model)


def make_objective(text: str, model: Functions) -> Objective:
    """Makes the objective that a text names: one of the table, or a loss that is brought."""
    if not brought.is_brought(text):
        return make(text, model)
    thing = brought.factory("objective", text)
    spelt = brought.parse("objective", text)
    if is_loss(thing) and not spelt.options:
        return own_loss(thing)
    made = brought.call("objective", spelt.head, thing, spelt.options, object, model.apply)
    return objective_of(made, model, name=spelt.name)


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
