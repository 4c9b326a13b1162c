"""GUT, global update tracking (Aketi, Hashemi and Roy, NeurIPS 2023); QG-GUTm is GUT with momentum.

A prime marks the value of the step before, L = W - I, and z = W x is where the gradient is taken:

    delta = g(z) - L x / eta
    y     = delta - mu / eta' (W (x - x') + b L x') - mu delta'          the first step: y = delta
    x     <- x - eta d(y)                        b = 1 + beta, with Nesterov 1 + beta + beta^2

Without momentum b = 1, and it is x <- W x - eta (g + mu (W y' - g')): each agent tracks the mean update of
models. As x - x' = -eta' d', the code uses y = delta + mu (W d' - g' - (b - 1) L x' / eta').

It sends one model per link and step, x - x', and neighbours hold copies x'; if links change or lose messages
it sends x and d', two models. W is doubly stochastic. It is not exact on heterogeneous data: its bias is
(1 - mu) times that of D-PSGD's variant "awc", or (1 - mu) / (1 - mu + mu b) times with momentum.

Gossip alone, with point="mixed", is stable on a symmetric W with the smallest eigenvalue lambda if and only
if

    mu < 1 - beta    and    2 (1 + beta) / k + 2 mu lambda > (1 - lambda) (1 - mu (b - 1))

where k = 1 + 2 beta with Nesterov and 1 otherwise. Without momentum the second is lambda > -1 / (1 + 2 mu).

A compressor sends q = Q(x - x-hat), as CHOCO does; L x becomes L x-hat and W d' becomes d' - L q / eta'.
Three things differ from the authors' program: a change of the learning rate takes effect at once, in delta;
gamma is applied once; and the agents need not start from the same model.
"""

from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import About, Array, Operator, Params, ScalarOrSchedule
from saddle_jax.core.gossip import Gossip, GossipOptions, gossip_of, known_options
from saddle_jax.core.method import Method, printed
from saddle_jax.core.network import Message
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs
from saddle_jax.core.trees import tree_map, zeros_like
from saddle_jax.methods.momentum import check_decay, decayed, inverse, local_momentum
from saddle_jax.methods.stability import are_known, smallest_eigenvalue

ABOUT = About("Aketi et al., NeurIPS 2023")


class GUTState(NamedTuple):
    """State of GUT: the direction of the last step, which it tracks, and the parts that it is made of."""

    d: Params  # d', the direction of the last step [A, ...]
    c: Params  # g' + (b - 1) L x' / eta', [A, ...]
    m: Any  # momentum [A, ...]; None without momentum
    per_eta: Array  # 1 / eta', zero before the first step, []
    gossip_state: Any  # the state of the gossip


@printed
def gut(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    mu: Any = None, beta: Any = 0.9, nesterov: bool = True, point: Literal["mixed", "current"] = "mixed",
    weight_decay: Any = 1e-4,
    gamma: Any = 1.0, compressor: Operator | None = None, gossip: Gossip[Any] | None = None,
) -> Method:  # fmt: skip
    """Makes GUT; with momentum, QG-GUTm. The options that are not named here are those of `sj.dpsgd`.

    Args:
      mu: coefficient of the tracked update, in [0, 1 - beta); None is (1 - beta) / 2, without momentum 0.9.
      point: where the gradient (and the weight decay) is taken, at W x or at x. "current" is less stable than
        the module says: on even rings it diverges with mu = 0.9.

    >>> method, x = sj.gut(sj.complete(2), 0.1, beta=0.0, weight_decay=0.0), jnp.array([0.0, 2.0])
    >>> x, state, _ = method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))
    >>> x, state.rule.d  # from 1, the mean model; the second agent moved by gossip alone
    (Array([0., 1.], dtype=float32), Array([ 0., 10.], dtype=float32))
    """
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    checks.choice("point", point, ("mixed", "current"))
    momentum, gossip = local_momentum(beta, nesterov), gossip_of(topology, gossip, compressor, gamma)
    options = known_options(gossip)
    checks.choice("order", options.order, ("choco",))
    beta = momentum.beta
    if mu is None:
        mu = 0.9 if momentum.is_none else (1 - beta) / 2
    mu, b = checks.real("mu", mu, at_least=0.0), 1 + beta + (beta**2 if nesterov else 0)

    def init(x: Params) -> GUTState:
        return GUTState(zeros_like(x), zeros_like(x), momentum.init(x), jnp.zeros([]), gossip.init(x))

    def step(s: Step, x: Params, state: GUTState) -> tuple[Params, GUTState]:
        eta = rate(s.t)
        per_eta = inverse(eta)  # zero at learning rate zero, where the models do not move
        z, gossip_state = gossip.mix(s, x, state.gossip_state)
        correction = tree_map(lambda z, x: z - x, z, x)  # L x
        where = z if point == "mixed" else x
        g = decayed(s.gradient(where), where, weight_decay)
        tracked = _mixed_direction(s, state, gossip_state, options)

        def track(g: Array, correction: Array, tracked: Array, c: Array) -> Any:
            return g - correction * per_eta + mu * (tracked - c)

        d, m = momentum.direction(tree_map(track, g, correction, tracked, state.c), state.m)
        new = tree_map(lambda x, d: x - eta * d, x, d)
        c = tree_map(lambda g, correction: g + (b - 1) * correction * per_eta, g, correction)
        return new, GUTState(d, c, m, jnp.asarray(per_eta).astype(state.per_eta.dtype), gossip_state)

    method = Method("gut", topology, Rule(init, step, requires="doubly"))
    _check_stable(topology, mu, beta, nesterov, options.gamma)
    return method


def _mixed_direction(s: Step, state: GUTState, gossip_state: Any, options: GossipOptions) -> Params:
    """Returns W d', [A, ...]; with copies x' of its neighbours an agent infers it from the message x - x'."""
    if options.compressor is None:
        known = state.d
        copied = s.network.topology.has_fixed_links and s.network.faults is None
        sent: Any = () if copied else Message(known)
    else:
        old, new = state.gossip_state.public, gossip_state.public
        known, sent = tree_map(lambda old, new: (old - new) * state.per_eta, old, new), ()
    correction, gamma = s.network.correction(known, sent, options.mixing), options.gamma
    gamma = gamma(s.t) if callable(gamma) else gamma
    return tree_map(lambda d, p: d + gamma * p, state.d, correction)


def _check_stable(topology: Graphs, mu: Any, beta: Any, nesterov: bool, gamma: Any) -> None:
    """Checks the module's two conditions for the smallest eigenvalue of I + gamma (W - I)."""
    if not are_known(mu, beta):
        return
    if mu >= 1 - beta:
        raise ArgumentError(f"mu must be below 1 - beta = {1 - beta:.3g}, got {mu:.3g}")
    smallest = smallest_eigenvalue(topology)
    if smallest is None or not are_known(gamma):
        return
    least = 1 - gamma * (1 - smallest)
    b_1 = beta + (beta**2 if nesterov else 0)
    margin = 2 * (1 + beta) / (1 + 2 * beta if nesterov else 1) - (1 - least)
    slope = 2 * least + b_1 * (1 - least)
    if margin + mu * slope > 0:
        return
    found = f"{topology.name}, whose W has the eigenvalue {smallest:.3g}"
    if margin > 0:
        raise ArgumentError(f"mu must be below {-margin / slope:.3g} on {found}, got {mu:.3g}")
    if slope > 0 and -margin / slope < 1 - beta:
        raise ArgumentError(f"mu must be above {-margin / slope:.3g} on {found}, got {mu:.3g}")
    raise ArgumentError(f"nesterov must be False on {found}: no mu is stable there, got True")
