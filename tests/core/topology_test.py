import functools
import tracemalloc

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import saddle_jax as sj
from saddle_jax import testing
from saddle_jax.base.registry import parameters_of
from saddle_jax.graphs import GRAPHS
from saddle_jax.testing.graphs import check_sums, check_tables

FACTORIES = {
    **{
        name: functools.partial(graph, 8)
        for name, graph in GRAPHS.items()
        if list(parameters_of(graph)) == ["n"] and name != "one_peer_exponential"  # which has several
    },
    "ring": lambda: sj.ring(10),
    "two": lambda: sj.ring(2),
    "torus": lambda: sj.torus(4, 5),
    "complete": lambda: sj.complete(7),
    "star": lambda: sj.star(6),
    "path": lambda: sj.path(5),
    "hypercube": lambda: sj.hypercube(16),
    "exponential": lambda: sj.exponential(11),
    "circulant": lambda: sj.circulant(40, [1, 5]),
    "erdos_renyi": lambda: sj.erdos_renyi(20, 0.2, seed=3),
    "random_regular": lambda: sj.random_regular(12, 3, seed=1),
    "networkx": lambda: sj.from_networkx(nx.petersen_graph()),
    "small_world": lambda: sj.small_world(12, 4, 0.3),
    "expander": lambda: sj.expander(15, 4),
    "karate": sj.karate,
    "davis": sj.davis,
    "florentine": sj.florentine,
    "les_miserables": sj.les_miserables,
    "binary_tree": lambda: sj.binary_tree(9),
    "spanning_tree": lambda: sj.spanning_tree(sj.torus(3, 4)),
    "equi_static": lambda: sj.equi_static(9, 3),
    "equi_static undirected": lambda: sj.equi_static(9, 3, undirected=True),
    "isolated": lambda: sj.isolated(3),
    "alone": lambda: sj.from_matrix([[1.0]]),
}


def test_graphs_compare_by_value():
    ring = sj.ring(8)
    assert ring == sj.ring(8) == sj.from_matrix(ring.mixing, name="mine")
    assert len({ring, sj.ring(8), sj.torus(2, 4), ring.padded(12), sj.ring(8).padded(12)}) == 3
    others = [sj.ring(9), sj.path(8), ring.padded(12), ring.widened(4), sj.alternate(ring), "ring(8)"]
    assert all(ring != other for other in others)
    lazy = sj.from_matrix(0.5 * ring.mixing + 0.5 * np.eye(8))  # the same links, other weights
    assert lazy != ring
    turns = sj.alternate(ring, sj.path(8))
    assert turns == sj.alternate(sj.ring(8), sj.path(8), name="mine")
    assert len({turns, sj.alternate(sj.ring(8), sj.path(8)), sj.alternate(sj.path(8), ring)}) == 2


def test_equal_graphs_are_one_program():
    traced = []

    @functools.partial(jax.jit, static_argnums=0)
    def averaged(graph, x):
        traced.append(graph)
        return sj.mix(graph, x)

    for graph in (sj.ring(4), sj.ring(4), sj.one_peer_exponential(4), sj.one_peer_exponential(4)):
        averaged(graph, jnp.ones(4))
    assert len(traced) == 2


def test_a_large_ring_is_compared_in_little_memory():
    one, other = sj.ring(10_000), sj.ring(10_000)
    tracemalloc.start()
    assert one == other
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6  # W alone would take 800 MB


@pytest.mark.parametrize("name", FACTORIES)
def test_every_invariant_holds(name):
    results = testing.check_graph(FACTORIES[name])
    topology = FACTORIES[name]()
    assert topology.stochasticity == "doubly"
    assert str(topology.size) in repr(topology)
    silent = {each.invariant for each in results if each.status == "does not apply"}
    assert ("a message back finds its slot" in silent) == topology.is_directed
    assert ("everybody is heard by everybody in the end" in silent) == (name in ("isolated", "alone"))


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 14), st.integers(0, 2**32 - 1), st.floats(0.1, 1.0))
def test_any_connected_graph_gets_symmetric_doubly_stochastic_weights(n, seed, density):
    graph = nx.gnp_random_graph(n, density, seed=seed)
    graph.add_edges_from(nx.path_graph(n).edges)  # connected
    topology = sj.from_networkx(graph)
    check_tables(topology)
    check_sums(topology)
    assert topology.stochasticity == "doubly"
    np.testing.assert_array_equal(topology.mixing, topology.mixing.T)
    assert 0 < topology.spectral_gap <= 1 + 1e-12


