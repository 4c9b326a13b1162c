"""A problem with exactly known constants, to test theorem and corollary.

    f_i(x) = 1/2 (x - b_i)^T H (x - b_i),     F_i(x; z) = f_i(x) + z^T x,   z = sigma / sqrt(d) (+-1, ...)

All agents share H, so that grad f_i - grad f = H (b-bar - b_i) does not depend on x, and delta is constant as
in Assumption 2. But then the mean of all models hardly depends on the graph. With a `spread` every agent has
its own H_i, whose mean is H: the graph matters, and delta is the heterogeneity at the minimum only. The signs
in z are independent and fair, and ||z||^2 is sigma^2 in every draw. L is H's largest eigenvalue, and every
F_i(.; z) is as smooth as f_i.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Key, Params
from saddle_jax.core.topology import Graphs, Topology
from saddle_jax.core.trees import consensus, replicate
from saddle_jax.graphs.named import complete, ring, torus
from saddle_jax.methods.saddle import q_saddle
from saddle_jax.papers.common import trajectory
from saddle_jax.papers.saddle.theory.bound import Bound, Setting, bound, corollary_schedule, mixing_lambda


@dataclasses.dataclass(frozen=True, eq=False)
class Quadratic:
    """Quadratic losses of all agents with known constants; make one with `quadratic`.

    Attributes:
      topology: the graph.
      curvature: the eigenvalues of H, which is diagonal, float64 [d].
      centres: b_i, float64 [A, d]; the minimum of f is zero.
      start: x_0, float64 [d].
      sigma: the standard deviation of the gradient noise.
      spread: how much the agents' own curvatures differ: H_i = (1 + spread s_i) H, s_i evenly from -1 to 1.
    """

    topology: Graphs
    curvature: np.ndarray
    centres: np.ndarray
    start: np.ndarray
    sigma: float
    spread: float = 0.0

    @property
    def curvatures(self) -> np.ndarray:
        """Returns the eigenvalues of every H_i, float64 [A, d]."""
        return _curvatures(self.curvature, self.topology.size, self.spread)

    def setting(self, *, eta: float, beta: float, mu: float, rho: float, steps: int) -> Setting:
        """Computes the theorem's constants for this problem and these options."""
        local = self.curvatures * self.centres
        return Setting(
            L=float(self.curvatures.max()),
            sigma=self.sigma,
            delta=float(np.sqrt((local**2).sum(axis=1).mean())),
            lambda_=mixing_lambda(self.topology),
            gap=float(self.curvature @ self.start**2 / 2),
            eta=eta,
            beta=beta,
            mu=mu,
            rho=rho,
            agents=self.topology.size,
            steps=steps,
        )


def quadratic(
    topology: Graphs,
    *,
    L: float = 1.0,  # noqa: N803
    sigma: float = 1.0,
    delta: float = 0.5,
    gap: float = 1.0,
    dimension: int = 4,
    flattest: float = 0.5,
    spread: float = 0.0,
    seed: int = 0,
) -> Quadratic:
    """Makes a problem with exactly these constants; H's eigenvalues are evenly spaced in [flattest L, L].

    With a `spread`, L is that of H, and delta that at the minimum, see `Quadratic`.
    """
    checks.instance("topology", topology, Topology, "sj.ring(10)")
    checks.real("L", L, above=0.0)
    checks.real("flattest", flattest, above=0.0, at_most=1.0)
    checks.real("spread", spread, at_least=0.0, below=1.0)
    for name, value in (("sigma", sigma), ("delta", delta), ("gap", gap)):
        checks.real(name, value, at_least=0.0)
    n, d = topology.size, checks.whole("dimension", dimension, at_least=1)
    if n == 1 and delta > 0:
        raise ArgumentError(f"delta must be 0 for one agent, got {delta}")
    random = np.random.default_rng(seed)
    curvature = np.linspace(L, flattest * L, d)
    gradients = random.normal(size=(n, d))  # H b_i, whose mean square is delta^2
    gradients -= gradients.mean(axis=0)
    gradients *= delta / np.sqrt((gradients**2).sum(axis=1).mean()) if delta else 0.0
    direction = random.normal(size=d)
    start = direction * np.sqrt(gap / (curvature @ direction**2 / 2))
    centres = gradients / _curvatures(curvature, n, spread)
    return Quadratic(topology, curvature, centres, start, sigma, spread)


def _curvatures(curvature: np.ndarray, agents: int, spread: float) -> np.ndarray:
    """Returns (1 + spread s_i) H for every agent, with s_i increasing in i."""
    shares = np.linspace(-1, 1, agents) if agents > 1 else np.zeros(1)
    result: np.ndarray = (1 + spread * shares[:, None]) * curvature
    return result


