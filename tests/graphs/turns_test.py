"""Time-varying graphs: who communicates with whom, and after how many steps all agents agree."""

import math

import numpy as np
import pytest

import saddle_jax as sj


def product(graphs):
    """What one period does to the agents' models."""
    result = np.eye(graphs.size)
    for graph in graphs.graphs:
        result = graph.mixing @ result
    return result


def check_doubly_stochastic(graphs):
    for graph in graphs.graphs:
        assert (graph.mixing >= 0).all()
        np.testing.assert_allclose(graph.mixing.sum(axis=0), 1, atol=1e-12)
        np.testing.assert_allclose(graph.mixing.sum(axis=1), 1, atol=1e-12)


MADE = {
    "one_peer_exponential(6)": lambda: sj.one_peer_exponential(6),
    "base_graph(7, 2)": lambda: sj.base_graph(7, 2),
    "random_matchings(7, 4, seed=3)": lambda: sj.random_matchings(7, 4, seed=3),
    "equi_dynamic(9, 5, seed=2)": lambda: sj.equi_dynamic(9, 5, seed=2),
    "equi_dynamic(9, 5, seed=2, undirected=True, eta=0.25)": lambda: sj.equi_dynamic(
        9, 5, seed=2, undirected=True, eta=0.25
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_the_name_is_the_call_and_every_turn_keeps_the_average(name):
    graphs = MADE[name]()
    assert isinstance(graphs, sj.TimeVarying)
    assert graphs.name == name
    assert graphs.padded(graphs.size + 2).name == name
    assert repr(eval(f"sj.{name}", {"sj": sj})) == repr(graphs)
    check_doubly_stochastic(graphs)
    assert graphs.stochasticity == "doubly"
    second = np.linalg.svd(product(graphs), compute_uv=False)[1]
    expected = 1.0 if second < 1e-14 else 1 - second ** (1 / graphs.period)
    assert graphs.spectral_gap == pytest.approx(expected)
    assert len({graph.neighbours.shape for graph in graphs.graphs}) == 1


# ---- One-peer exponential


@pytest.mark.parametrize("n", range(2, 18))
def test_one_peer_exponential_averages_in_a_period_for_powers_of_two_alone(n):
    graphs = sj.one_peer_exponential(n)
    assert graphs.period == (1 if n == 2 else math.floor(math.log2(n - 1)) + 1)
    for t, graph in enumerate(graphs.graphs):
        for i in range(n):  # i hears i - 2^t
            expected = np.zeros(n)
            expected[i] += 0.5
            expected[(i - 2**t) % n] += 0.5
            np.testing.assert_array_equal(graph.mixing[i], expected)
    is_average = np.abs(product(graphs) - 1 / n).max() < 1e-12
    assert is_average == (n & (n - 1) == 0)
    assert (graphs.spectral_gap == 1) == is_average


# ---- Base-(k+1) graph


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_base_graphs_average_in_one_period_for_every_number_of_agents(degree):
    for n in range(2, 26):
        graphs = sj.base_graph(n, degree)
        for graph in graphs.graphs:
            np.testing.assert_array_equal(graph.mixing, graph.mixing.T)
            assert graph.degree.max() <= degree
        check_doubly_stochastic(graphs)
        np.testing.assert_allclose(product(graphs), 1 / n, atol=1e-12, err_msg=graphs.name)
        assert graphs.spectral_gap == 1
        # the paper's Theorem 1: at most 2 log_(k+1) n + 2 steps
        assert graphs.period <= 2 * math.log(n, degree + 1) + 2 + 1e-9


# Counted in the authors' own sequences.
PERIODS = {
    1: {3: 3, 4: 2, 5: 5, 6: 4, 7: 5, 8: 3, 10: 6, 25: 9},
    2: {3: 1, 5: 3, 6: 2, 7: 4, 10: 4, 25: 6},
}


@pytest.mark.parametrize("degree", PERIODS)
def test_base_graphs_have_the_published_periods(degree):
    assert {n: sj.base_graph(n, degree).period for n in PERIODS[degree]} == PERIODS[degree]


def test_the_base_graph_of_five_agents_step_by_step():
    """Parts {0, 1, 2, 3} and {4}; 4 meets 0, of which four fifths is taken; then 0 to 3 average again."""
    links = [
        {(int(i), int(j)): w for i, j, w in zip(*graph.links, strict=True) if i < j}
        for graph in sj.base_graph(5, 1).graphs
    ]
    assert links[0] == links[3] == {(0, 2): 0.5, (1, 3): 0.5}
    assert links[1] == links[4] == {(0, 1): 0.5, (2, 3): 0.5}
    assert links[2] == pytest.approx({(0, 4): 0.8, (1, 2): 0.5})


# ---- Random matchings


@pytest.mark.parametrize("n", [2, 6, 7])
def test_random_matchings_join_pairs_and_leave_an_odd_agent_alone(n):
    graphs = sj.random_matchings(n, 5, seed=1)
    assert graphs.period == 5
    for graph in graphs.graphs:
        assert sorted(graph.degree) == [0] * (n % 2) + [1] * (n - n % 2)
        np.testing.assert_array_equal(graph.mixing, graph.mixing.T)
        np.testing.assert_array_equal(np.diag(graph.mixing), np.where(graph.degree == 1, 0.5, 1.0))
    if n > 2:
        assert len({graph.mixing.tobytes() for graph in graphs.graphs}) > 1
        assert repr(sj.random_matchings(n, 5, seed=2)) != repr(graphs)


# ---- EquiTopo


def basis(n, a):
    """A(a) of the paper: i sends (n - 1) / n of its model to i + a."""
    matrix = np.eye(n) / n
    for i in range(n):
        matrix[(i + a) % n, i] += (n - 1) / n
    return matrix


@pytest.mark.parametrize(("n", "degree"), [(2, 1), (7, 3), (8, 4), (5, 9)])
def test_equi_static_is_a_mean_of_bases(n, degree):
    graph = sj.equi_static(n, degree, seed=4)
    check_doubly_stochastic(graph)
    # every column is the same one, shifted: its weights count the shifts
    counts = graph.mixing[:, 0][1:] * n / (n - 1) * degree
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-9)
    assert round(counts.sum()) == degree
    mean = sum(round(c) * basis(n, a) for a, c in enumerate(counts, start=1)) / degree
    np.testing.assert_allclose(graph.mixing, mean, atol=1e-12)
    undirected = sj.equi_static(n, degree, seed=4, undirected=True)
    np.testing.assert_allclose(undirected.mixing, (mean + mean.T) / 2, atol=1e-12)
    np.testing.assert_array_equal(undirected.mixing, undirected.mixing.T)
    assert graph.degree.max() <= degree


@pytest.mark.parametrize("eta", [1.0, 0.4])
def test_equi_dynamic_is_one_basis_per_step(eta):
    n = 7
    graphs = sj.equi_dynamic(n, 6, eta=eta)
    assert graphs.period == 6
    for graph in graphs.graphs:
        a = int(np.flatnonzero(graph.mixing[:, 0])[1])
        np.testing.assert_allclose(graph.mixing, (1 - eta) * np.eye(n) + eta * basis(n, a), atol=1e-12)
    assert len({graph.mixing.tobytes() for graph in graphs.graphs}) > 1


@pytest.mark.parametrize("n", [2, 7, 8])
def test_undirected_equi_dynamic_is_a_greedy_matching_along_one_shift(n):
    for graph in sj.equi_dynamic(n, 6, undirected=True, eta=0.5).graphs:
        swap = (graph.mixing - 0.5 * np.eye(n) - 0.5 * np.eye(n) / n) * 2 * n / (n - 1)
        np.testing.assert_allclose(swap, np.round(swap), atol=1e-9)
        partner = swap.argmax(axis=1)
        np.testing.assert_array_equal(partner[partner], np.arange(n))
        pairs = [(i, int(j)) for i, j in enumerate(partner) if i != j]
        assert pairs
        # all pairs are a apart, for one a; and no pair that is a apart is left
        shifts = set.intersection(*({(i - j) % n, (j - i) % n} for i, j in pairs))
        alone = [i for i in range(n) if partner[i] == i]
        assert any(not any((i + a) % n in alone for i in alone) for a in shifts)


BAD = {
    "small": (lambda: sj.one_peer_exponential(1), "n must be an integer >= 2, got 1"),
    "degree": (lambda: sj.base_graph(4, 0), "degree must be an integer >= 1, got 0"),
    "count": (lambda: sj.random_matchings(4, 0), "count must be an integer >= 1 and <= 1000, got 0"),
    "one": (lambda: sj.random_matchings(4, 1), "count must be at least 2 to connect 4 agents, got 1"),
    "seed": (lambda: sj.random_matchings(4, 3, seed=-1), "seed must be .* got -1"),
    "few": (
        lambda: sj.equi_dynamic(4, 1, undirected=True),
        "no steps that connect the agents in 1000 draws: ask for more links or steps",
    ),
    "bases": (lambda: sj.equi_static(4, 0), "degree must be an integer >= 1 and <= 1000, got 0"),
    "switch": (lambda: sj.equi_static(4, 2, undirected=1), "undirected must be a bool, .* got 1"),
    "eta": (lambda: sj.equi_dynamic(4, 2, eta=0.0), "eta must be a number > 0 and <= 1, got 0.0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named_with_their_value(name):
    make, message = BAD[name]
    with pytest.raises(sj.ArgumentError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
