"""Classification: the cross-entropy of one agent, and how many samples a model gets right."""

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
    """Makes the objective of a model that gives logits [B, C] for inputs with classes as targets [B]."""

    def score(params: Params, batch: Batch) -> dict[str, Array]:
        losses, hits = losses_and_hits(model.apply(params, batch["inputs"]), batch["targets"])
        return {"loss": losses, "accuracy": hits}

    return Objective("classification", (ACCURACY, LOSS), cross_entropy(model), score, check=check_logits)


def cross_entropy(model: Any) -> LossFn:
    """Returns the loss function of one agent for any model that `models.functions` takes.

    A batch has "inputs" [B, ...], "targets" [B] and "mask" [B]. The loss is the mean over the entries whose
    mask is one; so is "accuracy", which it returns as well. Targets of texts are [B, T], and the mean is over
    their places too.
    """
    apply = functions(model).apply

    def loss_fn(params: Params, batch: Batch) -> tuple[Array, dict[str, Array]]:
        losses, hits = losses_and_hits(apply(params, batch["inputs"]), batch["targets"])
        return masked_mean(losses, batch), {"accuracy": masked_mean(hits, batch)}

    return loss_fn


def losses_and_hits(logits: Array, targets: Array) -> tuple[Array, Array]:
    """Returns each sample's cross-entropy [B], and the share [B] of its targets that are the likeliest."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    hits = jnp.argmax(logits, axis=-1) == targets
    places = tuple(range(1, targets.ndim))
    return jnp.mean(losses, axis=places), jnp.mean(hits, axis=places, dtype=losses.dtype)


def check_logits(outputs: Any, dataset: Dataset) -> None:
    """Checks that what a model gives for one sample has one number for each class."""
    targets = dataset.train["targets"]
    shape, places = tuple(outputs.shape), tuple(targets.shape[1:])
    if shape[:-1] != (1, *places) or shape[-1] < dataset.num_outputs:
        letters = "".join(f", {size}" for size in (*places, dataset.num_outputs))
        got = "".join(f", {size}" for size in shape[1:])
        raise ArgumentError(f"model must give logits [B{letters}] for {dataset.name}, got [B{got}]")
