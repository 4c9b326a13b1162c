"""The graphs that have names, and the table of them."""

from collections.abc import Callable

from saddle_jax.base.tables import Table, load
from saddle_jax.core.graphs import TimeVarying
from saddle_jax.core.topology import Topology

# A new graph is a file in this folder and a line here. Those that take `n` alone are settings as they are.
GRAPHS: Table[Callable[..., Topology | TimeVarying]] = load(
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
        "erdos_renyi": "saddle_jax.graphs.named:erdos_renyi",
        "random_regular": "saddle_jax.graphs.named:random_regular",
        "small_world": "saddle_jax.graphs.small_world:small_world",
        "expander": "saddle_jax.graphs.expander:expander",
        "karate": "saddle_jax.graphs.social:karate",
        "davis": "saddle_jax.graphs.social:davis",
        "florentine": "saddle_jax.graphs.social:florentine",
        "les_miserables": "saddle_jax.graphs.social:les_miserables",
        "binary_tree": "saddle_jax.graphs.trees:binary_tree",
        "spanning_tree": "saddle_jax.graphs.trees:spanning_tree",
        "directed_ring": "saddle_jax.graphs.directed:directed_ring",
        "random_digraph": "saddle_jax.graphs.directed:random_digraph",
        "one_peer_exponential": "saddle_jax.graphs.one_peer:one_peer_exponential",
        "base_graph": "saddle_jax.graphs.base_graph:base_graph",
        "random_matchings": "saddle_jax.graphs.matchings:random_matchings",
        "equi_static": "saddle_jax.graphs.equitopo:equi_static",
        "equi_dynamic": "saddle_jax.graphs.equitopo:equi_dynamic",
    }
).and_installed("saddle_jax.graphs")
