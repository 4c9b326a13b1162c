"""Supervised tasks: classification, regression and language modelling."""

import math
from typing import Any

import jax.numpy as jnp
import optax

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, LossFn, Params
from saddle_jax.data.dataset import Dataset
from saddle_jax.models.functions import Functions, functions
from saddle_jax.tasks.objectives import Metric, Objective, masked_mean

ACCURACY = Metric("accuracy", "higher", percent=True)
LOSS = Metric("loss", "lower")


def classification(model: Functions) -> Objective:
    """Makes the objective of a classifier: logits [B, C] for targets [B]."""

    def score(params: Params, batch: Batch) -> dict[str, Array]:
        losses, hits = losses_and_hits(model.apply(params, batch["inputs"]), batch["targets"])
        return {"loss": losses, "accuracy": hits}

    return Objective("classification", (ACCURACY, LOSS), cross_entropy(model), score, check=check_logits)


def cross_entropy(model: Any) -> LossFn:
    """Returns the cross-entropy of one agent, a loss function of any model that `models.functions` takes.

    A batch has "inputs" [B, ...], "targets" [B] and "mask" [B]. The loss and the auxiliary "accuracy" are
    means over the entries whose mask is one. For texts the targets are [B, T], and the means are over
    positions, too.
    """
    apply = functions(model).apply

    def loss_fn(params: Params, batch: Batch) -> tuple[Array, dict[str, Array]]:
        losses, hits = losses_and_hits(apply(params, batch["inputs"]), batch["targets"])
        return masked_mean(losses, batch), {"accuracy": masked_mean(hits, batch)}

    return loss_fn


def losses_and_hits(logits: Array, targets: Array) -> tuple[Array, Array]:
    """Returns each sample's cross-entropy [B] and accuracy [B]."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    hits = jnp.argmax(logits, axis=-1) == targets
    places = tuple(range(1, targets.ndim))
    return jnp.mean(losses, axis=places), jnp.mean(hits, axis=places, dtype=losses.dtype)


def check_logits(outputs: Any, dataset: Dataset) -> None:
    """Checks that a model has one output per class."""
    targets = dataset.train["targets"]
    shape, places = tuple(outputs.shape), tuple(targets.shape[1:])
    if shape[:-1] != (1, *places) or shape[-1] < dataset.num_outputs:
        letters = "".join(f", {size}" for size in (*places, dataset.num_outputs))
        got = "".join(f", {size}" for size in shape[1:])
        raise ArgumentError(f"model must give logits [B{letters}] for {dataset.name}, got [B{got}]")


# ---- regression: the mean squared error, and its square root over the test set ----


def regression(model: Functions) -> Objective:
    """Makes the objective of a regression model: predictions of targets [B, ...]; [B, 1] also fits [B].

    The loss of a sample is the mean of (prediction - target)^2 over its targets.
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


# ---- language modelling: the cross-entropy of the next token, and its perplexity ----


def language(model: Functions) -> Objective:
    """Makes the objective of a language model: logits [B, T, V] for tokens [B, T] and targets [B, T].

    The loss is in nats per token, and the perplexity is exp of its mean over the test set.
    """

    def score(params: Params, batch: Batch) -> dict[str, Array]:
        losses, hits = losses_and_hits(model.apply(params, batch["inputs"]), batch["targets"])
        return {"loss": losses, "accuracy": hits}

    def finish(means: dict[str, float]) -> dict[str, float]:
        perplexity = math.exp(means["loss"]) if means["loss"] < 700 else math.inf  # exp overflows there
        return {"perplexity": perplexity, **means}

    metrics = (Metric("perplexity", "lower"), LOSS, ACCURACY)
    return Objective("language", metrics, cross_entropy(model), score, finish, check=check_logits)
