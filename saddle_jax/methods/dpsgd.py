"""D-PSGD (Lian et al., NeurIPS 2017): a local step, then gossip. Algorithm 5 of the SADDLe paper.

    variant "atc"      x <- W (x - eta d)              adapt, then combine: the printed one
            "awc"      x <- W x - eta d                adapt while communicating: both start from x
            "double"   x <- W (x - eta d), m <- W m    double averaging (Yu, Jin and Yang, ICML 2019)

d is the direction of the local momentum m. It sends one model per link and step, "double" with momentum two.
W is doubly stochastic and may vary. On heterogeneous data it has a bias that grows with eta; momentum
multiplies it by 1 / (1 - beta) in "atc" and "awc".
"""

from typing import Any, Literal, NamedTuple

from saddle_jax.base import checks
from saddle_jax.base.types import About, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import Gossip, gossip_of
from saddle_jax.core.method import Method, printed
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map
from saddle_jax.methods.momentum import check_decay, decayed, local_momentum
from saddle_jax.methods.rounds import LOCAL, in_rounds

ABOUT = About("Lian et al., NeurIPS 2017")


class DPSGDState(NamedTuple):
    """State of D-PSGD: the momentum and the state of the gossip."""

    m: Any  # momentum [A, ...]; None without momentum
    gossip_state: Any  # the state of the gossip


Variant = Literal["atc", "awc", "double"]


@printed
def dpsgd(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    beta: Any = 0.9, nesterov: bool = True, weight_decay: Any = 1e-4, local_steps: int = 1,
    gamma: Any = 1.0, compressor: Operator | None = None, gossip: Gossip[Any] | None = None,
    variant: Variant = "atc",
) -> Method:  # fmt: skip
    """Makes D-PSGD; with a compressor, which the paper does not have, it is CHOCO-SGD.

    All methods have the same defaults of `beta`, `nesterov`, `weight_decay` and `rho`, those of the SADDLe
    paper's experiments: a comparison is fair if all have the same momentum, penalty and radius.

    Args:
      topology: the communication graph.
      learning_rate: eta, a number or an optax schedule.
      beta: momentum coefficient in [0, 1). The printed D-PSGD has none, 0.0; the hyper-parameters say 0.9 for
        all experiments, and the paper does not say which of the two its D-PSGD table used.
      nesterov: direction g + beta m, as the paper's hyper-parameters say; False is the printed heavy
        ball, direction m.
      weight_decay: coupled L2, taken at x_t and added to the gradient before the momentum.
      local_steps: k; the network is used in every k-th step ("gossip every k"). The momentum is not reset
        between rounds.
      gamma: averaging rate, a number or a function of the step, see `sj.exact`.
      compressor: the operator Q; None sends models as they are.
      gossip: `sj.exact(gamma)` or `sj.choco(compressor, gamma)`, which have more options than their
        shorthands `gamma` and `compressor`.
      variant: when models are averaged, "atc", "awc" or "double", see the module; without momentum "double"
        is "atc".

    >>> method, x = sj.dpsgd(sj.complete(2), 0.1, beta=0.0, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]  # (0 - 1 + 2) / 2
    Array([0.5, 0.5], dtype=float32)
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    checks.choice("variant", variant, ("atc", "awc", "double"))
    momentum = local_momentum(beta, nesterov)
    averages_m = variant == "double" and not momentum.is_none
    gossip = gossip_of(topology, gossip, compressor, gamma)
    gossip = gossip.pair() if averages_m else gossip

    def init(x: Params) -> DPSGDState:
        m = momentum.init(x)
        return DPSGDState(m, gossip.init((x, m) if averages_m else x))

    def step(s: Step, x: Params, state: DPSGDState) -> tuple[Params, DPSGDState]:
        eta = rate(s.t)
        g = decayed(s.gradient(x), x, weight_decay)  # 3
        direction, m = momentum.direction(g, state.m)  # not printed

        def descend(x: Params) -> Params:
            return tree_map(lambda x, d: x - eta * d, x, direction)  # 5, 6

        if s.kind == LOCAL:
            return descend(x), DPSGDState(m, state.gossip_state)
        if variant == "awc":
            mixed, gossip_state = gossip.mix(s, x, state.gossip_state)
            return descend(mixed), DPSGDState(m, gossip_state)
        if averages_m:
            (new, m), gossip_state = gossip.mix(s, (descend(x), m), state.gossip_state)
        else:
            new, gossip_state = gossip.mix(s, descend(x), state.gossip_state)  # 7, 8
        return new, DPSGDState(m, gossip_state)

    return Method("dpsgd", topology, in_rounds(Rule(init, step, requires="doubly"), local_steps))
