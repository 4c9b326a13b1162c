"""A graph that a method takes, for laws that are told of all methods on one graph."""

import pytest

import saddle_jax as sj
from saddle_jax.methods import METHODS, base_methods

TREES = ("relay_sgd",)  # methods that live on a tree
# Methods that keep something of each link or of each neighbour: links must stay.
FIXED_LINKS = ("relay_sgd", "dcd", "ecd", "beer", "motef", "ada_gossip", "of_the_readme")


PAPER = ("dpsgd", "d_saddle", "qgm", "q_saddle", "ngm", "n_saddle")


def with_and_without(compressor):
    """Parametrises a law over all methods: the paper's in both forms, the others compressed if possible."""
    plain = [name for name in base_methods() if name in PAPER or "compressor" not in METHODS.options(name)]
    compressed = [name for name in base_methods() if "compressor" in METHODS.options(name)]
    cases = [(name, None) for name in plain] + [(name, compressor) for name in compressed]
    return pytest.mark.parametrize(("name", "compressor"), cases, ids=str)


def suited(name, graph):
    """Returns the graph itself, or for a method that needs a tree a path of as many agents."""
    if isinstance(graph, sj.TimeVarying):
        return sj.alternate(*(suited(name, one) for one in graph.graphs))
    if name not in TREES or not isinstance(graph, sj.Topology):
        return graph
    is_tree = not graph.is_directed and graph.degree.sum() == 2 * (graph.size - graph.idle - 1)
    return graph if is_tree else sj.path(graph.size)
