"""A problem whose constants are known exactly, so that the real method can be held against the theorem.

    f_i(x) = 1/2 (x - b_i)^T H (x - b_i),     F_i(x; z) = f_i(x) + z^T x,   z = sigma / sqrt(d) (+-1, ...)

One H for all agents, so that grad f_i - grad f = H (b-bar - b_i) does not depend on x: delta is constant, as
Assumption 2 wants it. But then the mean of all models goes its way almost as if there were no graph. With a
`spread` every agent has an H_i of its own, whose mean is H: the graph matters, and delta is that of the
minimum alone. The signs in z are fair, and ||z||^2 is sigma^2 in every draw. L is H's largest
eigenvalue, and every F_i(.; z) is as smooth as f_i.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Key, Params
from saddle_jax.core.mixing import Graphs
from saddle_jax.core.topology import Topology
from saddle_jax.core.trees import consensus, replicate
from saddle_jax.methods.saddle import q_saddle
from saddle_jax.papers.saddle.theory.bound import Setting, mixing_lambda


@dataclasses.dataclass(frozen=True, eq=False)
class Quadratic:
    """Quadratic losses of all agents with known constants; make one with `quadratic`.

    Attributes:
      topology: who hears whom.
      curvature: the eigenvalues of H, which is diagonal, float64 [d].
      centres: b_i, float64 [A, d]; the minimum of f is zero.
      start: x_0, float64 [d].
      sigma: the noise.
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
        """Computes the theorem's constants from the problem, beside the given options."""
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
    """Makes a problem with exactly these constants; H's eigenvalues go evenly over [flattest L, L].

    With a `spread` L and delta are those of H and of the minimum, see `Quadratic`.
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
    """Returns (1 + spread s_i) H for every agent; neighbours in the order of agents have similar ones."""
    shares = np.linspace(-1, 1, agents) if agents > 1 else np.zeros(1)
    return (1 + spread * shares[:, None]) * curvature


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
    """Runs Q-SADDLe as the theorem has it (heavy ball, no weight decay), many times with other noise."""
    repetitions = checks.whole("repetitions", repetitions, at_least=2)
    keys = jax.random.split(jax.random.key(seed), repetitions)
    arrays = (problem.curvature, problem.curvatures, problem.centres, problem.start, problem.sigma)
    averages = np.asarray(_runs(problem.topology, steps, arrays, (eta, beta, mu, rho), keys), np.float64)
    return Measured(float(averages.mean()), float(averages.std(ddof=1) / np.sqrt(repetitions)))


def measure_setting(topology: Graphs, setting: Setting) -> Measured:
    """Measures the method on a problem with exactly the constants of a setting."""
    s = setting
    problem = quadratic(topology, L=s.L, sigma=s.sigma, delta=s.delta, gap=s.gap)
    return measure(problem, eta=s.eta, beta=s.beta, mu=s.mu, rho=s.rho, steps=s.steps)


def _loss(x: Params, batch: tuple[Array, Array, Array]) -> Array:
    """Computes F_i(x; z), the loss of one agent."""
    curvature, centre, z = batch
    return jnp.sum(curvature * (x - centre) ** 2) / 2 + z @ x


@functools.partial(jax.jit, static_argnums=(0, 1))
def _runs(topology: Graphs, steps: int, arrays: tuple, options: tuple, keys: Key) -> Array:
    """Computes 1/T sum_t ||grad f(x-bar_t)||^2 of every repetition [R]; traced options share one program."""
    curvature, curvatures, centres, start, sigma = (jnp.asarray(x, jnp.float32) for x in arrays)
    eta, beta, mu, rho = options
    method = q_saddle(topology, eta, rho, beta=beta, mu=mu, nesterov=False, weight_decay=0.0)
    agents, dimension = centres.shape

    def run(key: Key) -> Array:
        def step(carry, t):
            params, state, total = carry
            gradient = curvature * consensus(params)  # of f at x-bar_t: its minimum is zero
            signs = jax.random.rademacher(jax.random.fold_in(key, t), centres.shape, jnp.float32)
            z = sigma / jnp.sqrt(dimension) * signs
            params, state, _ = method.step(_loss, params, state, (curvatures, centres, z))
            return (params, state, total + jnp.sum(gradient**2) / steps), None

        params = replicate(start, agents)
        carry = (params, method.init(params), jnp.float32(0))
        (_, _, average), _ = jax.lax.scan(step, carry, jnp.arange(steps))
        return average

    return jax.vmap(run)(keys)
