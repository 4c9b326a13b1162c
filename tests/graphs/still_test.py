"""Graphs that stay: directed ones, networks among people, small worlds, expanders and trees."""

import networkx as nx
import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax.core import topology
from saddle_jax.graphs.random import certified_gap

# ---- Directed graphs


def test_push_sum_weights_divide_what_an_agent_has_among_its_listeners():
    hears = np.array([[1, 0, 1, 0], [1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 1, 0]], bool)  # [i, j]: i hears j
    graph = sj.directed(hears, name="mine")
    expected = np.zeros((4, 4))
    for j in range(4):
        out_degrees = [i for i in range(4) if hears[i, j] and i != j]
        for i in [*out_degrees, j]:
            expected[i, j] = 1 / (len(out_degrees) + 1)
    np.testing.assert_allclose(graph.mixing, expected)
    assert graph.name == "mine"
    assert graph.stochasticity == "column"
    assert graph.is_directed
    assert sj.directed(np.roll(np.eye(4), 1, axis=1)).stochasticity == "doubly"


def test_a_random_digraph_has_equal_out_degrees_and_unequal_in_degrees():
    graph = sj.random_digraph(12, 3, seed=1)
    np.testing.assert_array_equal(graph.out_degree, 3)
    assert len(set(graph.degree)) > 1
    assert graph.stochasticity == "column"
    assert set(graph.links.weight) == {0.25}
    network = nx.DiGraph([(int(j), int(i)) for i, j in zip(*graph.links[:2], strict=True)])
    assert nx.is_strongly_connected(network)
    np.testing.assert_array_equal(graph.mixing, sj.random_digraph(12, 3, seed=1).mixing)
    assert not np.array_equal(graph.mixing, sj.random_digraph(12, 3, seed=2).mixing)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_on_a_directed_ring_everybody_hears_the_one_before(n):
    expected = np.eye(n) / 2
    for i in range(n):
        expected[i, (i - 1) % n] += 0.5
    np.testing.assert_array_equal(sj.directed_ring(n).mixing, expected)


# ---- Networks, small worlds, expanders


@pytest.mark.parametrize(
    ("make", "network"),
    [
        (sj.karate, nx.karate_club_graph),
        (sj.davis, nx.davis_southern_women_graph),
        (sj.florentine, nx.florentine_families_graph),
        (sj.les_miserables, nx.les_miserables_graph),
    ],
)
def test_networks_have_metropolis_weights(make, network):
    graph, network = make(), network()
    assert graph.size == len(network)
    degree = dict(network.degree)
    for a, i in zip(network, range(graph.size), strict=True):
        for b, j in zip(network, range(graph.size), strict=True):
            if a != b:
                weight = 1 / (1 + max(degree[a], degree[b])) if network.has_edge(a, b) else 0
                assert graph.mixing[i, j] == pytest.approx(weight)
    assert graph.is_symmetric
    assert graph.stochasticity == "doubly"


def test_a_small_world_lies_between_a_ring_and_chance():
    np.testing.assert_array_equal(sj.small_world(20, 4, 0.0).mixing, sj.circulant(20, [1, 2]).mixing)
    world = sj.small_world(60, 4, 0.2, seed=3)
    assert world.degree.sum() == 240
    assert world.spectral_gap > sj.circulant(60, [1, 2]).spectral_gap


@pytest.mark.parametrize(("n", "degree"), [(4, 3), (6, 3), (21, 4), (50, 3), (101, 4), (64, 6)])
def test_an_expander_has_its_certified_gap(n, degree):
    graph = sj.expander(n, degree, seed=2)
    np.testing.assert_array_equal(graph.degree, degree)
    moduli = np.sort(np.abs(np.linalg.eigvalsh(graph.mixing)))
    assert 1 - moduli[-2] >= certified_gap(degree)
    assert certified_gap(4) == pytest.approx(0.10718, abs=1e-5)


# ---- Trees


