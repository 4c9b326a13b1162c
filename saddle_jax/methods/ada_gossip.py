"""AdaGossip (Aketi, Hashemi, Roy, "AdaGossip: Adaptive Consensus Step-size for Decentralized Deep Learning
with Communication Compression", 2024): CHOCO-SGD whose averaging rate adapts to each coordinate.

With steps t = 1, 2, ... and all operations coordinate by coordinate:

    h     = x - eta d(g)                   d(g): the gradient, or its local momentum
    x-hat = x-hat + Q(h - x-hat)           the public copy, zero before the first step
    r     = (W - I) x-hat
    v     = beta2 v + (1 - beta2) r^2
    x     = h + min(gamma / (sqrt(v / (1 - beta2^t)) + 1e-8), 1) r

It sends one compressed difference per link and step. W is doubly stochastic and the links are fixed. Each
agent has its own rates, so the average of the models is not preserved exactly. It is not exact on
heterogeneous data.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.types import About, Array, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import check_one_copy, check_optional_compressor, publish
from saddle_jax.core.method import Method, printed
from saddle_jax.core.network import MIXINGS, Mixing
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import check_decay, decayed, local_momentum

ABOUT = About("Aketi et al., 2024", requires="fixed links")

_EPSILON = 1e-8


class AdaGossipState(NamedTuple):
    """State of AdaGossip: the momentum, the public copies and the second moment of r."""

    m: Any  # momentum [A, ...]; None without momentum
    public: Params  # x-hat [A, ...]
    v: Params  # the moving average of r^2 [A, ...]


@printed
def ada_gossip(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    compressor: Operator | None = None, gamma: Any = 1.0, beta2: Any = 0.999,
    beta: Any = 0.9, nesterov: bool = True, weight_decay: Any = 1e-4, mixing: Mixing = "auto",
) -> Method:  # fmt: skip
    """Makes AdaGossip: compressed gossip with a rate per coordinate. Other options are those of `sj.dpsgd`.

    Args:
      compressor: the operator Q on differences; None sends them as they are.
      gamma: averaging rate in (0, 1], or a function of the step; the rate of a coordinate is gamma divided by
        the root mean square of r there, at most 1.
      beta2: coefficient of the moving average of r^2, in [0, 1).

    >>> method = sj.ada_gossip(sj.complete(2), 0.1, gamma=0.5, beta=0.0, weight_decay=0.0)
    >>> x = jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([0.0, 0.0]))[0]  # r is 1 and -1
    Array([0.5, 1.5], dtype=float32)
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    gamma_at = checks.schedule(gamma, "gamma", at_most=1.0)
    momentum = local_momentum(beta, nesterov)
    beta2 = checks.real("beta2", beta2, at_least=0.0, below=1.0)
    check_optional_compressor(compressor)
    checks.choice("mixing", mixing, MIXINGS)

    def init(x: Params) -> AdaGossipState:
        return AdaGossipState(momentum.init(x), zeros_like(x), zeros_like(x))

    def step(s: Step, x: Params, state: AdaGossipState) -> tuple[Params, AdaGossipState]:
        check_one_copy(s)
        eta, gamma_t, t = rate(s.t), gamma_at(s.t), jnp.asarray(s.t + 1, float)
        corrected = -jnp.expm1(t * jnp.log1p(-(1 - beta2)))  # 1 - beta2^t, in float32 too
        direction, m = momentum.direction(decayed(s.gradient(x), x, weight_decay), state.m)
        h = tree_map(lambda x, d: x - eta * d, x, direction)
        public, sent = publish(s, compressor, h, state.public)
        r = s.network.correction(public, sent, mixing)
        v = tree_map(lambda v, r: beta2 * v + (1 - beta2) * r**2, state.v, r)

        def average(h: Array, r: Array, v: Array) -> Array:
            return h + jnp.minimum(gamma_t / (jnp.sqrt(v / corrected) + _EPSILON), 1) * r

        return tree_map(average, h, r, v), AdaGossipState(m, public, v)

    return Method("ada_gossip", topology, Rule(init, step, requires="doubly"))
