"""The rate of D-PSGD on random quadratics (Vogels, Hendrikx, Jaggi, "Beyond spectral gap", NeurIPS 2022).

Every step each agent has another loss (a . x)^2 / 2 with a ~ N(0, I) in R^d, all with the minimum 0, and
zeta = d + 2. With W the mixing matrix, E|x_t|^2 falls by the factor 1 - r, where r solves (Section 3.1)

    r = 1 - (1 - eta)^2 - (zeta - 1) eta^2 / n_W(gamma),         gamma = (1 - eta)^2 / (1 - r)
    n_W(gamma) = 1 / ((1 - gamma) max_i C_ii)                    the effective number of neighbours
    C = W (gamma C + I) W^T                                      the covariance of a random walk

The formula is exact where all agents are alike; a star and a tree are not. On graphs that vary, C is the
covariance after the last matrix of a period. The best of 100 learning rates between 0.001 and 1 is printed.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array
from saddle_jax.core.topology import Graphs
from saddle_jax.graphs.named import complete, hypercube, ring, star
from saddle_jax.graphs.time_varying import one_peer_exponential
from saddle_jax.graphs.trees import binary_tree
from saddle_jax.methods.dpsgd import dpsgd
from saddle_jax.papers.common import Compared, Reproduction, to_digits, trajectory, within_noise

ZETA, DIMENSION = 50, 48
PRINTED: dict[Graphs, tuple[str, str]] = {  # the best rate and its learning rate
    ring(32): ("0.12559", "0.093"),
    one_peer_exponential(32): ("0.16523", "0.107"),
    star(32): ("0.05885", "0.035"),
    binary_tree(32): ("0.09546", "0.061"),
    hypercube(32): ("0.24350", "0.187"),
    complete(32): ("0.39487", "0.404"),
}
RATES = np.logspace(-3, 0, 100)
_BURN_IN, _STEPS, _GROUPS = 10, 40, 20  # multiples of the period, 5; groups of runs for the standard error


def covariance(matrices: Sequence[np.ndarray], gamma: float) -> np.ndarray:
    """Solves C = W (gamma C + I) W^T, over a period of several matrices, by doubling the number of terms."""
    n = len(matrices[0])
    product, C = np.eye(n), np.zeros((n, n))  # noqa: N806
    for W in matrices:  # noqa: N806
        product, C = W @ product, W @ (gamma * C + np.eye(n)) @ W.T  # noqa: N806
    power = gamma ** (len(matrices) / 2) * product
    while np.abs(power).max() > 1e-9:
        C, power = C + power @ C @ power.T, power @ power  # noqa: N806
    return C


def matrices_of(graph: Graphs) -> list[np.ndarray]:
    """Returns the mixing matrices of a period, float64 [n, n] each."""
    return [each.mixing for each in graph.graphs]


def effective_neighbours(graph: Graphs, gamma: float) -> float:
    """Returns n_W(gamma) of the agent with the fewest."""
    return float(1 / ((1 - gamma) * np.diag(covariance(matrices_of(graph), gamma)).max()))


def rate_of(graph: Graphs, eta: float) -> float:
    """Returns r by fixed-point iteration; 0 where D-PSGD does not converge."""
    r = 0.0
    for _ in range(100):
        gamma = (1 - eta) ** 2 / (1 - r)
        if gamma > 1 - 1e-16:
            return r
        n = effective_neighbours(graph, gamma)
        r, before = 1 - (1 - eta) ** 2 - (ZETA - 1) * eta**2 / n, r
        if abs(r - before) < 1e-8:
            return r
        if not 0 <= r < 1:
            return 0.0
    return r


def best(graph: Graphs) -> tuple[float, float]:
    """Returns the best rate and its learning rate."""
    return max((rate_of(graph, float(eta)), float(eta)) for eta in RATES)


def measured(graph: Graphs, eta: float, repetitions: int = 200) -> tuple[float, float]:
    """Runs D-PSGD from models with covariance C; returns the rate of E|x_t|^2 and its standard error."""
    method = dpsgd(graph, eta, beta=0.0, weight_decay=0.0)
    gamma = (1 - eta) ** 2 / (1 - rate_of(graph, eta))
    shape = np.linalg.cholesky(covariance(matrices_of(graph), gamma) + 1e-9 * np.eye(graph.size))

    def loss_fn(x: Array, a: Array) -> Array:
        return jnp.square(a @ x) / 2

    def normal(t: Any, key: Array) -> Array:
        return jax.random.normal(key, (graph.size, DIMENSION))

    def run(key: Array) -> Any:
        x = shape @ normal(0, key)
        return trajectory(method, loss_fn, x, _STEPS, normal, lambda x: jnp.sum(jnp.square(x)), key)

    keys = jax.random.split(jax.random.key(0), repetitions)
    squares = np.asarray(jax.jit(lambda keys: jax.lax.map(run, keys))(keys), np.float64)
    fell = squares.reshape(_GROUPS, -1, _STEPS).mean(axis=1)
    rates = 1 - (fell[:, -1] / fell[:, _BURN_IN - 1]) ** (1 / (_STEPS - _BURN_IN))
    return float(rates.mean()), float(rates.std(ddof=1) / np.sqrt(_GROUPS))


def results() -> list[Compared]:
    """Evaluates the formula on all graphs, and runs D-PSGD at the best learning rates."""
    rows = []
    for graph, (rate, eta) in PRINTED.items():
        found, at = best(graph)
        rows += [to_digits(f"rate, {graph.name}", rate, found)]
        rows += [to_digits(f"learning rate, {graph.name}", eta, at)]
        rows += [within_noise(f"rate of D-PSGD, {graph.name}", rate, *measured(graph, at))]
    return rows


REPRODUCTION = Reproduction(
    "the best rate of D-PSGD on random quadratics, 32 agents, zeta 50",
    "Vogels, Hendrikx and Jaggi, NeurIPS 2022, Section 3.1 (demo.py)",
    results,
    "The formula is exact where all agents are alike. D-PSGD is faster than it on the binary tree.",
)
