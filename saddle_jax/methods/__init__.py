"""The algorithms, one short file each, in the paper's words; here is the table of their names."""

import inspect
from collections.abc import Callable

from saddle_jax.core.method import Method
from saddle_jax.methods.dpsgd import dpsgd
from saddle_jax.methods.ngm import ngm
from saddle_jax.methods.qgm import qgm
from saddle_jax.methods.saddle import d_saddle, n_saddle, q_saddle

# Every method of the paper by name.
METHODS: dict[str, Callable[..., Method]] = {
    "dpsgd": dpsgd,
    "d_saddle": d_saddle,
    "qgm": qgm,
    "q_saddle": q_saddle,
    "ngm": ngm,
    "n_saddle": n_saddle,
}


def options_of(name: str) -> frozenset[str]:
    """Returns the names of the options that a method's factory takes."""
    return frozenset(inspect.signature(METHODS[name]).parameters)