class Measured(NamedTuple):
    """An estimate of the theorem's left-hand side."""

    mean: float  # of 1/T sum_t ||grad f(x-bar_t)||^2 over the repetitions
    standard_error: float


def measure(
    problem: Quadratic,
    *,
    eta: float,
    beta: float,
    mu: float,
    rho: float,
    steps: int,
    repetitions: int = 64,
    seed: int = 0,
) -> Measured:
    """Runs Q-SADDLe as in the theorem (heavy ball, no weight decay), many times with different noise."""
    repetitions = checks.whole("repetitions", repetitions, at_least=2)
    keys = jax.random.split(jax.random.key(seed), repetitions)
    arrays = (problem.curvature, problem.curvatures, problem.centres, problem.start, problem.sigma)
    averages = np.asarray(_runs(problem.topology, steps, arrays, (eta, beta, mu, rho), keys), np.float64)
    return Measured(float(averages.mean()), float(averages.std(ddof=1) / np.sqrt(repetitions)))


def measure_setting(topology: Graphs, setting: Setting) -> Measured:
    """Measures the method on a problem with exactly a setting's constants."""
    s = setting
    problem = quadratic(topology, L=s.L, sigma=s.sigma, delta=s.delta, gap=s.gap)
    return measure(problem, eta=s.eta, beta=s.beta, mu=s.mu, rho=s.rho, steps=s.steps)


def _loss(x: Params, batch: tuple[Array, Array, Array]) -> Array:
    """Computes F_i(x; z), the loss of one agent."""
    curvature, centre, z = batch
    result: Array = jnp.sum(curvature * (x - centre) ** 2) / 2 + z @ x
    return result


@functools.partial(jax.jit, static_argnums=(0, 1))
def _runs(
    topology: Graphs, steps: int, arrays: tuple[Any, ...], options: tuple[Any, ...], keys: Key
) -> Array:
    """Computes 1/T sum_t ||grad f(x-bar_t)||^2 of every repetition [R]; traced options share one program."""
    curvature, curvatures, centres, start, sigma = (jnp.asarray(x, jnp.float32) for x in arrays)
    eta, beta, mu, rho = options
    method = q_saddle(topology, eta, rho, beta=beta, mu=mu, nesterov=False, weight_decay=0.0)
    agents, dimension = centres.shape

    def batch(t: Array, key: Key) -> tuple[Array, Array, Array]:
        signs = jax.random.rademacher(key, centres.shape, jnp.float32)
        return curvatures, centres, sigma / jnp.sqrt(dimension) * signs

    def squared_gradient(params: Params) -> Array:
        return jnp.sum((curvature * consensus(params)) ** 2)  # of f at x-bar_t: its minimum is zero

    def run(key: Key) -> Array:
        params = replicate(start, agents)
        later = trajectory(method, _loss, params, steps, batch, squared_gradient, key)
        average: Array = (squared_gradient(params) + jnp.sum(later[:-1])) / steps
        return average

    return jax.vmap(run)(keys)


# ---- the corollary: with eta = c sqrt(n/T) the error falls as 1 / sqrt(nT) ----
#
# Which c and T does the bound need to show this, too? Let H = L I and L = 1, without momentum. The true error
# of a run is
#
#     gap / (eta T)  +  eta sigma^2 / (2n)            =  (gap / c + c sigma^2 / 2) / sqrt(nT)
#
# up to factors 1 - O(1 / (eta T)), from the initial distance, and 1 + O(eta). The bound is
#
#     4 gap / (eta T)  +  6 eta sigma^2 / n  +  1536 eta^2 sigma^2 / lambda^2  +  ...
#
# and its third term, a consensus error times a large constant, is 1536 c^2 sigma^2 n / T, which grows with n.
# The first two dominate if 256 c sqrt(n^3 / T) is at most about one, while eta T = c sqrt(nT) must be large
# for the smallest n. Sizes 2 to 8 and a complete graph (lambda = 1) allow both with T = 40,000 and c = 0.043;
# gap is chosen to make the two errors of a run equal, and delta and rho to be negligible: `sweep`.
#
# `measure_cases` measures the method where the bound is vacuous: on rings and tori, with momentum far beyond
# what the proof allows, and with curvatures that differ between agents, so that disagreement between agents
# moves their mean. With momentum eta is c (1 - beta) sqrt(n/T): the theorem is about eta / (1 - beta).

GRAPHS: dict[str, Callable[[int], Topology]] = {
    "complete": complete,
    "torus": lambda n: torus(round(n**0.5), round(n**0.5)),
    "ring": ring,
}
MOMENTA = (0.0, 0.5, 0.9)
# Square numbers, for the torus. The middle one is used for the sweep over T.
SIZES = (9, 16, 25)
STEPS = (1_000, 4_000, 16_000)
_C = 0.5  # eta T is at least 63, so that the initial distance hardly matters, and eta at most 0.064
_C_RHO = 0.1


