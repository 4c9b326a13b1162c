"""DecentLaM (Yuan et al., ICCV 2021): momentum that does not enlarge D-PSGD's bias.

    m <- beta m + (x - W (x - eta g)) / eta;    x <- x - eta m

At a constant learning rate it is x <- W (x - eta g) + beta (x - x'), where x' is the model of the step
before: heavy ball outside of W, where QGM with mu = 0 has it inside. It sends one model per link and step.
W is doubly stochastic; the theory assumes it symmetric and positive definite. It is not exact on
heterogeneous data: its bias is that of D-PSGD without momentum. With a compressor x - eta g is sent by CHOCO.
"""

from typing import Any, NamedTuple

from saddle_jax.base import checks
from saddle_jax.base.types import About, Array, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import Gossip, gossip_of
from saddle_jax.core.method import Method, printed
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import check_decay, decayed, inverse, local_momentum

ABOUT = About("Yuan et al., ICCV 2021", theory="a symmetric, positive definite W")


class DecentLaMState(NamedTuple):
    """State of DecentLaM: the momentum and the state of the gossip."""

    m: Params  # in units of a gradient [A, ...]
    gossip_state: Any  # the state of the gossip


@printed
def decentlam(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    beta: Any = 0.9, weight_decay: Any = 1e-4,
    gamma: Any = 1.0, compressor: Operator | None = None, gossip: Gossip[Any] | None = None,
) -> Method:  # fmt: skip
    """Makes DecentLaM. The options are those of `sj.dpsgd`.

    >>> method, x = sj.decentlam(sj.complete(2), 0.1, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> x, state, _ = method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))
    >>> x, state.rule.m  # the step that was taken, in units of a gradient
    (Array([0.5, 0.5], dtype=float32), Array([-5., 15.], dtype=float32))
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    beta = local_momentum(beta, nesterov=False).beta
    gossip = gossip_of(topology, gossip, compressor, gamma)

    def init(x: Params) -> DecentLaMState:
        return DecentLaMState(zeros_like(x), gossip.init(x))

    def step(s: Step, x: Params, state: DecentLaMState) -> tuple[Params, DecentLaMState]:
        eta = rate(s.t)
        per_eta = inverse(eta)  # at rate zero the step is no multiple of eta, and m only decays
        g = decayed(s.gradient(x), x, weight_decay)
        half = tree_map(lambda x, g: x - eta * g, x, g)
        mixed, gossip_state = gossip.mix(s, half, state.gossip_state)

        def remember(m: Array, x: Array, mixed: Array) -> Any:
            return beta * m + (x - mixed) * per_eta

        new = tree_map(lambda mixed, m: mixed - eta * beta * m, mixed, state.m)  # x - eta m, without division
        return new, DecentLaMState(tree_map(remember, state.m, x, mixed), gossip_state)

    return Method("decentlam", topology, Rule(init, step, requires="doubly"))
