"""Mixing weights of graphs, and random graphs drawn until one is good enough."""

from collections.abc import Callable
from typing import Any, TypeVar

import networkx as nx
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.topology import Links, Topology, from_links

_T = TypeVar("_T")

# The longest period of a time-varying graph: each of its graphs is a branch of the compiled step.
MAX_PERIOD = 1000

# How many random graphs are drawn before an error.
_MAX_DRAWS = 1000


def metropolis(graph: Any) -> Links:
    """Returns a graph's links with Metropolis-Hastings weights, 1 / (degree + 1) on regular graphs."""
    size, number = len(graph), {node: position for position, node in enumerate(graph.nodes)}
    # Self-loops are dropped, and two edges between the same agents are one link.
    edges = {(number[a], number[b]) for a, b in graph.edges() if a != b}
    pairs = np.array(sorted(edges | {(b, a) for a, b in edges}), int).reshape(-1, 2)
    receiver, sender = pairs[:, 0], pairs[:, 1]
    degree = np.bincount(receiver, minlength=size)
    return with_self_weights(
        size, receiver, sender, 1.0 / (1.0 + np.maximum(degree[receiver], degree[sender]))
    )


def with_self_weights(size: int, receiver: Any, sender: Any, weight: Any) -> Links:
    """Adds self-weights that make the rows sum to one to links between different agents."""
    receiver, sender = np.asarray(receiver, int), np.asarray(sender, int)
    own = 1.0 - np.bincount(receiver, weight, size)
    loops = np.flatnonzero(own > 0)  # agents with a self-weight
    receiver, sender = np.r_[receiver, loops], np.r_[sender, loops]
    order = np.lexsort((sender, receiver))
    return Links(receiver[order], sender[order], np.r_[np.asarray(weight, float), own[loops]][order])


def lazy(name: str, size: int, graph: Callable[[], Any]) -> Topology:
    """Makes a topology from a networkx graph that is connected by construction, when it is first needed."""
    return Topology(name, size, lambda: metropolis(graph()))


def draw_until(
    name: str, seed: int, draw: Callable[[np.random.RandomState], _T], good: Callable[[_T], bool], lacks: str
) -> _T:
    """Draws from one stream of random numbers until a draw is good; an error says what they all lack."""
    random = np.random.RandomState(checks.whole("seed", seed, at_least=0, at_most=2**32 - 1))
    for _ in range(_MAX_DRAWS):
        if good(drawn := draw(random)):
            return drawn
    raise ArgumentError(f"{name} gave no {lacks} in {_MAX_DRAWS} draws: ask for more links or steps")


def connected_draw(name: str, seed: int, draw: Callable[[np.random.RandomState], Any]) -> Topology:
    """Draws undirected networkx graphs until one is connected; with Metropolis-Hastings weights."""
    graph = draw_until(name, seed, draw, nx.is_connected, "connected graph")
    return from_links(name, len(graph), *metropolis(graph))
