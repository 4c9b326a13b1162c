"""Language modelling: the cross-entropy of the next token at every place of a text, and its perplexity."""

import math

from saddle_jax.base.types import Array, Batch, Params
from saddle_jax.models.functions import Functions
from saddle_jax.tasks.classification import ACCURACY, LOSS, check_logits, cross_entropy, losses_and_hits
from saddle_jax.tasks.objectives import Metric, Objective


def language(model: Functions) -> Objective:
    """Makes the objective of a model that gives logits [B, T, V] for tokens [B, T] with targets [B, T].

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