@pytest.mark.parametrize(("n", "second"), [(5, 0.5393), (10, 0.8727), (20, 0.9674), (40, 0.9918)])
def test_spectral_gap_of_rings(n, second):
    assert sj.ring(n).spectral_gap == pytest.approx(1 - second, abs=5e-5)
    # in closed form: the eigenvalues of a ring are (1 + 2 cos(2 pi k / n)) / 3
    assert sj.ring(n).spectral_gap == pytest.approx(2 / 3 * (1 - np.cos(2 * np.pi / n)), abs=1e-12)


def test_spectral_gap_of_the_tori_that_the_paper_may_mean():
    assert sj.torus(n=40).spectral_gap == pytest.approx(1 - 0.8828, abs=5e-5)
    assert sj.torus(4, 10).spectral_gap == pytest.approx(1 - 0.9236, abs=5e-5)
    assert sj.circulant(40, [1, 5]).spectral_gap == pytest.approx(1 - 0.8779, abs=5e-5)


def test_weights_are_uniform_on_regular_graphs_and_metropolis_otherwise():
    assert set(sj.ring(10).weights.ravel().round(12)) == {round(1 / 3, 12)}
    assert set(sj.torus(n=40).weights.ravel().round(12)) == {0.2}
    star = sj.star(5).mixing  # hub of degree 4, leaves of degree 1
    np.testing.assert_allclose(star[0], [1 / 5] * 5)
    np.testing.assert_allclose(np.diag(star)[1:], 4 / 5)


def test_shapes_of_the_graphs():
    assert sj.torus(n=40).name == "torus(5, 8)"
    assert sj.torus(n=36).name == "torus(6, 6)"
    np.testing.assert_array_equal(sj.ring(4).neighbours[0], [0, 1, 3])
    np.testing.assert_array_equal(sj.exponential(8).neighbours[0], [0, 4, 6, 7])  # hears 0-4, 0-2, 0-1
    assert set(sj.hypercube(8).degree) == {3}
    np.testing.assert_array_equal(sj.isolated(3).mixing, np.eye(3))
    directed = sj.exponential(8)
    assert directed.is_directed
    assert not sj.star(5).is_directed
    cycle = sj.from_matrix(np.roll(np.eye(4), 1, axis=1), connected=False)
    assert cycle.spectral_gap == pytest.approx(0, abs=1e-12)
    assert "-0" not in repr(cycle)
    np.testing.assert_array_equal(directed.out_degree, directed.degree)


def test_random_graphs_depend_on_their_seed_alone():
    np.testing.assert_array_equal(
        sj.erdos_renyi(15, 0.3, seed=4).mixing, sj.erdos_renyi(15, 0.3, seed=4).mixing
    )
    assert not np.array_equal(sj.erdos_renyi(15, 0.3, seed=4).mixing, sj.erdos_renyi(15, 0.3, seed=5).mixing)


def test_the_matrix_cannot_be_changed_behind_its_back():
    given_matrix = np.full((3, 3), 1 / 3)
    topology = sj.from_matrix(given_matrix)
    given_matrix[0, 0] = 7
    assert topology.mixing[0, 0] == 1 / 3
    with pytest.raises(ValueError, match="read-only"):
        topology.mixing[0, 0] = 7


ROWS = sj.from_matrix([[0.9, 0.1], [0.4, 0.6]], name="rows")
MASS = sj.from_matrix(ROWS.mixing.T, name="mass")


def test_what_a_matrix_keeps_is_found_out():
    assert [g.stochasticity for g in (sj.ring(5), sj.exponential(6), ROWS, MASS)] == [
        "doubly",
        "doubly",
        "row",
        "column",
    ]
    assert sj.alternate(MASS, sj.complete(2)).stochasticity == "column"
    assert sj.alternate(sj.ring(4), sj.complete(4)).stochasticity == "doubly"
    assert "column stochastic" in repr(MASS)


def test_graphs_that_take_turns_have_tables_of_one_shape():
    path, star = sj.path(5), sj.star(5)
    both = sj.alternate(path, star, sj.alternate(path))
    assert both.period == 3
    assert [both.at(t).name for t in range(4)] == ["path(5)", "star(5)", "path(5)", "path(5)"]
    for t, graph in ((0, path), (1, star)):
        assert both.at(t).neighbours.shape == (5, 5)
        np.testing.assert_array_equal(both.at(t).mixing, graph.mixing)
        check_tables(both.at(t))
    product = path.mixing @ star.mixing @ path.mixing
    second = np.linalg.svd(product, compute_uv=False)[1]
    assert both.spectral_gap == pytest.approx(1 - second ** (1 / 3))
    assert sj.ring(5).at(7) is not None
    assert sj.ring(5).period == 1
    padded = both.padded(8)
    assert padded.size == 8
    assert padded.at(1).occupied[5:].sum() == 0


