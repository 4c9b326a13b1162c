"""D2 (Tang et al., ICML 2018), also known as exact diffusion (Yuan et al., 2019) and NIDS (Li et al., 2019).

A prime marks the value of the step before. The first step is x <- W (x - eta g), and then

    variant "original"  x <- W (2 x - x' - eta (g - g'))
            "plus"      x <- W (x - eta ((x' - x) / eta' + g - g'))
            "relay"     u = -eta d(g);  x_new = W (x + u + c);  c <- x_new - x - u

The three are equal at a constant learning rate. When it changes, the mean of "original" is off by
(eta - eta') g' from then on, so that it ends away from the optimum; the others do not. Only "relay" (Vogels
et al., NeurIPS 2021) has momentum d; with heavy ball it is EDM (Hu et al., 2025). In float32 the rounding
errors of "original" and "plus" accumulate in the mean, which is visible with exact gradients; those of
"relay" do not.

It sends one model per link and step. It is exact on heterogeneous data. W is symmetric and doubly stochastic,
with eigenvalues above -1/3: even rings have -1/3 itself, tori less. So (W + I) / 2 is used in place of W,
unless half=False. That is an error below -1/3, where D2 diverges, and a warning at -1/3, where the models
oscillate between neighbours unless the loss is strongly convex. There is no theory for a W that varies or is
not symmetric, but the mean is right if it is doubly stochastic. With a compressor the mixed models are sent
by CHOCO; the published compressed method is LEAD (Liu et al., ICLR 2021).
"""

import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import About, Array, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import Gossip, gossip_of
from saddle_jax.core.method import Method, printed
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import Momentum, check_decay, decayed, inverse, local_momentum
from saddle_jax.methods.stability import are_known, smallest_eigenvalue

ABOUT = About("Tang et al., ICML 2018", exact=True, theory="a fixed symmetric W")

Variant = Literal["auto", "plus", "original", "relay"]

_ROUNDING = 1e-6  # the rounding error of an eigenvalue of a W in float32


class PlusState(NamedTuple):
    """State of the variant "plus": the difference between the last step and that of the own gradient."""

    q: Params  # (x' - x) / eta' - g', [A, ...]
    gossip_state: Any  # the state of the gossip


class OriginalState(NamedTuple):
    """State of the variant "original": the models and gradients of the step before."""

    x: Params  # x' [A, ...]
    g: Params  # g' [A, ...]
    gossip_state: Any  # the state of the gossip


class RelayState(NamedTuple):
    """State of the variant "relay": the correction by the last gossip, and the momentum."""

    c: Params  # in units of a model [A, ...]
    m: Any  # momentum [A, ...]; None without momentum
    gossip_state: Any  # the state of the gossip


