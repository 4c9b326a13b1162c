"""Objectives: losses, metrics and, if it is known, the optimum."""

from saddle_jax.base.registry import Registry

# A new objective is a file in this folder and a line here: a function from a model to an Objective.
OBJECTIVES = Registry(
    "objective",
    {
        "classification": "saddle_jax.tasks.supervised:classification",
        "regression": "saddle_jax.tasks.supervised:regression",
        "language": "saddle_jax.tasks.supervised:language",
        "ridge": "saddle_jax.tasks.convex:ridge",
        "logistic": "saddle_jax.tasks.convex:logistic",
    },
    context=["model", "apply"],
    group="saddle_jax.objectives",
)