def test_large_sparse_graphs_stay_sparse():
    """10,000 agents: no [A, A] matrix is made (0.8 GB), and the spectral gap is known all the same."""
    tracemalloc.start()
    grid = sj.torus(100, 100)
    assert grid.neighbours.shape == (10_000, 5)
    assert grid.spectral_gap == pytest.approx(2 / 5 * (1 - np.cos(2 * np.pi / 100)), rel=1e-4)
    assert grid.stochasticity == "doubly"
    assert grid.back.shape == (10_000, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2e8
    assert "mixing" not in vars(grid)


BAD = {
    "ring": (lambda: sj.ring(1), r"n must be an integer >= 2, got 1"),
    "float": (lambda: sj.ring(3.5), r"n must be an integer >= 2, got 3.5"),
    "bool": (lambda: sj.complete(True), r"n must be an integer >= 2, got True"),
    "text": (lambda: sj.star("5"), r"n must be an integer >= 2, got '5'"),
    "prime": (lambda: sj.torus(n=7), r"n must be a product .* got 7"),
    "rows": (lambda: sj.torus(1, 8), r"rows must be an integer >= 2, got 1"),
    "cube": (lambda: sj.hypercube(12), r"n must be a power of two .* got 12"),
    "offset": (lambda: sj.circulant(8, [0]), r"offsets must be .* got 0"),
    "split": (lambda: sj.circulant(8, [2]), r"connected graph, got 2 separate parts"),
    "odd": (lambda: sj.random_regular(5, 3), r"n \* degree must be even .* got 5 \* 3"),
    "probability": (lambda: sj.erdos_renyi(8, 1.5), r"probability must be .* got 1.5"),
    "sparse": (lambda: sj.erdos_renyi(50, 0.001), r"no connected graph in 1000 draws"),
    "seed": (lambda: sj.erdos_renyi(8, 0.5, seed=-1), r"seed must be .* got -1"),
    "directed": (lambda: sj.from_networkx(nx.DiGraph([(0, 1)])), "undirected"),
    "no graph": (lambda: sj.from_networkx([[0, 1]]), "networkx.Graph, got list"),
    "offsets": (lambda: sj.circulant(8, 3), "offsets must be a sequence of integers, got 3"),
    "ragged": (lambda: sj.from_matrix([[1, 0], [1]]), "W must be a matrix of numbers"),
    "text matrix": (lambda: sj.from_matrix("abc"), "W must be a matrix of numbers .* got 'abc'"),
    "square": (lambda: sj.from_matrix(np.ones((2, 3)) / 3), r"square matrix .* got shape \(2, 3\)"),
    "finite": (lambda: sj.from_matrix([[np.nan, 1], [1, 0]]), r"finite, got W\[0, 0\] = nan"),
    "negative": (lambda: sj.from_matrix([[1.5, -0.5], [-0.5, 1.5]]), r"non-negative, got W\[0, 1\] = -0.5"),
    "sums": (
        lambda: sj.from_matrix([[0.9, 0.3], [0.4, 0.6]]),
        r"rows or columns that sum to one, got row 0 summing to 1.2 and column 0 summing to 1.3",
    ),
    "no graphs": (lambda: sj.alternate(), "graphs must be at least one topology, got none"),
    "other sizes": (lambda: sj.alternate(sj.ring(4), sj.ring(5)), r"the same agents, got sizes \[4, 5\]"),
    "alternate of text": (lambda: sj.alternate("ring"), "graphs must be a Topology, such as .* got 'ring'"),
    "alternate apart": (
        lambda: sj.alternate(sj.isolated(4), sj.isolated(4)),
        "connected graph, got 4 separate parts",
    ),
    "rows and mass": (
        lambda: sj.alternate(ROWS, MASS),
        "must be row or column stochastic alike, got both in alternate",
    ),
    "back": (lambda: sj.exponential(8).back, r"undirected for messages per link, got exponential\(8\)"),
    "empty": (lambda: sj.from_networkx(nx.Graph()), "at least one node, got none"),
    "apart": (lambda: sj.from_matrix(np.eye(4)), "connected graph, got 4 separate parts"),
    "swap": (lambda: sj.from_matrix([[0, 1], [1, 0]]), "bring all models together, got .* spectral gap 0"),
    "circle": (lambda: sj.from_matrix(np.roll(np.eye(4), 1, axis=1)), "spectral gap 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named_with_their_value(name):
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        make()
