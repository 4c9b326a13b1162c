"""SGP, stochastic gradient push (Assran, Loizou, Ballas and Rabbat, ICML 2019), on directed graphs.

    x <- P (x - eta d(g(z)));    w <- P w;    z = x / w

x is the biased model and w the push-sum weight, one number per agent, which starts at one; z is the unbiased
model, at which gradient and weight decay are taken. P is column stochastic and may vary. It sends one model
and one number per link and step, in one message. It is not exact on heterogeneous data: its error is of the
order of eta. If P is doubly stochastic w stays one, and SGP is D-PSGD.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.types import About, Array, Params, ScalarOrSchedule
from saddle_jax.core.method import Method, printed
from saddle_jax.core.network import MIXINGS, Mixing
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import scale_slices, tree_map
from saddle_jax.methods.momentum import check_decay, decayed, local_momentum

ABOUT = About("Assran et al., ICML 2019")


class SGPState(NamedTuple):
    """State of SGP: the push-sum weights and the momentum."""

    w: Array  # [A]
    m: Any  # momentum [A, ...]; None without momentum


@printed
def sgp(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    beta: Any = 0.9, nesterov: bool = True, weight_decay: Any = 1e-4, mixing: Mixing = "auto",
) -> Method:  # fmt: skip
    """Makes SGP. The options are those of `sj.dpsgd`; the topology is column (or doubly) stochastic.

    >>> push = sj.from_matrix([[0.5, 0.0, 0.5], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    >>> method, x = sj.sgp(push, 0.1, beta=0.0, weight_decay=0.0), jnp.array([0.0, 2.0, 4.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0, 0.0]))[0]
    Array([1.5, 0.5, 3. ], dtype=float32)
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    momentum = local_momentum(beta, nesterov)
    checks.choice("mixing", mixing, MIXINGS)

    def init(z: Params) -> SGPState:
        return SGPState(initial_weights(z), momentum.init(z))

    def step(s: Step, z: Params, state: SGPState) -> tuple[Params, SGPState]:
        g = decayed(s.gradient(z), z, weight_decay)
        d, m = momentum.direction(g, state.m)
        half = tree_map(lambda x, d: x - rate(s.t) * d, scale_slices(z, state.w), d)
        x, w = s.network.mix((half, state.w), mixing=mixing)
        return unbiased(x, w), SGPState(w, m)

    return Method("sgp", topology, Rule(init, step, requires="column"))


def initial_weights(z: Params) -> Array:
    """Returns the initial push-sum weights w, ones [A], in float32 or wider, sharded as the models are."""
    leaves = jax.tree.leaves(z)
    dtype = jnp.promote_types(jnp.result_type(*leaves), jnp.float32)
    return jnp.ones_like(jnp.sum(leaves[0], axis=tuple(range(1, leaves[0].ndim))), dtype)


def unbiased(x: Params, w: Array) -> Params:
    """Returns z = x / w, [A, ...]; z = 0 for an idle agent of a padded graph, whose w is zero."""
    return scale_slices(x, 1 / jnp.where(w == 0, 1, w))
