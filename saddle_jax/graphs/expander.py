"""Expanders: sparse graphs whose spectral gap does not shrink as agents are added.

A random regular graph of degree d, drawn until its second eigenvalue is at most that of a Ramanujan graph.
Let lambda be the eigenvalues of its adjacency matrix other than d; those of W are (lambda + 1) / (d + 1). The
graph is accepted if

    |lambda + 1| <= 2 sqrt(d - 1) + 1,   so   spectral gap >= 1 - (2 sqrt(d - 1) + 1) / (d + 1),

which is guaranteed, and 0.107 for d = 4 at any n. By Alon and Boppana no family of graphs is better by more
than a vanishing amount, and most random regular graphs are nearly as good (Friedman, "A proof of Alon's
second eigenvalue conjecture", 2003), so a few draws are enough. Explicit families need special n: squares
(Margulis, Gabber and Galil) or primes (chordal cycles). This one exists for any n > d with n d even.
"""

import math

import networkx as nx
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.topology import Topology, from_links
from saddle_jax.graphs.weights import draw_until, metropolis

# With more, a draw takes minutes, and the graph is no longer sparse.
_MOST_NEIGHBOURS = 64


def expander(n: int, degree: int = 4, seed: int = 0) -> Topology:
    """A random regular graph, drawn until its spectral gap is at least 1 - (2 sqrt(d - 1) + 1) / (d + 1).

    >>> sj.expander(100, 4)
    expander(100, 4, seed=0): 100 agents, degree 4, 400 directed links, spectral gap 0.1...
    """
    n = checks.whole("n", n, at_least=4)
    degree = checks.whole("degree", degree, at_least=3, at_most=min(n - 1, _MOST_NEIGHBOURS))
    if n * degree % 2:
        raise ArgumentError(f"n * degree must be even for a regular graph, got {n} * {degree}")
    name = f"expander({n}, {degree}, seed={seed})"
    promised = certified_gap(degree)

    def draw(random: np.random.RandomState) -> Topology:
        graph = nx.random_regular_graph(degree, n, seed=random)
        return from_links(name, n, *metropolis(graph), connected=False)

    return draw_until(name, seed, draw, lambda graph: graph.spectral_gap >= promised, "expander")


def certified_gap(degree: int) -> float:
    """Returns the spectral gap that every expander of this degree has at least."""
    return 1 - (2 * math.sqrt(degree - 1) + 1) / (degree + 1) - 1e-9  # for rounding
