"""Image classification: the loss of one agent, and the exact evaluation of models on a whole test set."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from saddle_jax.base.types import Array, Batch, LossFn, Params
from saddle_jax.data.recipes import Recipe


def cross_entropy(model: Any) -> LossFn:
    """Returns the loss function of one agent for a model with `apply`.

    A batch has "images" [B, H, W, C], "labels" [B] and "mask" [B]. The loss is the mean over the entries
    whose mask is one; so is "accuracy", which it returns as well.
    """

    def loss_fn(params: Params, batch: Batch) -> tuple[Array, dict[str, Array]]:
        logits = model.apply({"params": params}, batch["images"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])
        hits = jnp.argmax(logits, axis=-1) == batch["labels"]
        count = jnp.maximum(jnp.sum(batch["mask"]), 1)
        return jnp.sum(losses * batch["mask"]) / count, {"accuracy": jnp.sum(hits * batch["mask"]) / count}

    return loss_fn


class Score(NamedTuple):
    """The accuracy and mean loss of a model on a whole dataset."""

    accuracy: float
    loss: float


def evaluate(
    model: Any,
    params: Params,
    images: Any,
    labels: np.ndarray,
    recipe: Recipe,
    batch_size: int = 500,
) -> Score:
    """Evaluates one model on all of `images` [N, H, W, C]; every image counts exactly once."""
    hits, loss = 0, 0.0
    for start in range(0, len(labels), batch_size):
        chunk = np.asarray(images[start : start + batch_size])
        chunk_labels = np.asarray(labels[start : start + batch_size])
        filling = batch_size - len(chunk)  # one shape for all chunks: one compilation
        chunk = np.pad(chunk, ((0, filling), (0, 0), (0, 0), (0, 0)))
        chunk_labels = np.pad(chunk_labels, (0, filling), constant_values=-1)
        chunk_hits, chunk_loss = _score_chunk(model, recipe, params, chunk, chunk_labels)
        hits += int(chunk_hits)
        loss += float(chunk_loss)
    return Score(hits / len(labels), loss / len(labels))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _score_chunk(
    model: Any, recipe: Recipe, params: Params, images: Array, labels: Array
) -> tuple[Array, Array]:
    """Returns hits and summed loss of a chunk; a label of -1 does not count."""
    logits = model.apply({"params": params}, recipe.for_evaluation(images))
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0))
    counts = labels >= 0
    return jnp.sum((jnp.argmax(logits, axis=-1) == labels) & counts), jnp.sum(losses * counts)
