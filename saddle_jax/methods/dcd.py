"""DCD-PSGD (Tang et al., "Communication Compression for Decentralized Training", NeurIPS 2018, Algorithm 1).

    x = x + Q(W x - eta d(g) - x)          d(g): the gradient, or its local momentum

Everybody knows its neighbours' models exactly: a model moves by what was sent, the compressed difference.
The published code starts these copies at the own model, which is right only where all start alike; here they
are true copies from the first step on. It sends one compressed difference per link and step. W keeps the
average, and links must stay. It is not exact on heterogeneous data (the bias of D-PSGD), and it is unstable
with strong compression: there is no averaging rate that could be lowered.
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


class DCDState(NamedTuple):
    """DCD-PSGD remembers its momentum; the copies that neighbours hold are the models themselves."""

    m: Any  # momentum [A, ...]; None without momentum


@printed
def dcd(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    compressor: Operator | None = None,
    beta: Any = 0.0, nesterov: bool = True, weight_decay: Any = 0.0, mixing: Mixing = "auto",
) -> Method:  # fmt: skip
    """Makes DCD-PSGD: differences of models are compressed. The options are those of `sj.dpsgd`.

    Args:
      compressor: the operator Q on differences; None sends them as they are: x becomes W x - eta d(g).

    >>> method, x = sj.dcd(sj.complete(2), 0.1), jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]  # (0 + 2) / 2 - 0.1 g
    Array([0., 1.], dtype=float32)
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    momentum = local_momentum(beta, nesterov)
    check_optional_compressor(compressor)
    checks.choice("mixing", mixing, MIXINGS)

    def init(x: Params) -> DCDState:
        return DCDState(momentum.init(x))

    def step(s: Step, x: Params, state: DCDState) -> tuple[Params, DCDState]:
        check_one_copy(s)
        eta = rate(s.t)
        direction, m = momentum.direction(decayed(s.gradient(x), x, weight_decay), state.m)
        # The neighbours' models are known: what travels now is mixed in the next step.
        correction = s.network.correction(x, (), mixing)
        z = tree_map(lambda p, d: p - eta * d, correction, direction)
        q, sent = compressed(s, compressor, z)
        s.network.record(sent)
        return jax.tree.map(jnp.add, x, q), DCDState(m)

    return Method("dcd", topology, Rule(init, step, requires="doubly"))
