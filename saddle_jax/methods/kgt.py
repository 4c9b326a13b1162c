"""K-GT: gradient tracking with k local steps (Liu, Lin, Koloskova, Stich, 2023).

A round starts at x = y and takes k steps; c corrects each agent's gradient for what the others' data say:

    y <- y - eta (g(y) + c)                    k times
    z  = (x - y) / (k eta)                     the mean direction of the round
    c <- c - z + W z                           c_0 = 0; the agents' mean of c stays zero
    x <- W (x - k eta eta_s z)

It sends two models per link and round, 2 / k of a model per step. W is doubly stochastic. It is exact on
heterogeneous data: at a constant rate and without noise all agents reach the optimum. k = 1 is gradient
tracking, "adapt then combine". If the rate changes within a round, k eta is the sum of its rates.
"""

from typing import Any, NamedTuple

from saddle_jax.base import checks
from saddle_jax.base.types import About, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import Gossip, gossip_of
from saddle_jax.core.method import Method, printed
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import check_decay, decayed, inverse
from saddle_jax.methods.rounds import LOCAL, in_rounds

ABOUT = About("Liu et al., 2023", exact=True)


class KGTState(NamedTuple):
    """State of K-GT: the correction, the displacement in this round, and the states of its two gossips."""

    c: Params  # the correction, in units of a gradient [A, ...]
    moved: Params  # x - y, zero when a round starts [A, ...]
    x_gossip_state: Any  # the state of the models' gossip
    z_gossip_state: Any  # the state of the directions' gossip


@printed
def kgt(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    local_steps: int = 5, eta_s: Any = 1.0, weight_decay: Any = 1e-4,
    gamma: Any = 1.0, compressor: Operator | None = None, gossip: Gossip[Any] | None = None,
) -> Method:  # fmt: skip
    """Makes K-GT; with a compressor, models and directions are both sent by CHOCO.

    The options that are not named here are those of `sj.dpsgd`.

    Args:
      local_steps: k, the steps of a round; the network is used in every k-th step.
      eta_s: the outer step size, > 0, by which the displacement of a round is scaled.

    >>> method, x = sj.kgt(sj.complete(2), 0.1, local_steps=2, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> state = method.init(x)
    >>> for _ in range(2):
    ...     x, state, _ = method.step(lambda x, d: x * d, x, state, jnp.array([10.0, 0.0]))
    >>> x, state.rule.c  # (0 - 2 + 2) / 2, and half of the difference between the gradients
    (Array([0., 0.], dtype=float32), Array([-5.,  5.], dtype=float32))
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    eta_s = checks.real("eta_s", eta_s, above=0.0)
    gossip = gossip_of(topology, gossip, compressor, gamma)

    def init(x: Params) -> KGTState:
        return KGTState(zeros_like(x), zeros_like(x), gossip.init(x), gossip.init(x))

    def step(s: Step, y: Params, state: KGTState) -> tuple[Params, KGTState]:
        eta = rate(s.t)
        g = decayed(s.gradient(y), y, weight_decay)
        direction = tree_map(lambda g, c: eta * (g + c), g, state.c)
        y = tree_map(lambda y, direction: y - direction, y, direction)
        moved = tree_map(lambda moved, direction: moved + direction, state.moved, direction)
        if s.kind == LOCAL:
            return y, state._replace(moved=moved)
        per_k_eta = inverse(sum(rate(s.t - before) for before in range(local_steps)))
        z = tree_map(lambda moved: moved * per_k_eta, moved)
        mixed_z, z_gossip_state = gossip.mix(s, z, state.z_gossip_state)
        c = tree_map(lambda c, z, mixed: c - z + mixed, state.c, z, mixed_z)
        x = tree_map(lambda y, moved: y + (1 - eta_s) * moved, y, moved)  # x - k eta eta_s z
        x, x_gossip_state = gossip.mix(s, x, state.x_gossip_state)
        return x, KGTState(c, zeros_like(moved), x_gossip_state, z_gossip_state)

    return Method("kgt", topology, in_rounds(Rule(init, step, requires="doubly"), local_steps))
