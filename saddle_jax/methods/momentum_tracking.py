"""Momentum Tracking (Takezawa, Bao, Niwa, Sato and Yamada, TMLR 2023): gradient tracking of local momentum.

    u <- beta u + g;    x <- W x - eta (u - c);    c <- W (c - u) + u

It is heavy ball, and with beta = 0 it is gradient tracking's variant "diging": u - c is the tracker y. It
sends two models per link and step, x and c - u in one message. W is doubly stochastic and may vary. It is
exact on heterogeneous data. u and c start at zero, or with init="mean" at (g - mean g) / (1 - beta), where g
are the first gradients without weight decay: the authors' choice, which takes one average over all agents.
With a compressor both quantities are sent by CHOCO; the published compressed method is MoTEF.
"""

from typing import Any, Literal, NamedTuple

from saddle_jax.base import checks
from saddle_jax.base.types import About, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import Gossip, gossip_of
from saddle_jax.core.method import Method, printed
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import check_decay, decayed, local_momentum

ABOUT = About("Takezawa et al., TMLR 2023", exact=True)

FIRST = 1  # the kind of the first step of init="mean"


class MomentumTrackingState(NamedTuple):
    """State of Momentum Tracking: the agent's momentum and its correction towards the mean momentum."""

    u: Params  # local momentum [A, ...]
    c: Params  # its correction [A, ...]
    gossip_state: Any  # the state of the gossip of both quantities


@printed
def momentum_tracking(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    beta: Any = 0.9, init: Literal["zero", "mean"] = "zero", weight_decay: Any = 1e-4,
    gamma: Any = 1.0, compressor: Operator | None = None, gossip: Gossip[Any] | None = None,
) -> Method:  # fmt: skip
    """Makes Momentum Tracking. The options that are not named here are those of `sj.dpsgd`.

    Args:
      init: how u and c start, at "zero", or with the "mean" of all agents' first gradients, see the module.

    >>> method, x = sj.momentum_tracking(sj.complete(2), 0.1, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> x, state, _ = method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))
    >>> x, state.rule.c  # from 1, the mean model, along the agent's own gradient
    (Array([0., 1.], dtype=float32), Array([ 5., -5.], dtype=float32))
    """
    checks.choice("init", init, ("zero", "mean"))
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    beta = local_momentum(beta, nesterov=False).beta
    gossip = gossip_of(topology, gossip, compressor, gamma).pair()

    def begin(x: Params) -> MomentumTrackingState:
        return MomentumTrackingState(zeros_like(x), zeros_like(x), gossip.init((x, x)))

    def step(s: Step, x: Params, state: MomentumTrackingState) -> tuple[Params, MomentumTrackingState]:
        g, u, c = s.gradient(x), state.u, state.c
        if s.kind == FIRST:
            u = c = tree_map(lambda g, mean: (g - mean) / (1 - beta), g, s.network.all_reduce(g))
        u = tree_map(lambda u, g: beta * u + g, u, decayed(g, x, weight_decay))
        y = tree_map(lambda u, c: u - c, u, c)
        (mixed_x, mixed_y), gossip_state = gossip.mix(s, (x, y), state.gossip_state)
        new = tree_map(lambda x, y: x - rate(s.t) * y, mixed_x, y)
        c = tree_map(lambda u, y: u - y, u, mixed_y)
        return new, MomentumTrackingState(u, c, gossip_state)

    first_kinds = (FIRST,) if init == "mean" else ()
    return Method(
        "momentum_tracking", topology, Rule(begin, step, requires="doubly", first_kinds=first_kinds)
    )
