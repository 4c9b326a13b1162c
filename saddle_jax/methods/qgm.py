"""QGM (Lin et al., 2021): momentum of the displacement after gossip. Lines: SADDLe's Algorithms 1 and 2.

    m     = beta m-hat + g
    x_new = W (x - eta m)                            with Nesterov g + beta m in the place of m
    m-hat <- mu m-hat + (1 - mu) (x - x_new) / eta

It sends one model per link and step. W is doubly stochastic and may vary. It is not exact on heterogeneous
data. With k local steps m-hat is updated once per round, by the mean step of the round,

    m-hat <- mu m-hat + (1 - mu) / k sum_j d_j,    d_j = (x_j - x_{j+1}) / eta_j

where the last step of a round includes the gossip.
"""

from typing import Any, NamedTuple

from saddle_jax.base import checks
from saddle_jax.base.types import About, Array, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import Gossip, gossip_of
from saddle_jax.core.method import Method, printed
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import check_decay, decayed, inverse
from saddle_jax.methods.rounds import LOCAL, in_rounds

ABOUT = About("Lin et al., 2021")


class QGMState(NamedTuple):
    """State of QGM: the quasi-global momentum and the state of the gossip."""

    m_hat: Params  # in units of a gradient [A, ...]
    gossip_state: Any  # the state of the gossip
    total: Any = None  # the sum of d over this round's steps [A, ...]; None without local steps


def quasi_global_rule(
    gossip: Gossip[Any], learning_rate: ScalarOrSchedule,
    beta: Any, mu: Any, nesterov: bool, weight_decay: Any,
    local_steps: int = 1,
) -> Rule[QGMState]:  # fmt: skip
    """Makes the rule of QGM for any gossip of the models; the options are those of `qgm`."""
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    beta = checks.real("beta", beta, at_least=0.0, below=1.0)
    mu = checks.real("mu", beta if mu is None else mu, at_least=0.0, below=1.0)

    def init(x: Params) -> QGMState:
        return QGMState(zeros_like(x), gossip.init(x), zeros_like(x) if local_steps > 1 else None)

    def step(s: Step, x: Params, state: QGMState) -> tuple[Params, QGMState]:
        eta = rate(s.t)
        # At a learning rate of zero, where a schedule may end, m-hat only decays.
        per_eta = inverse(eta)
        g = decayed(s.gradient(x, along=state.m_hat), x, weight_decay)  # 2 (Q-SADDLe: 2 to 4)

        def descend(x: Array, g: Array, m_hat: Array) -> Any:
            m = beta * m_hat + g  # 3 (5)
            return x - eta * (g + beta * m if nesterov else m)  # 6

        half = tree_map(descend, x, g, state.m_hat)
        if s.kind == LOCAL:
            new, gossip_state = half, state.gossip_state
        else:
            new, gossip_state = gossip.mix(s, half, state.gossip_state)  # 7, 8
        if local_steps > 1:
            return new, waiting(s, x, new, per_eta, state._replace(gossip_state=gossip_state))

        def remember(m_hat: Array, x: Array, new: Array) -> Any:
            d = (x - new) * per_eta  # 9
            return mu * m_hat + (1 - mu) * d  # 10

        return new, QGMState(tree_map(remember, state.m_hat, x, new), gossip_state)

    def waiting(s: Step, x: Params, new: Params, per_eta: Any, state: QGMState) -> QGMState:
        total = tree_map(lambda total, x, new: total + (x - new) * per_eta, state.total, x, new)
        if s.kind == LOCAL:
            return state._replace(total=total)
        m_hat = tree_map(lambda m_hat, d: mu * m_hat + (1 - mu) / local_steps * d, state.m_hat, total)
        return QGMState(m_hat, state.gossip_state, zeros_like(total))

    return in_rounds(Rule(init, step, requires="doubly"), local_steps)


@printed
def qgm(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    beta: Any = 0.9, mu: Any = None, nesterov: bool = True, weight_decay: Any = 1e-4,
    local_steps: int = 1,
    gamma: Any = 1.0, compressor: Operator | None = None, gossip: Gossip[Any] | None = None,
) -> Method:  # fmt: skip
    """Makes QGM; with a compressor, Comp QGM. The options are those of `sj.dpsgd`, and `mu`.

    Args:
      mu: coefficient of the moving average m-hat in [0, 1); None means mu = beta, as in the paper.

    >>> method, x = sj.qgm(sj.complete(2), 0.1, beta=0.5, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> x, state, _ = method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))
    >>> x, state.rule.m_hat  # half of the step that was taken, in units of a gradient
    (Array([0.25, 0.25], dtype=float32), Array([-1.25,  8.75], dtype=float32))
    """
    gossip = gossip_of(topology, gossip, compressor, gamma)
    rule = quasi_global_rule(gossip, learning_rate, beta, mu, nesterov, weight_decay, local_steps)
    return Method("qgm", topology, rule)
