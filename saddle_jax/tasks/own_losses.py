"""A loss of your own as an objective: any function of one model and its batch, and any metrics beside it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from saddle_jax.base import brought
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, Params
from saddle_jax.tasks.objectives import Metric, Objective


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

    >>> objective = training.own_loss(lambda params, batch: jnp.mean((params["w"] - batch) ** 2), name="mean")
    >>> objective.name, [metric.name for metric in objective.metrics]
    ('mean', ['loss'])
    """
    if not callable(loss):
        raise ArgumentError(f"loss must be a function (params, batch) -> loss, got {brought.shown(loss)}")
    for metric in metrics:
        if not isinstance(metric, Metric):
            raise ArgumentError(
                f"metrics must be training.Metric(name, better, function), got {brought.shown(metric)}"
            )
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
    parameters = brought.options_of(thing).values()
    needed = [each for each in parameters if each.default is each.empty and each.kind != each.KEYWORD_ONLY]
    return len(needed) == 2


def _is_named(aux: Any) -> bool:
    return isinstance(aux, Mapping) and all(isinstance(key, str) for key in aux)
