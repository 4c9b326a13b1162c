"""Graphs with well-known names, each made by one function.

Undirected graphs get uniform weights 1 / (degree + 1) when they are regular and Metropolis-Hastings
weights 1 / (1 + max(degree_i, degree_j)) otherwise; both are symmetric. Arguments are checked at once. The
links of graphs that are connected by construction are made when they are first needed.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import networkx as nx
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.topology import Links, Topology, from_links
from saddle_jax.graphs.weights import lazy, metropolis


def ring(n: int) -> Topology:
    """The ring of n agents: from three on, the weights of an agent and its two neighbours are 1/3.

    >>> sj.ring(10)
    ring(10): 10 agents, degree 2, 20 directed links, spectral gap 0.1273
    """
    n = checks.whole("n", n, at_least=2)
    return lazy(f"ring({n})", n, lambda: nx.cycle_graph(n))


def torus(rows: int | None = None, cols: int | None = None, *, n: int | None = None) -> Topology:
    """The periodic grid: `torus(rows, cols)`, or `torus(n=n)` for a grid of n agents.

    The weights of an agent and its four neighbours are 1/5; with two rows or columns there are fewer
    neighbours. The rows of `torus(n=n)` are the largest divisor of n that is at most sqrt(n).

    >>> sj.torus(n=40)
    torus(5, 8): 40 agents, degree 4, 160 directed links, spectral gap 0.1172
    """
    if rows is None and cols is None:
        n = checks.whole("n", n, at_least=4)
        rows = max(r for r in range(1, math.isqrt(n) + 1) if n % r == 0)
        cols = n // rows
        if rows < 2:
            raise ArgumentError(f"n must be a product of two factors >= 2 for a torus, got {n}, a prime")
    rows = checks.whole("rows", rows, at_least=2)
    cols = checks.whole("cols", cols, at_least=2)
    if n not in (None, rows * cols):
        raise ArgumentError(f"n must be {rows * cols} for torus({rows}, {cols}), got {n}")
    return lazy(f"torus({rows}, {cols})", rows * cols, lambda: nx.grid_2d_graph(rows, cols, periodic=True))


def complete(n: int) -> Topology:
    """The complete graph: every weight is 1/n, and one round of gossip is an exact average.

    >>> sj.complete(4)
    complete(4): 4 agents, degree 3, 12 directed links, spectral gap 1.0000
    """
    n = checks.whole("n", n, at_least=2)

    def make_links() -> Links:
        agents = np.arange(n)
        return Links(np.repeat(agents, n), np.tile(agents, n), np.full(n * n, 1.0 / n))

    return Topology(f"complete({n})", n, make_links)


def star(n: int) -> Topology:
    """The star: agent 0, the hub, is joined to each of the n - 1 others.

    >>> sj.star(4)
    star(4): 4 agents, degrees 1 to 3, 6 directed links, spectral gap 0.2500
    """
    n = checks.whole("n", n, at_least=2)
    return lazy(f"star({n})", n, lambda: nx.star_graph(n - 1))


def path(n: int) -> Topology:
    """The path of n agents, a ring without one link.

    >>> sj.path(4)
    path(4): 4 agents, degrees 1 to 2, 6 directed links, spectral gap 0.1953
    """
    n = checks.whole("n", n, at_least=2)
    return lazy(f"path({n})", n, lambda: nx.path_graph(n))


def hypercube(n: int) -> Topology:
    """The hypercube of n = 2^d agents: neighbours' numbers differ in one binary digit.

    >>> sj.hypercube(8)
    hypercube(8): 8 agents, degree 3, 24 directed links, spectral gap 0.5000
    """
    n = checks.whole("n", n, at_least=2)
    if n & (n - 1):
        raise ArgumentError(f"n must be a power of two for a hypercube, got {n}")
    return lazy(f"hypercube({n})", n, lambda: nx.hypercube_graph(n.bit_length() - 1))


def exponential(n: int) -> Topology:
    """The static exponential graph, directed: agent i receives from i - 1, i - 2, i - 4, ... (mod n).

    Ying et al., "Exponential graph is provably efficient for decentralized deep training", 2021.

    >>> sj.exponential(8)
    exponential(8): 8 agents, degree 3, 24 directed links, spectral gap 0.5000
    """
    n = checks.whole("n", n, at_least=2)
    hops = np.array(sorted({0, *(2**power % n for power in range((n - 1).bit_length()))}))

    def make_links() -> Links:
        receiver = np.repeat(np.arange(n), len(hops))
        sender = np.sort((np.arange(n)[:, None] - hops) % n, axis=1).ravel()
        return Links(receiver, sender, np.full(len(receiver), 1.0 / len(hops)))

    return Topology(f"exponential({n})", n, make_links)


def circulant(n: int, offsets: Sequence[int]) -> Topology:
    """The circulant graph: agent i is joined to i + offset and i - offset (mod n) for each offset.

    The code that the paper builds on calls this one a torus:

    >>> sj.circulant(40, [1, 5])
    circulant(40, [1, 5]): 40 agents, degree 4, 160 directed links, spectral gap 0.1221
    """
    n = checks.whole("n", n, at_least=2)
    if not isinstance(offsets, Iterable):
        raise ArgumentError(f"offsets must be a sequence of integers, got {offsets!r}")
    offsets = [checks.whole("offsets", o, at_least=1, at_most=n - 1) for o in offsets]
    if (parts := math.gcd(n, *offsets)) > 1:
        raise ArgumentError(f"offsets must give a connected graph, got {parts} separate parts")
    return lazy(f"circulant({n}, {offsets})", n, lambda: nx.circulant_graph(n, offsets))


def isolated(n: int) -> Topology:
    """The graph without links, W = I, which is not connected: the baseline of local training.

    >>> sj.isolated(4)
    isolated(4): 4 agents, degree 0, 0 directed links, spectral gap 0.0000
    """
    n = checks.whole("n", n, at_least=1)
    return Topology(f"isolated({n})", n, lambda: Links(np.arange(n), np.arange(n), np.ones(n)))


def from_networkx(graph: Any, name: str | None = None) -> Topology:
    """Makes a topology from an undirected networkx graph, agents numbered in the order of `graph.nodes`.

    Edge weights are ignored: W follows from the degrees. Use `sj.from_matrix` for weights of your own.

    >>> import networkx
    >>> sj.from_networkx(networkx.petersen_graph(), name="petersen")
    petersen: 10 agents, degree 3, 30 directed links, spectral gap 0.5000
    """
    if not isinstance(graph, nx.Graph):
        raise ArgumentError(f"graph must be a networkx.Graph, got {type(graph).__name__}")
    if graph.is_directed():
        raise ArgumentError("graph must be undirected; for a directed one use sj.directed or sj.from_matrix")
    if not len(graph):
        raise ArgumentError("graph must have at least one node, got none")
    return from_links(name or f"networkx({len(graph)})", len(graph), *metropolis(graph))


# ---- observed social networks, each with its own number of agents ----

# The first two are graphs of Vogels et al., "RelaySum for decentralized deep learning on heterogeneous data",
# NeurIPS 2021.


def karate() -> Topology:
    """The friendships of 34 members of a karate club (Zachary, 1977).

    >>> sj.karate()
    karate(): 34 agents, degrees 1 to 17, 156 directed links, spectral gap 0.0312
    """
    return lazy("karate()", 34, nx.karate_club_graph)


def davis() -> Topology:
    """18 women of the American South and the 14 social events they attended (Davis et al., 1941).

    >>> sj.davis()
    davis(): 32 agents, degrees 2 to 14, 178 directed links, spectral gap ...
    """
    return lazy("davis()", 32, nx.davis_southern_women_graph)


def florentine() -> Topology:
    """The marriages among 15 families of Renaissance Florence (Padgett and Ansell, 1993).

    >>> sj.florentine()
    florentine(): 15 agents, degrees 1 to 6, 40 directed links, spectral gap ...
    """
    return lazy("florentine()", 15, nx.florentine_families_graph)


def les_miserables() -> Topology:
    """The 77 characters of Les Misérables, joined if they appear together (Knuth, 1993).

    >>> sj.les_miserables()
    les_miserables(): 77 agents, degrees 1 to 36, 508 directed links, spectral gap ...
    """
    return lazy("les_miserables()", 77, nx.les_miserables_graph)
