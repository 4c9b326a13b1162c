"""Ridge and logistic regression, with metrics that measure the distance to the known optimum.

The metrics depend on the model alone, in float64: there is no test set, because the task is optimisation.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, Params
from saddle_jax.core.trees import tree_map
from saddle_jax.data import convex
from saddle_jax.data.convex import Kind, Samples
from saddle_jax.data.dataset import Dataset
from saddle_jax.models.functions import Functions
from saddle_jax.tasks.objectives import Metric, Objective, TaskContext, masked_mean
from saddle_jax.tasks.supervised import LOSS

_METRICS = (
    Metric("distance", "lower", title="distance to optimum"),
    Metric("gap", "lower"),
    Metric("gradient_norm", "lower"),
    LOSS,
)


def ridge(model: Functions) -> Objective:
    """Makes the objective of ridge regression: half the squared error plus the dataset's penalty."""
    return _objective("ridge", model)


def logistic(model: Functions) -> Objective:
    """Makes the objective of logistic regression with targets +1 and -1 plus the dataset's penalty."""
    return _objective("logistic", model)


def _objective(kind: Kind, model: Functions) -> Objective:
    def losses(params: Params, batch: Batch) -> Array:
        products = model.apply(params, batch["inputs"]).reshape(-1)
        if kind == "ridge":
            each = 0.5 * jnp.square(products - batch["targets"])
        else:
            each = jnp.logaddexp(0.0, -batch["targets"] * products)
        squares = sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(params))
        result: Array = each + 0.5 * squares * batch["penalty"]
        return result

    def loss(params: Params, batch: Batch) -> tuple[Array, dict[str, Array]]:
        return masked_mean(losses(params, batch), batch), {}

    def check(outputs: Any, dataset: Dataset) -> None:
        inputs = dataset.inputs_of_one
        params = jax.eval_shape(lambda: model.init(jax.random.key(0), tree_map(_zeros, inputs)))
        count = sum(leaf.size for leaf in jax.tree.leaves(params))
        if count != inputs.shape[-1] or outputs.size != 1:
            raise ArgumentError(
                f"model must be linear for {dataset.name}: one number for each of {inputs.shape[-1]} "
                f"features, got {count} for {outputs.size} output{'s' if outputs.size > 1 else ''}"
            )

    return Objective(
        kind,
        _METRICS,
        loss,
        score=lambda params, batch: {"loss": losses(params, batch)},
        of_model=lambda context: _distances(kind, context),
        facts=lambda context: _constants(kind, context),
        check=check,
    )


def _zeros(shape: Any) -> Array:
    return jnp.zeros(shape.shape, shape.dtype)


def _losses(kind: Kind, context: TaskContext) -> list[convex.Loss]:
    """Returns the agents' losses, weight decay included."""
    train = context.dataset.train
    samples = Samples(
        kind, train["inputs"], train["targets"], context.partition.labels, float(train["penalty"][0])
    )
    return convex.agent_losses(samples, context.partition, context.weight_decay)


def _distances(kind: Kind, context: TaskContext) -> Any:
    """Returns a function that measures the distance of one model to the optimum."""
    losses = _losses(kind, context)
    whole, optimum = convex.whole_loss(losses), convex.solve(losses)

    def of_model(params: Params) -> dict[str, float]:
        leaves = [np.asarray(leaf, np.float64).reshape(-1) for leaf in jax.tree.leaves(params)]
        x = np.concatenate(leaves)
        return {
            "distance": float(np.linalg.norm(x - optimum.point)),
            "gap": whole.gap(x, optimum.point),
            "gradient_norm": float(np.linalg.norm(whole.gradient(x))),
            "loss": whole.value(x),
        }

    return of_model


def _constants(kind: Kind, context: TaskContext) -> dict[str, float]:
    optimum = convex.solve(_losses(kind, context))
    return {
        "L": optimum.smoothness,
        "mu": optimum.convexity,
        "kappa": optimum.condition,
        "largest_L": optimum.agent_smoothness,
        "delta": optimum.heterogeneity,
        "sigma": optimum.noise,
        "least_loss": optimum.value,
    }
