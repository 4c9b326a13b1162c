"""Theorem 1 of the paper: a bound on Q-SADDLe's gradients, and its conditions on the learning rate.

    1/T sum_t E||grad f(x-bar_t)||^2  <=  4 (f(x_0) - f*) / (eta~ T)  +  C_sigma sigma^2  +  C_delta delta^2
                                          +  C_rho rho^2,                        eta~ = eta / (1 - beta)

It is computed as printed in the main text; the appendix ends at the same coefficients. Two conditions of the
proof are missing in the theorem; `conditions` marks them. The lemma on the consensus error assumes
eta <= lambda / (10 L); the appendix merges it with eta <= 1 / (7 L) into eta <= lambda / (7 L), too weak for
it. The lemma on the momentum assumes beta / (1 - beta) <= lambda / 21, and without some condition on beta
the printed theorem is wrong: where W has an eigenvalue w < 0 with 2 |w| beta (1 - mu) > (1 + w) (1 + mu), the
agents drift apart however small eta is. The 4x4 torus with beta = 0.9 and mu = 0 is such a case:
tests/papers/theory_test.py violates the bound with it.

The proof also uses more than Assumptions 1 to 3 say: that F_i(x; d) is L-smooth for every sample d, that
all agents start from one model, and that SAM's perturbation does not depend on the sample.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from saddle_jax.base import checks
from saddle_jax.core.topology import Graphs, Topology

_LARGEST = 1e30  # constants whose fourth powers must not overflow

_MOST_STEPS = 10**18
_ROUNDING = 1e-12  # a computed lambda below this may be zero


@dataclasses.dataclass(frozen=True)
class Setting:
    """The constants of a problem, a graph and a method that the theorem is about.

    Attributes:
      L: smoothness of every f_i (Assumption 1).
      sigma: E||grad F_i(x; d) - grad f_i(x)||^2 <= sigma^2 (Assumption 2).
      delta: 1/n sum_i ||grad f_i(x) - grad f(x)||^2 <= delta^2 (Assumption 2).
      lambda_: how fast gossip mixes, in (0, 1] (Assumption 3); `mixing_lambda` of a graph.
      gap: f(x_0) - f*.
      eta, beta, mu, rho: the method's learning rate, momentum coefficients and radius.
      agents: n.
      steps: T.
    """

    L: float
    sigma: float
    delta: float
    lambda_: float
    gap: float
    eta: float
    beta: float
    mu: float
    rho: float
    agents: int
    steps: int

    def __post_init__(self) -> None:
        for name in ("L", "eta"):
            checks.real(name, getattr(self, name), above=0.0, at_most=_LARGEST)
        for name in ("sigma", "delta", "gap", "rho"):
            checks.real(name, getattr(self, name), at_least=0.0, at_most=_LARGEST)
        for name in ("beta", "mu"):
            checks.real(name, getattr(self, name), at_least=0.0, below=1.0)
        checks.real("lambda", self.lambda_, above=0.0, at_most=1.0)
        checks.whole("agents", self.agents, at_least=1)
        checks.whole("steps", self.steps, at_least=1, at_most=_MOST_STEPS)

    @property
    def tilde_eta(self) -> float:
        """Returns eta~ = eta / (1 - beta)."""
        return self.eta / (1 - self.beta)

    @property
    def C1(self) -> float:  # noqa: N802
        """Returns C_1 = (2 - beta - mu) (1 - beta)^2 / (1 - mu)."""
        return (2 - self.beta - self.mu) * (1 - self.beta) ** 2 / (1 - self.mu)

    @property
    def C2(self) -> float:  # noqa: N802
        """Returns C_2 = beta^2 / ((1 - mu) (1 - beta))."""
        return self.beta**2 / ((1 - self.mu) * (1 - self.beta))


class Bound(NamedTuple):
    """The terms of the right-hand side in printed order; they add up to `total`."""

    gap: float  # 4 (f(x_0) - f*) / (eta~ T)
    noise_mean: float  # of sigma^2: in the mean of n gradients
    noise_momentum: float
    noise_consensus: float
    heterogeneity: float  # from delta^2
    perturbation_bias: float  # from rho^2: SAM's gradient is at another point
    perturbation_mean: float
    perturbation_momentum: float
    perturbation_consensus: float

    @property
    def leading(self) -> float:
        """Returns the two terms of order 1 / sqrt(nT) under the corollary's schedule."""
        return self.gap + self.noise_mean

    @property
    def total(self) -> float:
        """Returns the whole right-hand side of the bound."""
        return sum(self)