@printed
def d2(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    variant: Variant = "auto", half: bool = True,
    beta: Any = 0.9, nesterov: bool = True, weight_decay: Any = 1e-4,
    gamma: Any = 1.0, compressor: Operator | None = None, gossip: Gossip[Any] | None = None,
) -> Method:  # fmt: skip
    """Makes D2. The options that are not named here are those of `sj.dpsgd`.

    Args:
      variant: "plus", "original" or "relay", see the module; "auto" is "plus", and with momentum "relay".
      half: use (W + I) / 2 in place of W, which is stable on every graph. False warns on even rings.

    >>> method, x = sj.d2(sj.complete(2), 0.1, half=False, beta=0.0, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> x, state, _ = method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))
    >>> x, state.rule.q  # the mean gradient is 5, and the models have moved
    (Array([0.5, 0.5], dtype=float32), Array([-15.,  15.], dtype=float32))
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    checks.choice("variant", variant, ("auto", "plus", "original", "relay"))
    momentum = local_momentum(beta, nesterov)
    if variant == "auto":
        variant = "plus" if momentum.is_none else "relay"
    if variant != "relay" and not momentum.is_none:
        raise ArgumentError(
            f"beta must be 0 for variant {variant!r}, got {beta}; variant='relay' has momentum"
        )
    gossip = gossip_of(topology, gossip, compressor, gamma)
    gossip = gossip.scaled(0.5) if half else gossip
    rules: dict[str, Callable[..., Rule[Any]]] = {"plus": _plus, "original": _original, "relay": _relay}
    method = Method("d2", topology, rules[variant](gossip, rate, weight_decay, momentum))
    if not half and gossip.options is not None:
        _check_stable(topology, gossip.options.gamma)
    return method


def _plus(gossip: Gossip[Any], rate: Any, weight_decay: Any, momentum: Momentum) -> Rule[PlusState]:
    del momentum

    def init(x: Params) -> PlusState:
        return PlusState(zeros_like(x), gossip.init(x))

    def step(s: Step, x: Params, state: PlusState) -> tuple[Params, PlusState]:
        eta = rate(s.t)
        g = decayed(s.gradient(x), x, weight_decay)
        half = tree_map(lambda x, q, g: x - eta * (q + g), x, state.q, g)
        new, gossip_state = gossip.mix(s, half, state.gossip_state)
        per_eta = inverse(eta)

        def correct(q: Array, x: Array, new: Array, g: Array) -> Array:
            # A step of learning rate zero, as at the start of a warm-up, holds no information on gradients.
            return jnp.where(per_eta == 0, q, (x - new) * per_eta - g)

        return new, PlusState(tree_map(correct, state.q, x, new, g), gossip_state)

    return Rule(init, step, requires="doubly")


def _original(gossip: Gossip[Any], rate: Any, weight_decay: Any, momentum: Momentum) -> Rule[OriginalState]:
    del momentum

    def init(x: Params) -> OriginalState:
        old = jax.tree.map(jnp.copy, x)  # models and state may be donated, and no array twice
        return OriginalState(old, zeros_like(x), gossip.init(x))

    def step(s: Step, x: Params, state: OriginalState) -> tuple[Params, OriginalState]:
        eta = rate(s.t)
        g = decayed(s.gradient(x), x, weight_decay)
        half = tree_map(lambda x, x_old, g, g_old: 2 * x - x_old - eta * (g - g_old), x, state.x, g, state.g)
        new, gossip_state = gossip.mix(s, half, state.gossip_state)
        return new, OriginalState(x, g, gossip_state)

    return Rule(init, step, requires="doubly", restartable=False)


def _relay(gossip: Gossip[Any], rate: Any, weight_decay: Any, momentum: Momentum) -> Rule[RelayState]:
    def init(x: Params) -> RelayState:
        return RelayState(zeros_like(x), momentum.init(x), gossip.init(x))

    def step(s: Step, x: Params, state: RelayState) -> tuple[Params, RelayState]:
        eta = rate(s.t)
        g = decayed(s.gradient(x), x, weight_decay)
        d, m = momentum.direction(g, state.m)
        moved = tree_map(lambda x, d: x - eta * d, x, d)  # x + u
        new, gossip_state = gossip.mix(s, tree_map(lambda y, c: y + c, moved, state.c), state.gossip_state)
        return new, RelayState(tree_map(lambda new, y: new - y, new, moved), m, gossip_state)

    return Rule(init, step, requires="doubly")


def _check_stable(topology: Graphs, gamma: Any) -> None:
    """Checks that all eigenvalues of I + gamma (W - I) lie above -1/3; warns of -1/3, as on even rings."""
    smallest = smallest_eigenvalue(topology)
    if smallest is None or not are_known(gamma):
        return
    above = 1 - gamma * (1 - smallest) + 1 / 3
    if above < -_ROUNDING:
        raise ArgumentError(
            f"half must be True on {topology.name}, whose W has the eigenvalue {smallest:.3g}, not above "
            "-1/3: D2 would diverge, got False"
        )
    if above <= _ROUNDING:
        warnings.warn(
            f"saddle_jax.d2: half=False on {topology.name}, whose W has the eigenvalue -1/3, lets agents "
            "agree only where the loss is strongly convex: half=True always does",
            stacklevel=4,
        )