def test_a_binary_tree_has_the_published_edges():
    graph = sj.binary_tree(9)
    edges = {(int(j), int(i)) for i, j in zip(*graph.links[:2], strict=True) if j < i}
    assert edges == {(0, 1), *((i // 2, i) for i in range(2, 9))}
    assert graph.is_tree


@pytest.mark.parametrize(
    "graph",
    [sj.ring(7), sj.torus(4, 5), sj.karate(), sj.star(5), sj.complete(6), sj.erdos_renyi(30, 0.15, seed=1)],
    ids=lambda graph: graph.name,
)
def test_a_spanning_tree_spans_and_keeps_shortest_ways_to_its_middle(graph):
    tree = sj.spanning_tree(graph)
    assert tree.is_tree
    assert tree.name == f"spanning_tree({graph.name})"
    assert set(zip(*tree.links[:2], strict=True)) <= set(zip(*graph.links[:2], strict=True)) | {
        (i, i) for i in range(graph.size)
    }
    np.testing.assert_array_equal(tree.mixing, sj.spanning_tree(graph).mixing)
    network, downsampled = nx.Graph(graph.mixing > 0), nx.Graph(tree.mixing > 0)
    network.remove_edges_from(nx.selfloop_edges(network))
    downsampled.remove_edges_from(nx.selfloop_edges(downsampled))
    ways = dict(nx.all_pairs_shortest_path_length(network))
    assert any(nx.single_source_shortest_path_length(downsampled, c) == ways[c] for c in downsampled)
    assert nx.diameter(downsampled) <= 2 * nx.radius(network) + 2


def test_a_spanning_tree_of_a_tree_is_that_tree():
    path = sj.path(9)
    np.testing.assert_array_equal(sj.spanning_tree(path).mixing, path.mixing)


def test_trees_are_told_from_other_graphs():
    apart = np.eye(5)
    apart[:3, :3] = 1 / 3  # a triangle and two agents: as many links as three agents more would have
    trees = [sj.path(5), sj.star(4), sj.ring(2), sj.path(3).padded(5), sj.from_matrix([[1.0]])]
    others = [sj.ring(4), sj.directed_ring(3), sj.isolated(2), sj.complete(3), sj.one_peer_exponential(4)]
    assert all(graph.is_tree for graph in trees)
    assert not any(graph.is_tree for graph in others)
    assert not sj.from_matrix(apart, connected=False).is_tree
    assert sj.alternate(sj.path(4), sj.path(4)).is_tree
    assert not sj.alternate(sj.path(4), sj.star(4)).is_tree


# ---- Eigenvalues


def test_the_smallest_eigenvalue_of_rings_is_known_in_closed_form():
    for n in (4, 5, 8):
        values = (1 + 2 * np.cos(2 * np.pi * np.arange(n) / n)) / 3
        assert sj.ring(n).smallest_eigenvalue == pytest.approx(values.min())
    assert sj.ring(4).padded(6).smallest_eigenvalue == pytest.approx(-1 / 3)
    assert sj.alternate(sj.ring(4), sj.complete(4)).smallest_eigenvalue == pytest.approx(-1 / 3)


def test_large_graphs_have_the_same_eigenvalues_as_small_ones_solved_whole(monkeypatch):
    graphs = [sj.expander(80, 4), sj.torus(8, 10), sj.small_world(60, 4, 0.1)]
    turns = [sj.random_matchings(40, 12), sj.base_graph(36, 2), sj.equi_dynamic(33, 6)]
    digraphs = sj.alternate(sj.random_digraph(30, 3, seed=1), sj.random_digraph(30, 3, seed=2))
    whole = [(g.spectral_gap, g.smallest_eigenvalue) for g in graphs]
    gaps = [g.spectral_gap for g in (*turns, digraphs)]
    monkeypatch.setattr(topology, "_DENSE_EIGENVALUES", 10)
    for graph, values in zip(graphs, whole, strict=True):
        again = sj.from_matrix(graph.mixing)
        assert (again.spectral_gap, again.smallest_eigenvalue) == pytest.approx(values, rel=1e-5)
    for graph, gap in zip((*turns, digraphs), gaps, strict=True):
        assert sj.alternate(*graph.graphs).spectral_gap == pytest.approx(gap, rel=1e-6)


MATRIX = np.ones((3, 3), bool)
BAD = {
    "shape": (lambda: sj.directed(np.ones((2, 3), bool)), r"square matrix \[A, A\], got shape \(2, 3\)"),
    "ragged": (lambda: sj.directed([[1, 0], [1]]), r"adjacency must be a matrix \[A, A\]"),
    "weights": (lambda: sj.directed(0.5 * MATRIX), "adjacency must have the values True and False"),
    "text": (lambda: sj.directed([["a"]]), "adjacency must have the values True and False"),
    "one way": (lambda: sj.directed([[0, 0], [1, 0]]), "connected graph, got 2 separate parts"),
    "digraph": (lambda: sj.random_digraph(4, 4), "degree must be an integer >= 1 and <= 3, got 4"),
    "ring": (lambda: sj.directed_ring(1), "n must be an integer >= 2, got 1"),
    "odd world": (lambda: sj.small_world(9, 3, 0.1), "degree must be even .* got 3"),
    "probability": (lambda: sj.small_world(9, 4, 1.5), "probability must be .* got 1.5"),
    "world": (lambda: sj.small_world(4, 4, 0.1), "degree must be an integer >= 2 and <= 3, got 4"),
    "expander": (lambda: sj.expander(9, 2), "degree must be an integer >= 3 and <= 8, got 2"),
    "odd expander": (lambda: sj.expander(9, 3), r"n \* degree must be even .* got 9 \* 3"),
    "tree": (lambda: sj.binary_tree(1), "n must be an integer >= 2, got 1"),
    "tree of text": (lambda: sj.spanning_tree("ring"), "topology must be a Topology, such as .* got 'ring'"),
    "directed tree": (lambda: sj.spanning_tree(sj.exponential(8)), "must be undirected for a spanning tree"),
    "apart": (lambda: sj.spanning_tree(sj.isolated(3)), "connected graph, got 3 separate parts"),
    "eigenvalue": (lambda: sj.exponential(8).smallest_eigenvalue, r"symmetric W .* got exponential\(8\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named_with_their_value(name):
    make, message = BAD[name]
    with pytest.raises(sj.ArgumentError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
