"""SlowMo (Wang, Tantia, Ballas, Rabbat, ICLR 2020): slow momentum around any method.

The method's own steps are unchanged. After every tau-th of them

    u <- beta u + (a - xbar) / eta           xbar: the exact average of all agents' models
    a <- a - alpha eta u                     a_0 = x_0, u_0 = 0
    x <- a

where eta is the learning rate of that step. The method's own state is unchanged. In addition to the method's
messages there is one all-reduce of the models in tau steps, 2 (A - 1) / A models per agent. With
average=False each agent's own model takes the place of xbar, and nothing more is sent. SlowMo requires of W
what the method requires. A method that is not exact on heterogeneous data does not become exact.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import About, Array, Params, ScalarOrSchedule
from saddle_jax.core.method import Method, printed
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import inverse

ABOUT = About("Wang et al., ICLR 2020")


class SlowMoState(NamedTuple):
    """State of SlowMo: the models after the last outer step, the slow momentum, and the method's state."""

    a: Params  # the models after the last outer step [A, ...]
    u: Params  # in units of a gradient [A, ...]
    rule: Any  # the state of the method's rule


@printed
def slowmo(
    method: Method, learning_rate: ScalarOrSchedule, *,
    every: int = 48, beta: Any = 0.5, alpha: Any = 1.0, average: bool = True,
) -> Method:  # fmt: skip
    """Makes the SlowMo version of a method, which may have local steps and any estimator.

    Args:
      method: any method, whose models are averaged.
      learning_rate: eta, a number or a schedule: the one that the method was made with.
      every: tau; the outer step follows the steps tau, 2 tau, ...
      beta: coefficient of the slow momentum in [0, 1).
      alpha: the outer step size, > 0.
      average: whether models are averaged over all agents; False leaves out the all-reduce.

    >>> method = sj.slowmo(sj.dpsgd(sj.complete(2), 0.5, beta=0.0, weight_decay=0.0), 0.5, every=2)
    >>> x = jnp.array([1.0, 1.0])
    >>> state = method.init(x)
    >>> for _ in range(4):
    ...     x, state, _ = method.step(lambda x, d: x * d, x, state, jnp.array([1.0, 0.0]))
    >>> x  # two steps of 0.25 down from 1, two more, and half of the first two again
    Array([-0.25, -0.25], dtype=float32)
    """
    checks.instance("method", method, Method, "sj.dpsgd(topology, 0.1)")
    checks.instance("average", average, bool, "True")
    rate, every = checks.schedule(learning_rate), checks.whole("every", every, at_least=1)
    beta = checks.real("beta", beta, at_least=0.0, below=1.0)
    alpha, inner = checks.real("alpha", alpha, above=0.0), method.rule
    if not inner.restartable:
        raise ArgumentError(
            f"method must be one whose models may be set from outside, unlike D2's original form and ECD, "
            f"which remember where they were, got {method.name}"
        )

    def init(x: Params) -> SlowMoState:
        a = jax.tree.map(jnp.copy, x)  # models and state may be donated, and no array twice
        return SlowMoState(a, zeros_like(x), inner.init(x))

    def step(s: Step, x: Params, state: SlowMoState) -> tuple[Params, SlowMoState]:
        kind, fires = divmod(s.kind, 2)
        x, rule = inner.step(dataclasses.replace(s, kind=kind), x, state.rule)
        if not fires:
            return x, state._replace(rule=rule)
        eta, mean = rate(s.t), s.network.all_reduce(x) if average else x

        def outer(a: Array, u: Array, mean: Array) -> Any:
            # This is a - alpha eta u with the new u, without dividing by eta, which may be zero.
            return a - alpha * (eta * beta * u + (a - mean))

        def remember(u: Array, a: Array, mean: Array) -> Any:
            return beta * u + (a - mean) * inverse(eta)

        a = tree_map(outer, state.a, state.u, mean)
        return a, SlowMoState(a, tree_map(remember, state.u, state.a, mean), rule)

    kinds, first_kinds = _kinds(inner, every)
    rule = Rule(
        init, step, inner.requires, kinds, first_kinds, _local_kinds(inner, {*kinds, *first_kinds}, average)
    )
    _check_rounds(method, rule, every)
    return dataclasses.replace(method, name=f"{method.name}+slowmo", rule=rule)


def _kinds(inner: Rule[Any], every: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns kinds and first_kinds: twice the kind of the method's step, plus one in outer steps."""

    def kind(inner_kind: int, t: int) -> int:
        return 2 * inner_kind + int((t + 1) % every == 0)

    period = math.lcm(len(inner.kinds), every)
    kinds = tuple(kind(inner.kinds[t % len(inner.kinds)], t) for t in range(period))
    return kinds, tuple(kind(first, t) for t, first in enumerate(inner.first_kinds))


def _local_kinds(inner: Rule[Any], kinds: set[int], average: bool) -> tuple[int, ...]:
    return tuple(
        sorted(kind for kind in kinds if kind // 2 in inner.local_kinds and not (kind % 2 and average))
    )


def _check_rounds(method: Method, rule: Rule[Any], every: int) -> None:
    """Checks that on a time-varying graph no local step of the method coincides with an average of SlowMo."""
    if method.topology.period > 1 and any(kind // 2 in method.rule.local_kinds for kind in rule.comm_kinds):
        raise ArgumentError(
            f"every must let the average of all agents fall on steps in which {method.name} talks, on graphs "
            f"that take turns: take a multiple of its {len(method.rule.kinds)} steps, got {every}"
        )
