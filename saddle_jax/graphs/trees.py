"""Trees, for RelaySGD, which relays sums of models: each link is the only path between its two sides.

Their weights, for methods that gossip, are Metropolis-Hastings weights.
"""

import networkx as nx
import numpy as np
from scipy.sparse import csgraph

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.topology import Topology, require_connected
from saddle_jax.graphs.weights import lazy


def binary_tree(n: int) -> Topology:
    """The binary tree of RelaySGD's authors: agent i >= 1 is joined to i // 2 (Vogels et al., 2021).

    >>> sj.binary_tree(8)
    binary_tree(8): 8 agents, degrees 1 to 3, 14 directed links, spectral gap 0.0...
    """
    n = checks.whole("n", n, at_least=2)
    return lazy(f"binary_tree({n})", n, lambda: _tree(n, [(i // 2, i) for i in range(1, n)]))


def spanning_tree(topology: Topology) -> Topology:
    """A spanning tree of a connected undirected graph: shortest paths to an agent in its middle.

    The middle is that of a path found by two breadth-first searches: to the agent farthest from agent 0, and
    from there to the one farthest from that. On a tree this is its exact centre. Ties go to the agent that is
    found first, so the tree is unique.

    >>> sj.spanning_tree(sj.torus(3, 4))
    spanning_tree(torus(3, 4)): 12 agents, degrees 1 to 4, 22 directed links, spectral gap 0.0...
    """
    checks.instance("topology", topology, Topology, "sj.torus(3, 4)")
    if topology.is_directed:
        raise ArgumentError(f"topology must be undirected for a spanning tree, got {topology.name}")
    require_connected(topology)
    matrix, size = topology._sparse(), topology.size - topology.idle

    def search(start: int) -> tuple[int, np.ndarray]:
        order, towards = csgraph.breadth_first_order(matrix, start, directed=False)
        return int(order[-1]), towards

    one_end, _ = search(0)
    other_end, towards = search(one_end)
    way = [other_end]
    while way[-1] != one_end:
        way.append(int(towards[way[-1]]))
    centre = way[len(way) // 2]
    _, parents = search(centre)
    edges = [(int(parents[i]), i) for i in range(size) if i != centre]
    return lazy(f"spanning_tree({topology.name})", size, lambda: _tree(size, edges))


def _tree(n: int, edges: list[tuple[int, int]]) -> nx.Graph:
    graph = nx.empty_graph(n)
    graph.add_edges_from(edges)
    return graph
