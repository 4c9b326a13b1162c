"""The algorithms, one short file each, in the paper's words; here is the table of their names."""

from collections.abc import Callable

from saddle_jax.base import tables
from saddle_jax.core.method import Method

# A new method is a file in this folder and a line here.
METHODS: dict[str, Callable[..., Method]] = tables.load(
    {
        "dpsgd": "saddle_jax.methods.dpsgd:dpsgd",
        "d_saddle": "saddle_jax.methods.saddle:d_saddle",
        "qgm": "saddle_jax.methods.qgm:qgm",
        "q_saddle": "saddle_jax.methods.saddle:q_saddle",
        "ngm": "saddle_jax.methods.ngm:ngm",
        "n_saddle": "saddle_jax.methods.saddle:n_saddle",
        "kgt": "saddle_jax.methods.kgt:kgt",
        "dfedavgm": "saddle_jax.methods.dfedavgm:dfedavgm",
        "dfedsam": "saddle_jax.methods.dfedavgm:dfedsam",
    }
)


def options_of(name: str) -> frozenset[str]:
    """Returns the names of the options that a method's factory takes."""
    return frozenset(tables.options(METHODS[name]))