def bound(s: Setting) -> Bound:
    """Computes the right-hand side of Theorem 1. It holds where `conditions` do."""
    eta, L, n = s.tilde_eta, s.L, s.agents  # noqa: N806
    sigma2, delta2, rho2, lambda2 = s.sigma**2, s.delta**2, s.rho**2, s.lambda_**2
    return Bound(
        gap=4 / (eta * s.steps) * s.gap,
        noise_mean=6 * eta * L / n * sigma2,
        noise_momentum=18 * eta**2 * L**2 * s.C2 * sigma2,
        noise_consensus=768 * eta**2 * L**2 * s.C1 / lambda2 * sigma2,
        heterogeneity=832 * L**2 * eta**2 * (1 - s.beta) ** 2 / lambda2 * delta2,
        perturbation_bias=8 * L**2 * rho2,
        perturbation_mean=12 * eta * L**3 / n * rho2,
        perturbation_momentum=36 * eta**2 * L**4 * s.C2 * rho2,
        perturbation_consensus=3136 * L**4 * eta**2 * s.C1 / lambda2 * rho2,
    )


class Condition(NamedTuple):
    """One condition of the theorem: an inequality value <= limit."""

    condition: str
    value: float
    limit: float
    printed: bool  # in the theorem; False: only in the proof

    @property
    def holds(self) -> bool:
        """Whether the inequality of the theorem holds."""
        return self.value <= self.limit

    @property
    def factor(self) -> float:
        """Returns value / limit; above one, the condition is violated by this factor."""
        return self.value / self.limit


def conditions(s: Setting) -> tuple[Condition, ...]:
    """Returns the theorem's three conditions on the learning rate, and two more from its proof."""
    momentum = (1 - s.beta) ** 2 * (1 - s.mu) / (math.sqrt(12) * s.L * s.beta) if s.beta else math.inf
    return (
        Condition("eta <= lambda / (7 L)", s.eta, s.lambda_ / (7 * s.L), True),
        Condition("eta <= (1 - beta) / (4 L)", s.eta, (1 - s.beta) / (4 * s.L), True),
        Condition("eta <= (1 - beta)^2 (1 - mu) / (sqrt(12) L beta)", s.eta, momentum, True),
        Condition("eta <= lambda / (10 L)", s.eta, s.lambda_ / (10 * s.L), False),
        Condition("beta / (1 - beta) <= lambda / 21", s.beta / (1 - s.beta), s.lambda_ / 21, False),
    )


def largest_eta(s: Setting) -> float:
    """Returns the largest learning rate that theorem and proof allow for a setting, ignoring its eta."""
    return min(c.limit for c in conditions(s) if c.condition.startswith("eta"))


def on_graph(
    topology: Graphs, *, eta: float | None = None, beta: float, mu: float | None = None, **constants: Any
) -> Setting:
    """Builds the setting of a method on a graph; the other constants are those of `Setting`.

    By default mu is beta, and eta the largest learning rate that theorem and proof allow.
    """
    setting = Setting(
        eta=1.0 if eta is None else eta,
        beta=beta,
        mu=beta if mu is None else mu,
        lambda_=mixing_lambda(topology),
        agents=topology.size,
        **constants,
    )
    return setting if eta is not None else dataclasses.replace(setting, eta=largest_eta(setting))


def corollary_schedule(agents: int, steps: int, c: float, c_rho: float) -> tuple[float, float]:
    """Returns eta = c sqrt(n / T) and rho = c_rho sqrt(1 / T): the corollary promises 1 / sqrt(nT) then."""
    agents = checks.whole("agents", agents, at_least=1)
    steps = checks.whole("steps", steps, at_least=1, at_most=_MOST_STEPS)
    c = checks.real("c", c, above=0.0)
    return c * math.sqrt(agents / steps), checks.real("c_rho", c_rho, at_least=0.0) * math.sqrt(1 / steps)


def mixing_lambda(topology: Graphs, gamma: float = 1.0) -> float:
    """Computes lambda of Assumption 3: ||ZW - Z-bar||^2 <= (1 - lambda) ||Z - Z-bar||^2 for every Z, sharply.

    1 - lambda is the square of the second largest singular value of W, which for symmetric W is its
    second largest |eigenvalue|. An averaging rate `gamma` makes W into (1 - gamma) I + gamma W.
    """
    if not isinstance(topology, Topology) or topology.stochasticity != "doubly":
        raise checks.ArgumentError(
            f"topology must be one graph, the same in all steps, that keeps the average, got {topology.name}"
        )
    n = topology.size
    mixing = (1 - gamma) * np.eye(n) + gamma * topology.mixing
    disagreement = np.linalg.norm(mixing - 1 / n, ord=2)
    lambda_ = float(1 - disagreement**2)
    return min(lambda_, 1.0) if lambda_ > _ROUNDING else 0.0
