"""Regression: the mean squared error of one agent, and its square root over a test set."""

import math
from typing import Any

import jax.numpy as jnp

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, Params
from saddle_jax.data.dataset import Dataset
from saddle_jax.models.functions import Functions
from saddle_jax.tasks.classification import LOSS
from saddle_jax.tasks.objectives import Metric, Objective, masked_mean


def regression(model: Functions) -> Objective:
    """Makes the objective of a model that predicts targets [B, ...]; [B, 1] serves for [B] as well.

    The loss of a sample is the mean over its targets of (prediction - target)^2.
    """

    def errors(params: Params, batch: Batch) -> Array:
        targets = batch["targets"]
        difference = model.apply(params, batch["inputs"]).reshape(targets.shape) - targets
        return jnp.mean(difference**2, axis=tuple(range(1, targets.ndim)))

    def loss(params: Params, batch: Batch) -> tuple[Array, dict[str, Array]]:
        return masked_mean(errors(params, batch), batch), {}

    def finish(means: dict[str, float]) -> dict[str, float]:
        return {"rmse": math.sqrt(means["loss"]), **means}

    metrics = (Metric("rmse", "lower", title="root mean squared error"), LOSS)
    score = lambda params, batch: {"loss": errors(params, batch)}  # noqa: E731
    return Objective("regression", metrics, loss, score, finish, check=_check_predictions)


def _check_predictions(outputs: Any, dataset: Dataset) -> None:
    wanted = tuple(dataset.train["targets"].shape[1:])
    given = tuple(outputs.shape[1:])
    if given != wanted and not (wanted == () and given == (1,)):
        raise ArgumentError(
            f"model must predict targets {list(wanted)} for each sample of {dataset.name}, got {list(given)}"
        )
