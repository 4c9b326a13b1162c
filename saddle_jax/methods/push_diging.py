"""Push-DIGing (Nedic, Olshevsky and Shi, SIAM J. Optim. 2017): gradient tracking on directed graphs.

    x <- P (x - eta y);    w <- P w;    z = x / w;    y <- P y + g(z) - g'

x is the biased model and w the push-sum weight, one number per agent, which starts at one; z is the unbiased
model, at which gradient and weight decay are taken; y starts as the first gradient, and g' is the gradient of
the step before. P is column stochastic and may vary. It sends two models and one number per link and step, in
one message. It is exact on heterogeneous data. If P is doubly stochastic it is gradient tracking's "atc".
"""

from typing import Any, NamedTuple

from saddle_jax.base import checks
from saddle_jax.base.types import About, Array, Params, ScalarOrSchedule
from saddle_jax.core.method import Method, printed
from saddle_jax.core.network import MIXINGS, Mixing
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import scale_slices, tree_map, zeros_like
from saddle_jax.methods.momentum import check_decay, decayed
from saddle_jax.methods.sgp import initial_weights, unbiased

ABOUT = About("Nedic et al., SIAM 2017", exact=True)


class PushDIGingState(NamedTuple):
    """State of Push-DIGing: the push-sum weights and the correction of the agent's own gradient."""

    w: Array  # [A]
    c: Params  # P y - g of the last step [A, ...]


@printed
def push_diging(
    topology: Graphs, learning_rate: ScalarOrSchedule, *, weight_decay: Any = 1e-4, mixing: Mixing = "auto"
) -> Method:
    """Makes Push-DIGing. The options are those of `sj.dpsgd`; the topology is column (or doubly) stochastic.

    >>> push = sj.from_matrix([[0.5, 0.0, 0.5], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    >>> method, x = sj.push_diging(push, 0.1, weight_decay=0.0), jnp.array([0.0, 2.0, 4.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0, 0.0]))[0]
    Array([1.5, 0.5, 3. ], dtype=float32)
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    checks.choice("mixing", mixing, MIXINGS)

    def init(z: Params) -> PushDIGingState:
        return PushDIGingState(initial_weights(z), zeros_like(z))

    def step(s: Step, z: Params, state: PushDIGingState) -> tuple[Params, PushDIGingState]:
        g = decayed(s.gradient(z), z, weight_decay)
        y = tree_map(lambda g, c: g + c, g, state.c)
        half = tree_map(lambda x, y: x - rate(s.t) * y, scale_slices(z, state.w), y)
        x, w, y = s.network.mix((half, state.w, y), mixing=mixing)
        return unbiased(x, w), PushDIGingState(w, tree_map(lambda y, g: y - g, y, g))

    return Method("push_diging", topology, Rule(init, step, requires="column"))
