"""The registry of graphs, and how settings name one: ring, torus(5, 8), spanning_tree(karate), ring+star.

The number of agents n and, for random graphs, the seed are the run's. A graph of your own is a function
of n, and of seed if it is random, or a file.
"""

import functools
from typing import TYPE_CHECKING

from saddle_jax.base import user_code
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.registry import Registry, Spec, parameters_of

if TYPE_CHECKING:
    from saddle_jax.core.topology import Graphs

# A new graph is a function in this folder and a line here.
GRAPHS = Registry(
    "topology",
    {
        "ring": "saddle_jax.graphs.named:ring",
        "torus": "saddle_jax.graphs.named:torus",
        "complete": "saddle_jax.graphs.named:complete",
        "star": "saddle_jax.graphs.named:star",
        "path": "saddle_jax.graphs.named:path",
        "hypercube": "saddle_jax.graphs.named:hypercube",
        "exponential": "saddle_jax.graphs.named:exponential",
        "isolated": "saddle_jax.graphs.named:isolated",
        "circulant": "saddle_jax.graphs.named:circulant",
        "erdos_renyi": "saddle_jax.graphs.random:erdos_renyi",
        "random_regular": "saddle_jax.graphs.random:random_regular",
        "small_world": "saddle_jax.graphs.random:small_world",
        "expander": "saddle_jax.graphs.random:expander",
        "karate": "saddle_jax.graphs.named:karate",
        "davis": "saddle_jax.graphs.named:davis",
        "florentine": "saddle_jax.graphs.named:florentine",
        "les_miserables": "saddle_jax.graphs.named:les_miserables",
        "binary_tree": "saddle_jax.graphs.trees:binary_tree",
        "spanning_tree": "saddle_jax.graphs.trees:spanning_tree",
        "directed_ring": "saddle_jax.graphs.directed:directed_ring",
        "random_digraph": "saddle_jax.graphs.directed:random_digraph",
        "one_peer_exponential": "saddle_jax.graphs.time_varying:one_peer_exponential",
        "base_graph": "saddle_jax.graphs.base_graph:base_graph",
        "random_matchings": "saddle_jax.graphs.time_varying:random_matchings",
        "equi_static": "saddle_jax.graphs.equitopo:equi_static",
        "equi_dynamic": "saddle_jax.graphs.equitopo:equi_dynamic",
        "alternate": "saddle_jax.core.topology:alternate",
    },
    kinds=["saddle_jax.core.topology:Topology", "saddle_jax.core.topology:TimeVarying"],
    context=["n", "seed"],
    read="saddle_jax.graphs.files:read_graph",
    group="saddle_jax.graphs",
)


def make_graph(text: str, n: int, seed: int) -> "Graphs":
    """Makes the graph of `n` agents that a text names; cached while the files it comes from are unchanged."""
    spec = GRAPHS.check(text)
    return _made(text, n, seed, tuple(found.sha256 for found in sources_of(spec)))


def is_random(text: str) -> bool:
    """Returns whether a graph depends on the seed; imports user code to find out."""
    every = [each for each in GRAPHS.parse(text).walk() if each.is_code or each.name in GRAPHS]
    things = [GRAPHS.load(each) for each in every]
    return any(callable(thing) and "seed" in parameters_of(thing) for thing in things)


def sources_of(spec: Spec) -> list[user_code.Source]:
    """Reads the user's files that define a graph; graphs of installed packages have none."""
    every = [each for each in spec.walk() if each.is_code or each.is_path]
    return [
        user_code.read("topology", each.name) if each.is_path else user_code.source("topology", each.name)
        for each in every
    ]


# Cached, because every Settings makes its graph to check it, and random graphs take several draws.
@functools.lru_cache(maxsize=32)
def _made(text: str, n: int, seed: int, hashes: tuple[str, ...]) -> "Graphs":
    spec = GRAPHS.parse(text)
    if n == 1 and GRAPHS.is_ours(spec) and all(_takes_agents(each) for each in spec.walk()):
        from saddle_jax.core.topology import from_matrix

        return from_matrix([[1.0]], name="alone")
    try:
        graph: Graphs = GRAPHS.make(spec, n=n, seed=seed)
    except user_code.UserCodeError:
        raise
    except ValueError as error:
        if not GRAPHS.is_ours(spec):
            raise
        raise ArgumentError(f"topology {text!r} cannot have {n} agents: {error}") from error
    if graph.size != n:
        raise ArgumentError(f"topology {text!r} cannot have {n} agents: {graph.name} has {graph.size}")
    return graph


def _takes_agents(spec: Spec) -> bool:
    """Returns whether a graph can have any number of agents, unlike observed ones such as karate."""
    return spec.name not in GRAPHS or bool(parameters_of(GRAPHS[spec.name]))
