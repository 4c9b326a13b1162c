"""DeepSqueeze (Tang et al., "DeepSqueeze: Decentralization Meets Error-Compensated Compression", 2019).

    h = x - eta d(g)          d(g): the gradient, or its local momentum
    v = h + e                 e: the error of compression so far, zero before the first step
    c = Q(v),   e = v - c
    x = h + gamma (W - I) c

It sends one compressed model per link and step. W is doubly stochastic. There are no copies of neighbours'
models that lost messages or changing links could make wrong. It is not exact on heterogeneous data: its bias
exceeds that of D-PSGD, since whole models are compressed; with top-k the error e holds most of the weights.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.types import About, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import check_optional_compressor, check_rate, compressed
from saddle_jax.core.method import Method, printed
from saddle_jax.core.network import MIXINGS, Mixing
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import check_decay, decayed, local_momentum

ABOUT = About("Tang et al., 2019")


class DeepSqueezeState(NamedTuple):
    """State of DeepSqueeze: the momentum and the errors of compression."""

    m: Any  # momentum [A, ...]; None without momentum
    e: Params  # the error of compression [A, ...]


@printed
def deep_squeeze(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    compressor: Operator | None = None, gamma: Any = 0.9,
    beta: Any = 0.9, nesterov: bool = True, weight_decay: Any = 1e-4, mixing: Mixing = "auto",
) -> Method:  # fmt: skip
    """Makes DeepSqueeze: models are compressed with error feedback. The options are those of `sj.dpsgd`.

    Args:
      compressor: the operator Q on models; None sends them as they are, and with gamma = 1 that is D-PSGD.
      gamma: averaging rate, a number or a function of the step, see `sj.exact`; small for few bits.

    >>> method = sj.deep_squeeze(sj.complete(2), 0.1, gamma=1.0, beta=0.0, weight_decay=0.0)
    >>> x = jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]  # (0 - 1 + 2) / 2
    Array([0.5, 0.5], dtype=float32)
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    gamma_at = check_rate(gamma, topology)
    momentum = local_momentum(beta, nesterov)
    check_optional_compressor(compressor)
    checks.choice("mixing", mixing, MIXINGS)

    def init(x: Params) -> DeepSqueezeState:
        return DeepSqueezeState(momentum.init(x), zeros_like(x))

    def step(s: Step, x: Params, state: DeepSqueezeState) -> tuple[Params, DeepSqueezeState]:
        eta, gamma_t = rate(s.t), gamma_at(s.t)
        direction, m = momentum.direction(decayed(s.gradient(x), x, weight_decay), state.m)
        h = tree_map(lambda x, d: x - eta * d, x, direction)
        v = jax.tree.map(jnp.add, h, state.e)
        c, sent = compressed(s, compressor, v)
        e = jax.tree.map(jnp.subtract, v, c)
        correction = s.network.correction(c, sent, mixing)
        return tree_map(lambda h, p: h + gamma_t * p, h, correction), DeepSqueezeState(m, e)

    return Method("deep_squeeze", topology, Rule(init, step, requires="doubly"))
