"""ECD-PSGD (Tang et al., "Communication Compression for Decentralized Training", NeurIPS 2018, Algorithm 2).

With steps t = 1, 2, ... and the estimates y-hat of everybody's model, which start at the models themselves:

    x+    = W y-hat - eta d(g(x))          d(g): the gradient, or its local momentum
    z     = (1 - t/2) x + (t/2) x+         extrapolated, so that the noise of Q averages out
    y-hat = (1 - 2/t) y-hat + (2/t) Q(z)

It sends one compressed extrapolation per link and step. W keeps the average, and links must stay. z grows
with t: Q must be unbiased, such as a stochastic quantizer; with top-k it drifts away. It is not
exact on heterogeneous data (the bias of D-PSGD).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.about import About
from saddle_jax.base.types import Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import check_one_copy, check_optional_compressor, compressed
from saddle_jax.core.method import Method
from saddle_jax.core.mixing import MIXINGS, Graphs, Mixing
from saddle_jax.core.printed import printed
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.trees import tree_map
from saddle_jax.methods.momentum import check_decay, decayed, local_momentum

ABOUT = About("Tang et al., NeurIPS 2018", requires="fixed links")


class ECDState(NamedTuple):
    """ECD-PSGD remembers its momentum and the estimates that neighbours hold."""

    m: Any  # momentum [A, ...]; None without momentum
    y_hat: Params  # the estimate of each agent's model [A, ...]


@printed
def ecd(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    compressor: Operator | None = None,
    beta: Any = 0.0, nesterov: bool = True, weight_decay: Any = 0.0, mixing: Mixing = "auto",
) -> Method:  # fmt: skip
    """Makes ECD-PSGD: extrapolated models are compressed. The options are those of `sj.dpsgd`.

    Args:
      compressor: an unbiased operator Q on extrapolations; None sends them as they are: x becomes
        W x - eta d(g).

    >>> method, x = sj.ecd(sj.complete(2), 0.1), jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]  # (0 + 2) / 2 - 0.1 g
    Array([0., 1.], dtype=float32)
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    momentum = local_momentum(beta, nesterov)
    check_optional_compressor(compressor)
    checks.choice("mixing", mixing, MIXINGS)

    def init(x: Params) -> ECDState:
        return ECDState(momentum.init(x), jax.tree.map(jnp.copy, x))

    def step(s: Step, x: Params, state: ECDState) -> tuple[Params, ECDState]:
        check_one_copy(s)
        eta, t = rate(s.t), jnp.asarray(s.t + 1, float)
        direction, m = momentum.direction(decayed(s.gradient(x), x, weight_decay), state.m)
        # The estimates are known: what travels now is mixed in the next step.
        mixed = s.network.mix(state.y_hat, (), mixing)
        new = tree_map(lambda mixed, d: mixed - eta * d, mixed, direction)
        z = tree_map(lambda x, new: (1 - t / 2) * x + t / 2 * new, x, new)
        q, sent = compressed(s, compressor, z)
        s.network.record(sent)
        y_hat = tree_map(lambda y, q: (1 - 2 / t) * y + 2 / t * q, state.y_hat, q)
        return new, ECDState(m, y_hat)

    return Method("ecd", topology, Rule(init, step, requires="doubly", restartable=False))
