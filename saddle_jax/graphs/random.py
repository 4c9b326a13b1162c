"""Random graphs: drawn from one stream of random numbers, a seed's, until one is good enough.

Weights are Metropolis-Hastings weights, 1 / (1 + max(degree_i, degree_j)).
"""

import math

import networkx as nx
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.topology import Topology, from_links
from saddle_jax.graphs.weights import connected_draw, draw_until, metropolis

# With more, a draw of an expander takes minutes, and the graph is no longer sparse.
_MOST_NEIGHBOURS = 64


def erdos_renyi(n: int, probability: float, seed: int = 0) -> Topology:
    """The Erdos-Renyi graph: each pair is joined with the given probability; drawn until it is connected.

    >>> sj.erdos_renyi(8, 0.5, seed=1)
    erdos_renyi(8, 0.5, seed=1): 8 agents, degrees ...
    """
    n = checks.whole("n", n, at_least=2)
    checks.real("probability", probability, above=0.0, at_most=1.0)
    name = f"erdos_renyi({n}, {probability}, seed={seed})"
    return connected_draw(name, seed, lambda random: nx.gnp_random_graph(n, probability, seed=random))


def random_regular(n: int, degree: int, seed: int = 0) -> Topology:
    """A random graph in which every agent has `degree` neighbours; drawn until it is connected.

    >>> sj.random_regular(8, 3)
    random_regular(8, 3, seed=0): 8 agents, degree 3, 24 directed links, spectral gap ...
    """
    n = checks.whole("n", n, at_least=2)
    degree = checks.whole("degree", degree, at_least=1, at_most=n - 1)
    _check_even(n, degree)
    name = f"random_regular({n}, {degree}, seed={seed})"
    return connected_draw(name, seed, lambda random: nx.random_regular_graph(degree, n, seed=random))


def small_world(n: int, degree: int, probability: float, seed: int = 0) -> Topology:
    """Joins each agent to the `degree` nearest on a ring and rewires each link with the given probability.

    Watts and Strogatz, "Collective dynamics of small-world networks", 1998; drawn until it is connected.

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


def expander(n: int, degree: int = 4, seed: int = 0) -> Topology:
    """A random regular graph, drawn until its spectral gap is at least 1 - (2 sqrt(d - 1) + 1) / (d + 1).

    Expanders are sparse graphs whose spectral gap does not shrink as agents are added. Let lambda be the
    eigenvalues of the adjacency matrix other than d; those of W are (lambda + 1) / (d + 1). A graph is
    accepted if its second eigenvalue is at most that of a Ramanujan graph,

        |lambda + 1| <= 2 sqrt(d - 1) + 1,

    which promises a gap of 0.107 for d = 4 at any n. By Alon and Boppana no family of graphs is better by
    more than a vanishing amount, and most random regular graphs are nearly as good (Friedman, "A proof of
    Alon's second eigenvalue conjecture", 2003), so a few draws are enough. Explicit families need special n:
    squares (Margulis, Gabber and Galil) or primes (chordal cycles); this one exists for any n > d with n d
    even.

    >>> sj.expander(100, 4)
    expander(100, 4, seed=0): 100 agents, degree 4, 400 directed links, spectral gap 0.1...
    """
    n = checks.whole("n", n, at_least=4)
    degree = checks.whole("degree", degree, at_least=3, at_most=min(n - 1, _MOST_NEIGHBOURS))
    _check_even(n, degree)
    name = f"expander({n}, {degree}, seed={seed})"
    promised = certified_gap(degree)

    def draw(random: np.random.RandomState) -> Topology:
        graph = nx.random_regular_graph(degree, n, seed=random)
        return from_links(name, n, *metropolis(graph), connected=False)

    return draw_until(name, seed, draw, lambda graph: graph.spectral_gap >= promised, "expander")


def certified_gap(degree: int) -> float:
    """Returns the spectral gap that every expander of this degree has at least."""
    return 1 - (2 * math.sqrt(degree - 1) + 1) / (degree + 1) - 1e-9  # for rounding


def _check_even(n: int, degree: int) -> None:
    if n * degree % 2:
        raise ArgumentError(f"n * degree must be even for a regular graph, got {n} * {degree}")
