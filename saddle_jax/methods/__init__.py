"""The methods, one file each, in the notation of its paper, and the registry of their names."""

from saddle_jax.base.registry import Registry

# A new method is a file in this folder and a line here.
METHODS = Registry(
    "method",
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
        "saddle": "saddle_jax.methods.saddle:saddle",
        "slowmo": "saddle_jax.methods.slowmo:slowmo",
    },
    kinds=["saddle_jax.core.method:Method"],
    context=["topology", "learning_rate"],
    group="saddle_jax.methods",
)
# Those that take another method first: slowmo(qgm(beta=0.5), every=12).
WRAPPERS = ("saddle", "slowmo")


def base_methods() -> list[str]:
    """Lists the names of the methods that are made without another one."""
    return [name for name in METHODS if name not in WRAPPERS]


# Values of a method's option `gossip`.
GOSSIPS = Registry(
    "gossip",
    {"exact": "saddle_jax.core.gossip:exact", "choco": "saddle_jax.core.gossip:choco"},
    kinds=["saddle_jax.core.gossip:Gossip"],
)
