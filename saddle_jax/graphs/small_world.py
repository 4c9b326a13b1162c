"""Small-world graphs: a ring lattice, some of whose links are rewired to random agents."""

import networkx as nx

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.topology import Topology
from saddle_jax.graphs.weights import connected_draw


def small_world(n: int, degree: int, probability: float, seed: int = 0) -> Topology:
    """Joins each agent to the `degree` nearest on a ring and rewires each link with the given probability.

    Watts and Strogatz, "Collective dynamics of small-world networks", 1998. Weights are Metropolis-Hastings
    weights; graphs are drawn until one is connected.

    >>> sj.small_world(20, 4, 0.1)
    small_world(20, 4, 0.1, seed=0): 20 agents, degrees ... to ..., 80 directed links, spectral gap ...
    """
    n = checks.whole("n", n, at_least=3)
    degree = checks.whole("degree", degree, at_least=2, at_most=n - 1)
    if degree % 2:
        raise ArgumentError(f"degree must be even for a small world, half on either side, got {degree}")
    probability = checks.real("probability", probability, at_least=0.0, at_most=1.0)
    name = f"small_world({n}, {degree}, {probability:g}, seed={seed})"
    return connected_draw(
        name, seed, lambda random: nx.watts_strogatz_graph(n, degree, probability, seed=random)
    )
