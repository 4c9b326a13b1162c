"""From settings to results: what a run trains on, its program, its loop, its folder.

    from saddle_jax import training

Runs of Python objects, `training.Problem`, `training.Run` and `training.compare`, live in `saddle_jax.runs`,
which builds on this room. They are imported when they are asked for; `__init__.pyi` tells type checkers.
"""

import importlib
from typing import Any

_PLACES = {
    "Comparison": "saddle_jax.experiment",
    "Metric": "saddle_jax.tasks.objectives",
    "Objective": "saddle_jax.tasks.objectives",
    "Problem": "saddle_jax.experiment",
    "Run": "saddle_jax.experiment",
    "compare": "saddle_jax.experiment",
    "own_loss": "saddle_jax.tasks.objectives",
}
__all__ = [*_PLACES]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
