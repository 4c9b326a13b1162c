"""The algorithms, one short file each, in the paper's words; here is the table of their names."""

from collections.abc import Callable

from saddle_jax.base import spelt, tables
from saddle_jax.core.method import Method

# A new method is a file in this folder and a line here.
METHODS: tables.Table[Callable[..., Method]] = tables.load(
    {
        "dpsgd": "saddle_jax.methods.dpsgd:dpsgd",
        "d_saddle": "saddle_jax.methods.saddle:d_saddle",
        "qgm": "saddle_jax.methods.qgm:qgm",
        "q_saddle": "saddle_jax.methods.saddle:q_saddle",
        "ngm": "saddle_jax.methods.ngm:ngm",
        "n_saddle": "saddle_jax.methods.saddle:n_saddle",
        "gradient_tracking": "saddle_jax.methods.gradient_tracking:gradient_tracking",
        "d2": "saddle_jax.methods.d2:d2",
        "gut": "saddle_jax.methods.gut:gut",
        "momentum_tracking": "saddle_jax.methods.momentum_tracking:momentum_tracking",
        "sgp": "saddle_jax.methods.sgp:sgp",
        "push_diging": "saddle_jax.methods.push_diging:push_diging",
        "decentlam": "saddle_jax.methods.decentlam:decentlam",
        "cga": "saddle_jax.methods.cga:cga",
        "relay_sgd": "saddle_jax.methods.relay_sgd:relay_sgd",
        "deep_squeeze": "saddle_jax.methods.deep_squeeze:deep_squeeze",
        "dcd": "saddle_jax.methods.dcd:dcd",
        "ecd": "saddle_jax.methods.dcd:ecd",
        "beer": "saddle_jax.methods.beer:beer",
        "motef": "saddle_jax.methods.motef:motef",
        "ada_gossip": "saddle_jax.methods.ada_gossip:ada_gossip",
        "kgt": "saddle_jax.methods.kgt:kgt",
        "dfedavgm": "saddle_jax.methods.dfedavgm:dfedavgm",
        "dfedsam": "saddle_jax.methods.dfedavgm:dfedsam",
    }
).and_installed("saddle_jax.methods")


def options_of(name: str) -> frozenset[str]:
    """Returns the names of the options that a method's factory takes; what is not ours is imported."""
    return frozenset(tables.options(spelt.factory("method", name, METHODS)))