class Point(NamedTuple):
    """One size of the sweep: its setting, the bound, and the measured error."""

    setting: Setting
    bound: Bound
    measured: Measured


class Slope(NamedTuple):
    """The slope of log(error) against log(n) or log(T); the corollary says -1/2."""

    value: float
    standard_error: float  # from the errors of the measured points


def _point(
    topology: Topology,
    steps: int,
    repetitions: int,
    *,
    c: float,
    delta: float,
    spread: float = 0.0,
    beta: float = 0.0,
) -> Point:
    """Measures one size under the corollary's schedule, with equal error terms: gap / c = c sigma^2 / 2."""
    n = topology.size
    eta, rho = corollary_schedule(n, steps, c, _C_RHO)
    problem = quadratic(
        topology, sigma=1.0, delta=delta, gap=c**2 / 2, dimension=8, flattest=1.0, spread=spread, seed=n
    )
    options = {"eta": eta * (1 - beta), "beta": beta, "mu": beta, "rho": rho}
    setting = problem.setting(**options, steps=steps)
    measured = measure(problem, **options, steps=steps, repetitions=repetitions, seed=n)
    return Point(setting, bound(setting), measured)


def sweep(
    sizes: Sequence[int] = (2, 4, 8),
    *,
    steps: int = 40_000,
    c: float = 0.043,
    repetitions: int = 32,
) -> list[Point]:
    """Measures complete graphs of several sizes without momentum."""
    return [_point(complete(n), steps, repetitions, c=c, delta=0.1) for n in sizes]


def fit_slope(points: Sequence[Point], over: Literal["agents", "steps"] = "agents") -> Slope:
    """Fits the slope by weighted least squares in log-log, with each point's standard error."""
    if len(points) < 2:
        raise ArgumentError(f"points must be at least two, got {len(points)}")
    sizes = np.log([getattr(point.setting, over) for point in points])
    errors = np.log([point.measured.mean for point in points])
    weights = [point.measured.mean / point.measured.standard_error for point in points]  # 1 / std of the log
    coefficients, covariance = _line(sizes, errors, np.asarray(weights))
    return Slope(float(coefficients[0]), math.sqrt(covariance[0, 0]))


def _line(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fits slope and intercept [2] and their covariance [2, 2], without rescaling the weights."""
    design = np.stack([x, np.ones_like(x)], axis=1) * weights[:, None]
    covariance = np.linalg.inv(design.T @ design)
    return covariance @ design.T @ (y * weights), covariance


class Case(NamedTuple):
    """The errors over T and over n for one graph and momentum, and their slopes.

    Attributes:
      graph: its name.
      beta: the momentum; mu is the same.
      over_steps: points of the middle size, by T.
      over_agents: points of the largest T, by n.
    """

    graph: str
    beta: float
    over_steps: tuple[Point, ...]
    over_agents: tuple[Point, ...]

    @property
    def slopes(self) -> tuple[Slope, Slope]:
        """Returns the slopes over log(T) and over log(n)."""
        return fit_slope(self.over_steps, "steps"), fit_slope(self.over_agents, "agents")

    @property
    def excess(self) -> float:
        """Returns the error at the largest T and the middle size, relative to c sigma^2 / sqrt(nT).

        The latter is the error of a single agent with n times the batch, up to O(1 / T): 1 in the limit.
        """
        setting, _, measured = self.over_steps[-1]
        return measured.mean * math.sqrt(setting.agents * setting.steps) / _C

    @property
    def last_slope(self) -> Slope:
        """Returns the slope over log(T) between the two largest T, where the corollary must hold first."""
        return fit_slope(self.over_steps[-2:], "steps")


def measure_cases(
    graphs: Sequence[str] = tuple(GRAPHS),
    momenta: Sequence[float] = MOMENTA,
    *,
    sizes: Sequence[int] = SIZES,
    steps: Sequence[int] = STEPS,
    repetitions: int = 32,
    report: Callable[[Case], None] = lambda case: None,
) -> list[Case]:
    """Measures every graph with every momentum; `report` is called with each measured case."""
    cases = []
    middle = sizes[len(sizes) // 2]
    for graph in graphs:
        for beta in momenta:

            def point(n: int, T: int, graph: str = graph, beta: float = beta) -> Point:  # noqa: N803
                return _point(GRAPHS[graph](n), T, repetitions, c=_C, delta=0.5, spread=0.5, beta=beta)

            over_steps = tuple(point(middle, T) for T in steps)
            over_agents = tuple(over_steps[-1] if n == middle else point(n, steps[-1]) for n in sizes)
            cases.append(Case(graph, beta, over_steps, over_agents))
            report(cases[-1])
    return cases
