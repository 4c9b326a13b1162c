"""DFedAvgM (Sun, Li, Wang, 2021) and DFedSAM (Shi et al., ICML 2023): local steps with momentum, then gossip.

A round starts at y_0 = x and takes k heavy-ball steps, whose momentum is reset in each round:

    y_{j+1} = y_j - eta g(y_j) + beta (y_j - y_{j-1}),    y_{-1} = y_0
    x      <- W^Q y_k

DFedSAM is the same with the gradient of SAM; Q > 1 is its "multiple gossip steps" (DFedSAM-MGS). Q models are
sent per link and round, Q / k of a model per step. W is doubly stochastic. Neither is exact on heterogeneous
data: local steps move each agent towards its own minimum.

The momentum is the last displacement, as printed, so a learning rate that falls within a round does not
scale it.
"""

import dataclasses
from typing import Any, NamedTuple

from saddle_jax.base import checks
from saddle_jax.base.types import About, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import Gossip, gossip_of
from saddle_jax.core.method import Method, printed
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import check_decay, decayed
from saddle_jax.methods.rounds import LOCAL, in_rounds
from saddle_jax.sam.sam import sam

ABOUT = About("Sun et al. 2021, Shi et al. 2023")


class DFedAvgMState(NamedTuple):
    """State of DFedAvgM: the last displacement and the state of the gossip."""

    v: Params  # y_j - y_{j-1}, zero when a round starts [A, ...]
    gossip_state: Any  # the state of the gossip


@printed
def dfedavgm(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    local_steps: int = 5, beta: Any = 0.9, gossips: int = 1, weight_decay: Any = 1e-4,
    gamma: Any = 1.0, compressor: Operator | None = None, gossip: Gossip[Any] | None = None,
) -> Method:  # fmt: skip
    """Makes DFedAvgM; a compressor is used by CHOCO, not as in the paper's own quantized method.

    The options that are not named here are those of `sj.dpsgd`.

    Args:
      local_steps: k, the steps of a round; the network is used in every k-th step.
      beta: coefficient of the heavy ball in [0, 1).
      gossips: Q, the number of gossip steps at the end of a round, all on the same graph.

    >>> method = sj.dfedavgm(sj.complete(2), 0.1, local_steps=2, beta=0.5, weight_decay=0.0)
    >>> x = jnp.array([0.0, 2.0])
    >>> state = method.init(x)
    >>> for _ in range(2):
    ...     x, state, _ = method.step(lambda x, d: x * d, x, state, jnp.array([10.0, 0.0]))
    >>> x  # (0 - 1 - 1.5 + 2) / 2
    Array([-0.25, -0.25], dtype=float32)
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    beta = checks.real("beta", beta, at_least=0.0, below=1.0)
    gossips = checks.whole("gossips", gossips, at_least=1)
    gossip = gossip_of(topology, gossip, compressor, gamma)

    def init(x: Params) -> DFedAvgMState:
        return DFedAvgMState(zeros_like(x), gossip.init(x))

    def step(s: Step, y: Params, state: DFedAvgMState) -> tuple[Params, DFedAvgMState]:
        eta, gossip_state = rate(s.t), state.gossip_state
        g = decayed(s.gradient(y), y, weight_decay)
        v = tree_map(lambda v, g: beta * v - eta * g, state.v, g)
        y = tree_map(lambda y, v: y + v, y, v)
        if s.kind == LOCAL:
            return y, DFedAvgMState(v, gossip_state)
        for _ in range(gossips):
            y, gossip_state = gossip.mix(s, y, gossip_state)
        return y, DFedAvgMState(zeros_like(v), gossip_state)

    return Method("dfedavgm", topology, in_rounds(Rule(init, step, requires="doubly"), local_steps))


@printed
def dfedsam(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    local_steps: int = 5, rho: Any = 0.05, beta: Any = 0.9, gossips: int = 1, weight_decay: Any = 1e-4,
    gamma: Any = 1.0, compressor: Operator | None = None, gossip: Gossip[Any] | None = None,
) -> Method:  # fmt: skip
    """Makes DFedSAM: `sj.dfedavgm`, whose other options it takes, with the gradients of `sj.sam(rho)`.

    `sj.saddle(sj.dfedavgm(...), gradient)` is the same with another estimator.

    >>> sj.dfedsam(sj.ring(10), 0.1, gossips=4).gradient
    sam(rho=0.05)
    """
    method = dfedavgm(
        topology, learning_rate, local_steps=local_steps, beta=beta, gossips=gossips,
        weight_decay=weight_decay, gamma=gamma, compressor=compressor, gossip=gossip,
    )  # fmt: skip
    return dataclasses.replace(method, name="dfedsam", gradient=sam(rho))
