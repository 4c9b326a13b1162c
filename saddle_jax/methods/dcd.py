"""DCD-PSGD and ECD-PSGD (Tang et al., "Communication Compression for Decentralized Training", NeurIPS 2018,
Algorithms 1 and 2). Neighbours hold copies; what is sent now is mixed in the next step.

    DCD   x     = x + Q(W x - eta d(g) - x)          d(g): the gradient, or its local momentum

    ECD   x+    = W y-hat - eta d(g(x))
          z     = (1 - t/2) x + (t/2) x+             extrapolated, so that the noise of Q averages out
          y-hat = (1 - 2/t) y-hat + (2/t) Q(z)       in steps t = 1, 2, ...; y-hat = x before the first

In DCD the copies equal the models: a model moves by what was sent, the compressed difference. The published
code initializes a copy with the agent's own model, which is right only if all start from the same one; here
copies are exact from the first step on. DCD is unstable with strong compression: there is no averaging rate
that could be lowered. ECD's z grows with t, so Q must be unbiased, such as a stochastic quantizer; with top-k
it diverges.

They send one compressed model per link and step. W is doubly stochastic and the links are fixed. Neither is
exact on heterogeneous data (the bias of D-PSGD).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.types import About, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import check_one_copy, check_optional_compressor, compressed
from saddle_jax.core.method import Method, printed
from saddle_jax.core.network import MIXINGS, Mixing
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map
from saddle_jax.methods.momentum import check_decay, decayed, local_momentum

ABOUT = About("Tang et al., NeurIPS 2018", requires="fixed links")


# (step, x, state, eta d) -> what is sent, and what its Q makes of models and state.
Receive: TypeAlias = Callable[[Params], tuple[Params, Any]]
Exchange: TypeAlias = Callable[[Step, Params, Any, Params], tuple[Params, Receive]]


class DCDState(NamedTuple):
    """State of DCD-PSGD: the momentum; the copies that neighbours hold are the models themselves."""

    m: Any  # momentum [A, ...]; None without momentum


class ECDState(NamedTuple):
    """State of ECD-PSGD: the momentum and the estimates that neighbours hold."""

    m: Any  # momentum [A, ...]; None without momentum
    y_hat: Params  # the estimate of each agent's model [A, ...]


def _rule_of_copies(
    learning_rate: ScalarOrSchedule, compressor: Operator | None,
    beta: Any, nesterov: bool, weight_decay: Any,
    begin: Callable[[Any, Params], Any], exchange: Exchange,
) -> Rule[Any]:  # fmt: skip
    """Makes the rule of a method whose neighbours hold copies: what is sent now is mixed in the next step.

    `begin(m, x)` makes the state, of which `m` is the momentum; the other options are those of `dcd`.
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    momentum = local_momentum(beta, nesterov)
    check_optional_compressor(compressor)

    def step(s: Step, x: Params, state: Any) -> tuple[Params, Any]:
        check_one_copy(s)
        eta = rate(s.t)
        direction, m = momentum.direction(decayed(s.gradient(x), x, weight_decay), state.m)
        theta, receive = exchange(s, x, state._replace(m=m), tree_map(lambda d: eta * d, direction))
        q, sent = compressed(s, compressor, theta)
        s.network.record(sent)
        return receive(q)

    return Rule(lambda x: begin(momentum.init(x), x), step, requires="doubly")


@printed
def dcd(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    compressor: Operator | None = None,
    beta: Any = 0.9, nesterov: bool = True, weight_decay: Any = 1e-4, mixing: Mixing = "auto",
) -> Method:  # fmt: skip
    """Makes DCD-PSGD: differences of models are compressed. The options are those of `sj.dpsgd`.

    Args:
      compressor: the operator Q on differences; None sends them as they are: x becomes W x - eta d(g).

    >>> method, x = sj.dcd(sj.complete(2), 0.1, beta=0.0, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]  # (0 + 2) / 2 - 0.1 g
    Array([0., 1.], dtype=float32)
    """
    checks.choice("mixing", mixing, MIXINGS)

    def exchange(s: Step, x: Params, state: DCDState, move: Params) -> tuple[Params, Receive]:
        z = jax.tree.map(jnp.subtract, s.network.correction(x, (), mixing), move)
        return z, lambda q: (jax.tree.map(jnp.add, x, q), state)

    rule = _rule_of_copies(
        learning_rate, compressor, beta, nesterov, weight_decay, lambda m, x: DCDState(m), exchange
    )
    return Method("dcd", topology, rule)


@printed
def ecd(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    compressor: Operator | None = None,
    beta: Any = 0.9, nesterov: bool = True, weight_decay: Any = 1e-4, mixing: Mixing = "auto",
) -> Method:  # fmt: skip
    """Makes ECD-PSGD: extrapolated models are compressed. The options are those of `sj.dpsgd`.

    Args:
      compressor: an unbiased operator Q on extrapolations; None sends them as they are: x becomes
        W x - eta d(g).

    >>> method, x = sj.ecd(sj.complete(2), 0.1, beta=0.0, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]  # (0 + 2) / 2 - 0.1 g
    Array([0., 1.], dtype=float32)
    """
    checks.choice("mixing", mixing, MIXINGS)

    def exchange(s: Step, x: Params, state: ECDState, move: Params) -> tuple[Params, Receive]:
        t = jnp.asarray(s.t + 1, float)
        new = jax.tree.map(jnp.subtract, s.network.mix(state.y_hat, (), mixing), move)
        z = tree_map(lambda x, new: (1 - t / 2) * x + t / 2 * new, x, new)

        def receive(q: Params) -> tuple[Params, ECDState]:
            y_hat = tree_map(lambda y, q: (1 - 2 / t) * y + 2 / t * q, state.y_hat, q)
            return new, state._replace(y_hat=y_hat)

        return z, receive

    def begin(m: Any, x: Params) -> ECDState:
        return ECDState(m, jax.tree.map(jnp.copy, x))

    rule = _rule_of_copies(learning_rate, compressor, beta, nesterov, weight_decay, begin, exchange)
    return Method("ecd", topology, rule._replace(restartable=False))
