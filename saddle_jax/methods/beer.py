"""BEER (Zhao et al., "BEER: Fast O(1/T) Rate for Decentralized Nonconvex Optimization with Communication
Compression", NeurIPS 2022, Algorithm 1): gradient tracking with both messages compressed.

    V = V + gamma (W - I) G + g - g'       the tracked gradient; in the first step V = g
    G = G + Q(V - G)                       its public copy; not sent in the first step
    x = x + gamma (W - I) H - eta V
    H = H + Q(x - H)                       the models' public copy; H and G start at zero

What is mixed now was sent in the step before, so that the first step mixes nothing. It sends two compressed
messages per link and step. W is doubly stochastic and the links are fixed. It is exact on heterogeneous data,
also with biased operators such as top-k.
"""
# ruff: noqa: N803, N806 (capitals are the paper's names)

from collections.abc import Callable
from typing import Any, NamedTuple

from saddle_jax.base import checks
from saddle_jax.base.types import About, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import check_one_copy, check_optional_compressor, check_rate, publish
from saddle_jax.core.method import Method, printed
from saddle_jax.core.network import MIXINGS, Mixing
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import check_decay, decayed

ABOUT = About("Zhao et al., NeurIPS 2022", exact=True, requires="fixed links")

FIRST, LATER = 0, 1  # kinds of steps


class BEERState(NamedTuple):
    """State of BEER: what is tracked, its tracked mean, and the two public copies; each is [A, ...]."""

    M: Params  # what is tracked: the last gradient; for MoTEF its momentum
    V: Params  # the tracked mean of M
    H: Params  # the public copy of the model
    G: Params  # the public copy of V


def beer_rule(
    topology: Graphs, learning_rate: ScalarOrSchedule,
    compressor: Operator | None, gamma: Any, weight_decay: Any, mixing: Mixing,
    estimate: Callable[[Params, Params], Params],
) -> Rule[BEERState]:  # fmt: skip
    """Makes the rule of BEER that tracks M = estimate(g, M'); BEER itself tracks M = g."""
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    gamma_at = check_rate(gamma, topology)
    check_optional_compressor(compressor)
    checks.choice("mixing", mixing, MIXINGS)

    def init(x: Params) -> BEERState:
        return BEERState(*(zeros_like(x) for _ in BEERState._fields))

    def step(s: Step, x: Params, state: BEERState) -> tuple[Params, BEERState]:
        check_one_copy(s)
        eta, gamma_t, old = rate(s.t), gamma_at(s.t), state
        g = decayed(s.gradient(x), x, weight_decay)
        if s.kind == FIRST:
            M, V, G = g, g, old.G
        else:
            M = estimate(g, old.M)
            correction = s.network.correction(old.G, (), mixing)
            V = tree_map(lambda V, p, M, last: V + gamma_t * p + M - last, old.V, correction, M, old.M)
            G, sent = publish(s, compressor, V, old.G)
            s.network.record(sent)
        correction = s.network.correction(old.H, (), mixing)
        x = tree_map(lambda x, p, V: x + gamma_t * p - eta * V, x, correction, V)
        H, sent = publish(s, compressor, x, old.H)
        s.network.record(sent)
        return x, BEERState(M, V, H, G)

    return Rule(init, step, requires="doubly", kinds=(LATER,), first_kinds=(FIRST,))


@printed
def beer(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    compressor: Operator | None = None, gamma: Any = 0.1, weight_decay: Any = 1e-4, mixing: Mixing = "auto",
) -> Method:  # fmt: skip
    """Makes BEER: compressed gradient tracking, exact on heterogeneous data. It has no momentum.

    Args:
      topology: the communication graph.
      learning_rate: eta, a number or an optax schedule.
      compressor: the operator Q on both messages; None sends them as they are.
      gamma: averaging rate, a number or a function of the step, see `sj.exact`; small for few bits.
      weight_decay: coupled L2, taken at x_t and added to the gradient.
      mixing: how W x is computed, "auto", "dense" or "table", see `sj.mixing_form`.

    >>> method, x = sj.beer(sj.complete(2), 0.1, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]  # nothing is mixed yet
    Array([-1.,  2.], dtype=float32)
    """
    rule = beer_rule(topology, learning_rate, compressor, gamma, weight_decay, mixing, lambda g, M: g)
    return Method("beer", topology, rule)
