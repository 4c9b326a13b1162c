"""Graphs as settings name them, and that all which is built from settings takes graphs that take turns."""

import re

import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax.graphs import GRAPHS, is_random, make_graph

SPEC_SETTINGS = {
    "ring": (8, "ring(8)"),
    "torus": (8, "torus(2, 4)"),
    "torus(4, 2)": (8, "torus(4, 2)"),
    "complete": (8, "complete(8)"),
    "star": (8, "star(8)"),
    "path": (8, "path(8)"),
    "hypercube": (8, "hypercube(8)"),
    "exponential": (8, "exponential(8)"),
    "isolated": (8, "isolated(8)"),
    "circulant([1, 3])": (8, "circulant(8, [1, 3])"),
    "erdos_renyi(0.5)": (8, "erdos_renyi(8, 0.5, seed=3)"),
    "random_regular(3)": (8, "random_regular(8, 3, seed=3)"),
    "small_world(4, 0.1)": (8, "small_world(8, 4, 0.1, seed=3)"),
    "expander": (9, "expander(9, 4, seed=3)"),
    "expander(3)": (8, "expander(8, 3, seed=3)"),
    "karate": (34, "karate()"),
    "davis": (32, "davis()"),
    "florentine": (15, "florentine()"),
    "les_miserables": (77, "les_miserables()"),
    "binary_tree": (8, "binary_tree(8)"),
    "spanning_tree(erdos_renyi(0.5))": (8, "spanning_tree(sj.erdos_renyi(8, 0.5, seed=3))"),
    "spanning_tree(karate)": (34, "spanning_tree(sj.karate())"),
    "directed_ring": (8, "directed_ring(8)"),
    "random_digraph(3)": (8, "random_digraph(8, 3, seed=3)"),
    "one_peer_exponential": (8, "one_peer_exponential(8)"),
    "base_graph": (8, "base_graph(8, 1)"),
    "base_graph(2)": (8, "base_graph(8, 2)"),
    "random_matchings(8)": (8, "random_matchings(8, 8, seed=3)"),
    "equi_static(4)": (8, "equi_static(8, 4, seed=3)"),
    "equi_static(4, undirected=True)": (8, "equi_static(8, 4, seed=3, undirected=True)"),
    "equi_dynamic(16)": (8, "equi_dynamic(8, 16, seed=3)"),
    "equi_dynamic(16, eta=1)": (8, "equi_dynamic(8, 16, seed=3, eta=1)"),
    "equi_dynamic(9, undirected=True, eta=0.7)": (8, "equi_dynamic(8, 9, seed=3, undirected=True, eta=0.7)"),
    "alternate(ring, star())": (8, "alternate(sj.ring(8), sj.star(8))"),
    "ring+star": (8, "alternate(sj.ring(8), sj.star(8))"),
    "ring+isolated+base_graph(1)": (6, "alternate(sj.ring(6), sj.isolated(6), sj.base_graph(6, 1))"),
}


def test_every_graph_of_the_table_is_spelt():
    assert {each.name for text in SPEC_SETTINGS for each in GRAPHS.parse(text).walk()} == set(GRAPHS)


@pytest.mark.parametrize("text", SPEC_SETTINGS)
def test_a_spelling_is_the_graph_of_a_call(text):
    n, call = SPEC_SETTINGS[text]
    GRAPHS.check(text)
    graph = make_graph(text, n, 3)
    expected = eval(f"sj.{call}", {"sj": sj})
    assert graph.size == n
    assert graph.period == expected.period
    assert graph.name == expected.name
    if "alternate" not in call:
        assert graph.name == call.replace("sj.", "")
    for one, other in zip(graph.graphs, expected.graphs, strict=True):
        np.testing.assert_array_equal(one.mixing, other.mixing)
    assert is_random(text) == ("seed" in call)


def test_one_agent_is_alone_on_any_graph_that_it_can_have():
    assert make_graph("base_graph(2)", 1, 0).name == "alone"
    assert make_graph("ring+star", 1, 0).name == "alone"


BAD_NAMES = {
    "rng": "did you mean 'ring'.*topology must be one of ring, .* got 'rng'",
    "ring+str": "did you mean 'star'.*topology must be one of .* got 'str'",
    "ring+": "topology must be NAME.* got 'ring+'",
    "karate(3)": "topology karate takes no options, got 'karate(3)': too many positional arguments",
    "one_peer_exponential(3)": "topology one_peer_exponential takes no options",
    "one_peer_exponential(n=3)": "topology one_peer_exponential takes no options, got option 'n'",
    "erdos_renyi(0.3, seed=1)": "topology erdos_renyi takes probability, got option 'seed'",
    "random_matchings": "topology random_matchings must be given count, got 'random_matchings'",
    "small_world(4)": "topology small_world must be given probability, got 'small_world(4)'",
    "small_world(4, 0.1, 2)": "topology small_world takes degree, probability, got",
    "equi_dynamic(4, directed=True)": "did you mean 'undirected'.*equi_dynamic takes count, undirected, eta",
    "spanning_tree": "topology spanning_tree must be given topology, got 'spanning_tree'",
    "spanning_tree(rng)": "did you mean 'ring'.*topology must be one of ring, .* got 'rng'",
    "spanning_tree(top_k(0.3))": "topology must be one of .* got 'top_k'",
    "torus(2, 4, 8)": "topology torus takes rows, cols, got",
    "circulant": "topology circulant must be given offsets, got 'circulant'",
    "circulant([\uff11, 2])": "topology must be NAME, NAME(option=value, ...)",
    "torus:5x8": "topology must be NAME, NAME(option=value, ...)",
}


@pytest.mark.parametrize("text", BAD_NAMES)
def test_a_misspelt_graph_says_how_it_is_written(text):
    parts = map(re.escape, BAD_NAMES[text].split(".*"))
    with pytest.raises(sj.ArgumentError, match=f"^{'.*'.join(parts)}") as caught:
        GRAPHS.check(text)
    assert "\n" not in str(caught.value)


BAD_SIZES = {
    ("karate", 10): r"topology 'karate' cannot have 10 agents: karate\(\) has 34",
    ("karate", 1): r"topology 'karate' cannot have 1 agents: karate\(\) has 34",
    ("spanning_tree(davis)", 10): r"cannot have 10 agents: spanning_tree\(davis\(\)\) has 32",
    (
        "torus(2, 4)",
        10,
    ): r"topology 'torus\(2, 4\)' cannot have 10 agents: n must be 8 for torus\(2, 4\), got 10",
    ("torus(5)", 10): "cannot have 10 agents: cols must be an integer >= 2, got None",
    ("base_graph(x)", 8): "cannot have 8 agents: degree must be an integer >= 1, got 'x'",
    ("expander(3)", 9): r"cannot have 9 agents: n \* degree must be even",
    ("spanning_tree(exponential)", 8): "cannot have 8 agents: topology must be undirected",
    ("spanning_tree(base_graph(1))", 8): "cannot have 8 agents: topology must be a Topology",
    ("isolated+isolated", 4): "cannot have 4 agents: W must describe a connected graph",
}


@pytest.mark.parametrize(("text", "n"), BAD_SIZES)
def test_a_number_of_agents_that_a_graph_cannot_have_is_refused(text, n):
    with pytest.raises(sj.ArgumentError, match=BAD_SIZES[text, n]) as caught:
        make_graph(text, n, 0)
    assert "\n" not in str(caught.value)
