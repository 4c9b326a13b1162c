"""Gradient tracking (DIGing: Nedic, Olshevsky and Shi, SIAM J. Optim. 2017; DSGT: Pu and Nedic, 2021).

Each agent tracks the mean gradient, y <- W y + g - g', where g' is the gradient of the step before, y = g
first:

    variant "atc"       x <- W (x - eta d)                    momentum "tracked": d is a local momentum of y
            "diging"    x <- W x - eta d

    momentum "updates"  u = -eta d(g);  x <- W (x + u + c);  c <- W (c + u) - u

"updates" (Vogels et al., NeurIPS 2021) runs the momentum on the agent's own gradient and tracks the mean
update in c; it is an "atc" method. It sends two models per link and step, x and y in one message, mixed with
the same W. W is doubly stochastic, may be directed and may vary. It is exact on heterogeneous data. The mean
of y is the mean of the gradients at any learning rate, so that changes of the rate do no harm.

With a compressor both quantities are sent by CHOCO. The published compressed method is another one, BEER
(Zhao et al., NeurIPS 2022).
"""

from typing import Any, Literal, NamedTuple

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import About, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import Gossip, gossip_of
from saddle_jax.core.method import Method, printed
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import check_decay, decayed, local_momentum

ABOUT = About("Nedic et al., SIAM 2017", exact=True)


class GradientTrackingState(NamedTuple):
    """State of gradient tracking: the correction of the agent's own gradient, momentum and gossip."""

    c: Params  # W y - g of the last step, [A, ...]; of "updates", the correction c in units of a model
    m: Any  # momentum [A, ...]; None without momentum
    gossip_state: Any  # the state of the gossip of both quantities


@printed
def gradient_tracking(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    variant: Literal["atc", "diging"] = "atc", momentum: Literal["tracked", "updates"] = "tracked",
    beta: Any = 0.9, nesterov: bool = True, weight_decay: Any = 1e-4,
    gamma: Any = 1.0, compressor: Operator | None = None, gossip: Gossip[Any] | None = None,
) -> Method:  # fmt: skip
    """Makes gradient tracking. The options that are not named here are those of `sj.dpsgd`.

    Args:
      variant: "atc", which on a complete graph is centralised SGD, or "diging".
      momentum: what the momentum runs on, the "tracked" gradient or the agent's own, see the module.

    >>> method = sj.gradient_tracking(sj.complete(2), 0.1, beta=0.0, weight_decay=0.0)
    >>> x = jnp.array([0.0, 2.0])
    >>> x, state, _ = method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))
    >>> x, state.rule.c  # the mean gradient is 5
    (Array([0.5, 0.5], dtype=float32), Array([-5.,  5.], dtype=float32))
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    checks.choice("variant", variant, ("atc", "diging"))
    checks.choice("momentum", momentum, ("tracked", "updates"))
    if momentum == "updates" and variant != "atc":
        raise ArgumentError(
            "momentum must be 'tracked' for variant 'diging', got 'updates': use sj.momentum_tracking"
        )
    ball, gossip = local_momentum(beta, nesterov), gossip_of(topology, gossip, compressor, gamma).pair()

    def init(x: Params) -> GradientTrackingState:
        return GradientTrackingState(zeros_like(x), ball.init(x), gossip.init((x, x)))

    def step(s: Step, x: Params, state: GradientTrackingState) -> tuple[Params, GradientTrackingState]:
        eta, c = rate(s.t), state.c
        g = decayed(s.gradient(x), x, weight_decay)
        y = tree_map(lambda g, c: g + c, g, c)
        d, m = ball.direction(y, state.m)
        if variant == "diging":
            (mixed, y), gossip_state = gossip.mix(s, (x, y), state.gossip_state)
            new = tree_map(lambda x, d: x - eta * d, mixed, d)
        else:
            half = tree_map(lambda x, d: x - eta * d, x, d)
            (new, y), gossip_state = gossip.mix(s, (half, y), state.gossip_state)
        return new, GradientTrackingState(tree_map(lambda y, g: y - g, y, g), m, gossip_state)

    def step_of_updates(
        s: Step, x: Params, state: GradientTrackingState
    ) -> tuple[Params, GradientTrackingState]:
        g = decayed(s.gradient(x), x, weight_decay)
        d, m = ball.direction(g, state.m)
        u = tree_map(lambda d: -rate(s.t) * d, d)
        tracked = tree_map(lambda c, u: c + u, state.c, u)
        half = tree_map(lambda x, y: x + y, x, tracked)
        (new, c), gossip_state = gossip.mix(s, (half, tracked), state.gossip_state)
        return new, GradientTrackingState(tree_map(lambda c, u: c - u, c, u), m, gossip_state)

    chosen = step if momentum == "tracked" else step_of_updates
    return Method("gradient_tracking", topology, Rule(init, chosen, requires="doubly"))
