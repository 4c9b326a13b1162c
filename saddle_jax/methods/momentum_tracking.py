"""Momentum Tracking (Takezawa, Bao, Niwa, Sato and Yamada, TMLR 2023): gradient tracking of local momentum.

    u <- beta u + g;    x <- W x - eta (u - c);    c <- W (c - u) + u

It is heavy ball, and with beta = 0 it is gradient tracking's variant "diging": u - c is the tracker y. Two
models go over each link in each step, x and c - u in one message. W is doubly stochastic and may vary. It is
exact on heterogeneous data. A compressor puts CHOCO on both quantities; the published compressed method is
MoTEF.
"""

from typing import Any, NamedTuple

from saddle_jax.base import checks
from saddle_jax.base.types import Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import Order, of_both
from saddle_jax.core.method import Method
from saddle_jax.core.mixing import Form, Graphs
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import check_decay, decayed, local_momentum


class MomentumTrackingState(NamedTuple):
    """Momentum Tracking remembers the agent's momentum and by how much it differs from the mean one."""

    u: Params  # local momentum [A, ...]
    c: Params  # its correction [A, ...]
    way: Any  # the state of the gossip of both quantities


def momentum_tracking(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    beta: Any = 0.9, weight_decay: Any = 0.0,
    gamma: Any = 1.0, compressor: Operator | None = None, order: Order = "choco", form: Form = "auto",
) -> Method:  # fmt: skip
    """Makes Momentum Tracking. The options are those of `sj.dpsgd`.

    >>> method, x = sj.momentum_tracking(sj.complete(2), 0.1), jnp.array([0.0, 2.0])
    >>> x, state, _ = method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))
    >>> x, state.rule.c  # from 1, the mean model, along the agent's own gradient
    (Array([0., 1.], dtype=float32), Array([ 5., -5.], dtype=float32))
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    beta, gossip = local_momentum(beta, nesterov=False).beta, of_both(compressor, gamma, order, form)

    def init(x: Params) -> MomentumTrackingState:
        return MomentumTrackingState(zeros_like(x), zeros_like(x), gossip.init((x, x)))

    def step(s: Step, x: Params, state: MomentumTrackingState) -> tuple[Params, MomentumTrackingState]:
        g = decayed(s.gradient(x), x, weight_decay)
        u = tree_map(lambda u, g: beta * u + g, state.u, g)
        y = tree_map(lambda u, c: u - c, u, state.c)
        (mixed_x, mixed_y), way = gossip.mix(s, (x, y), state.way)
        new = tree_map(lambda x, y: x - rate(s.t) * y, mixed_x, y)
        c = tree_map(lambda u, y: u - y, u, mixed_y)
        return new, MomentumTrackingState(u, c, way)

    return Method("momentum_tracking", topology, Rule(init, step, demands="average"))
