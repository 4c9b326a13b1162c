"""Gradient estimators, one file each, and the registry of their names."""

from saddle_jax.base.registry import Registry

# A new estimator is a file in this folder and a line here.
GRADIENTS = Registry(
    "gradient",
    {
        "plain": "saddle_jax.core.gradients:plain_gradient",
        "sam": "saddle_jax.sam.sam:sam",
        "asam": "saddle_jax.sam.asam:asam",
        "looksam": "saddle_jax.sam.looksam:looksam",
        "gsam": "saddle_jax.sam.gsam:gsam",
        "esam": "saddle_jax.sam.esam:esam",
        "lesam": "saddle_jax.sam.lesam:lesam",
    },
    kinds=["saddle_jax.core.gradients:GradientEstimator"],
    context=["share"],
    group="saddle_jax.gradients",
)
