"""Graphs as settings spell them: ring, torus:5x8, circulant:1,5, erdos_renyi:0.3."""

import functools

from saddle_jax.base import checks, tables
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.topology import Topology, from_matrix
from saddle_jax.graphs import GRAPHS

# The number of agents alone describes these graphs; the others take a setting behind a colon.
_SIMPLE = {name: graph for name, graph in GRAPHS.items() if list(tables.options(graph)) == ["n"]}
_RANDOM = ("erdos_renyi", "random_regular")


def check_topology(text: str) -> None:
    """Checks the name of a graph, apart from what depends on the number of agents."""
    kind, _, setting = text.partition(":")
    checks.known("topology", kind, GRAPHS)
    if kind in _SIMPLE and setting:
        raise ArgumentError(f"topology {kind} takes no setting, got {text!r}")


def is_random(text: str) -> bool:
    """Tells whether a graph is drawn at random, so that it depends on the seed."""
    return text.partition(":")[0] in _RANDOM


# Every Config builds its graph to check it, and random graphs are drawn until they are connected.
@functools.lru_cache(maxsize=32)
def parse_topology(text: str, n: int, seed: int) -> Topology:
    """Builds the graph of `n` agents with this short name; only random graphs look at the seed."""
    kind, _, setting = text.partition(":")
    if n == 1:
        return from_matrix([[1.0]], name="alone")
    try:
        if kind in _SIMPLE and not setting:
            return _SIMPLE[kind](n)
        if kind == "torus" and not setting:
            return GRAPHS["torus"](n)
        if kind == "torus":
            rows, columns = (int(side) for side in setting.split("x"))
            if rows * columns == n:
                return GRAPHS["torus"](rows, columns)
        if kind == "circulant":
            return GRAPHS["circulant"](n, [int(offset) for offset in setting.split(",")])
        if kind == "erdos_renyi":
            return GRAPHS["erdos_renyi"](n, float(setting), seed)
        if kind == "random_regular":
            return GRAPHS["random_regular"](n, int(setting), seed)
    except ValueError as error:
        raise ArgumentError(f"topology {text!r} cannot have {n} agents: {error}") from error
    raise ArgumentError(f"topology {text!r} cannot have {n} agents")
