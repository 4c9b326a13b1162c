"""MoTEF against BEER (Islamov, Gao, Stich, ICLR 2025, Figure 1): the error falls with the number of agents.

    f_i(x) = |a_i x - b_i|^2 / 2      a_i = i / sqrt(n), b_i ~ N(0, zeta / i^2 I), i = 1 ... n; x in R^20
    gradients have noise of variance sigma^2; zeta = sigma = 10; a ring; top-10 %, gamma 0.1, eta 5e-4

The error is 1/n sum_i |x_i - x*|^2, averaged over the last 500 of 6,000 steps. The authors' random numbers
are NumPy's from seed 0, set again for every n: b first, then two draws that the noise-free first gradient
does not use, then the noise of every step.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array
from saddle_jax.compression.sparsification import top_k
from saddle_jax.core.method import Method
from saddle_jax.graphs.named import ring
from saddle_jax.methods.beer import beer
from saddle_jax.methods.motef import motef
from saddle_jax.papers.common import Compared, Reproduction, to_digits, trajectory

DIMENSION, ZETA, SIGMA = 20, 10.0, 10.0
STEPS, LAST = 6000, 500
SIZES = (2, 4, 8, 16)
PRINTED = {
    "MoTEF": ("7.8e-3", "5.1e-3", "1.1e-3", "3.7e-4"),
    "BEER": ("7.9e-3", "5.5e-3", "2.4e-3", "3.2e-3"),
}


def method_of(name: str, agents: int) -> Method:
    """Returns MoTEF with lambda 0.005, or BEER, which has lambda 1."""
    options: dict[str, Any] = {"compressor": top_k(0.1), "gamma": 0.1, "weight_decay": 0.0}
    if name == "MoTEF":
        return motef(ring(agents), 5e-4, lam=0.005, **options)
    return beer(ring(agents), 5e-4, **options)


def error(name: str, agents: int, steps: int = STEPS) -> float:
    """Returns the mean error of the last steps."""
    random = np.random.RandomState(0)
    a = np.arange(1, agents + 1) / np.sqrt(agents)
    b = np.stack([random.normal(0, np.sqrt(ZETA) / i, DIMENSION) for i in range(1, agents + 1)])
    random.normal(size=(2, agents, DIMENSION))
    noise = random.normal(0, SIGMA / np.sqrt(DIMENSION), (steps - 1, agents, DIMENSION))
    noise = np.concatenate([np.zeros((1, agents, DIMENSION)), noise])
    optimum = a @ b / (a @ a)

    def loss_fn(x: Array, data: tuple[Array, Array, Array]) -> Array:
        a, b, z = data
        return jnp.sum((a * x - b) ** 2) / 2 + z @ x

    def run(noise: Array) -> Any:
        x = jnp.tile(1 / DIMENSION + optimum, (agents, 1))
        data = (jnp.asarray(a), jnp.asarray(b))
        return trajectory(
            method_of(name, agents), loss_fn, x, steps, lambda t, key: (*data, noise[t]),
            lambda x: jnp.mean(jnp.sum((x - optimum[None]) ** 2, axis=1)),
        )  # fmt: skip

    return float(jax.jit(run)(noise)[-LAST:].mean())


def results(sizes: tuple[int, ...] = SIZES) -> list[Compared]:
    """Runs both methods with each number of agents."""
    with jax.enable_x64(True):
        return [
            to_digits(f"{name}, {agents} agents", PRINTED[name][SIZES.index(agents)], error(name, agents))
            for name in PRINTED
            for agents in sizes
        ]


REPRODUCTION = Reproduction(
    "error of MoTEF and BEER by number of agents",
    "Islamov, Gao and Stich, ICLR 2025, Figure 1 (synthetic/experiments/node.py)",
    results,
    "MoTEF's error falls with the number of agents; BEER's, without momentum, stops falling.",
)
