"""How the gradient of one model is taken: one kind, one short file; here is the table of their names."""

from collections.abc import Callable
from typing import Any

from saddle_jax.base.tables import Table, load
from saddle_jax.core.estimator import GradientEstimator

# A new estimator is a file in this folder and a line here.
GRADIENTS: Table[Callable[..., GradientEstimator[Any]]] = load(
    {
        "plain": "saddle_jax.core.estimator:plain_gradient",
        "sam": "saddle_jax.sam.sam:sam",
        "asam": "saddle_jax.sam.asam:asam",
        "looksam": "saddle_jax.sam.looksam:looksam",
        "gsam": "saddle_jax.sam.gsam:gsam",
        "esam": "saddle_jax.sam.esam:esam",
        "lesam": "saddle_jax.sam.lesam:lesam",
    }
).and_installed("saddle_jax.sam")
