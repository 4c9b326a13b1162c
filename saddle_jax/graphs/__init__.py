"""The graphs that have names, and the table of them."""

from collections.abc import Callable

from saddle_jax.base.tables import load
from saddle_jax.core.topology import Topology

# A new graph is a file in this folder and a line here. Those that take `n` alone are settings as they are.
GRAPHS: dict[str, Callable[..., Topology]] = load(
    {
        "ring": "saddle_jax.graphs.named:ring",
        "torus": "saddle_jax.graphs.named:torus",
        "complete": "saddle_jax.graphs.named:complete",
        "star": "saddle_jax.graphs.named:star",
        "chain": "saddle_jax.graphs.named:chain",
        "hypercube": "saddle_jax.graphs.named:hypercube",
        "exponential": "saddle_jax.graphs.named:exponential",
        "isolated": "saddle_jax.graphs.named:isolated",
        "circulant": "saddle_jax.graphs.named:circulant",
        "erdos_renyi": "saddle_jax.graphs.named:erdos_renyi",
        "random_regular": "saddle_jax.graphs.named:random_regular",
    }
)
