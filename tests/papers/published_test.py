"""The papers of `saddle reproduce --paper=NAME`: their published values, computed anew."""

import csv
import json

import jax
import numpy as np
import pytest

from saddle_jax.cli.__main__ import main
from saddle_jax.papers import (
    PAPERS,
    base_graph,
    beyond_spectral_gap,
    choco,
    motef,
    relaysgd,
    relaysgd_loss,
)
from saddle_jax.papers.common import paper_of, to_digits, units_off, within_noise


def test_a_number_agrees_if_it_rounds_to_the_printed_one():
    assert to_digits("", "7.8e-3", 0.00784).agrees
    assert not to_digits("", "7.8e-3", 0.00786).agrees
    assert to_digits("", "54", 54).agrees
    assert not to_digits("", "54", np.inf).agrees
    assert units_off("12.59", 12.6) == pytest.approx(1)
    assert within_noise("", "0.5", 0.53, 0.011).agrees
    assert within_noise("", "0.5", 0.53, 0.009).verdict == "differs"


def test_the_authors_random_numbers():
    """Two draws each of torch 2 after torch.manual_seed(0), with a few numbers and with blocks of 16."""
    few = relaysgd.torch_normal(np.random.RandomState(0), 3)
    np.testing.assert_allclose(
        few, [1.5409961082440433, -0.2934289057609464, -2.1787893820745574], rtol=1e-14
    )
    random = np.random.RandomState(0)
    first, second = relaysgd.torch_normal(random, 20), relaysgd.torch_normal(random, 20)
    np.testing.assert_allclose(first[:3], [-2.310411800234176, -0.3732508612577643, -1.0608166785462863])
    np.testing.assert_allclose(second[-2:], [-0.5787436085078369, -3.4796352415709877])


@pytest.mark.filterwarnings("ignore:.*-1/3")
def test_relaysgd_takes_the_published_numbers_of_steps():
    with jax.enable_x64(True):
        problems = [relaysgd.quadratics(zeta2) for zeta2 in relaysgd.ZETAS]
        for name, row in relaysgd.PRINTED.items():
            some = 2 if row.stands_still else 3  # the third takes 20,000 steps
            row = row._replace(steps=row.steps[:some], rates=row.rates[:some])
            assert tuple(relaysgd.steps_to_target(row, problems[:some])) == row.steps, name


def test_relaysgds_quadratics_have_the_heterogeneity_and_distance_that_are_asked_for():
    problem = relaysgd.quadratics(10.0)
    optimum = problem.optimum()
    gradients = np.einsum("nij,ni->nj", problem.A, problem.A @ optimum - problem.b)
    np.testing.assert_allclose(gradients.mean(axis=0), 0, atol=1e-12)
    assert np.mean(np.sum(gradients**2, axis=1)) == pytest.approx(10, abs=1e-4)
    assert np.linalg.norm(optimum) == pytest.approx(1)
    np.testing.assert_allclose(np.linalg.svd(problem.A[3])[1], np.linspace(1, 0.5, 10))


def test_six_graphs_have_the_published_rates():
    for graph, (rate, eta) in beyond_spectral_gap.PRINTED.items():
        found, at = beyond_spectral_gap.best(graph)
        assert to_digits("", rate, found).agrees, graph
        assert to_digits("", eta, at).agrees, graph


def test_agents_have_all_neighbours_on_a_complete_graph_and_none_on_an_isolated_one():
    complete = list(beyond_spectral_gap.PRINTED)[-1]
    assert beyond_spectral_gap.effective_neighbours(complete, 0.5) == pytest.approx(32)
    alone = [np.eye(4)]
    np.testing.assert_allclose(beyond_spectral_gap.covariance(alone, 0.75), 4 * np.eye(4))


def test_dpsgd_is_faster_than_the_formula_where_agents_differ():
    """On the binary tree; the exact rate is that of the covariance's own recursion, by power iteration."""
    (graph,) = (graph for graph in beyond_spectral_gap.PRINTED if graph.name == "binary_tree(32)")
    eta, zeta, W = 0.0614, beyond_spectral_gap.ZETA, graph.mixing  # noqa: N806
    C = np.eye(32)  # noqa: N806
    for _ in range(300):
        extra = (zeta * eta**2 + 1 - 2 * eta) * np.diag(np.diag(C))
        C, before = W @ ((1 - eta) ** 2 * (C - np.diag(np.diag(C))) + extra) @ W.T, np.trace(C)  # noqa: N806
    found, error = beyond_spectral_gap.measured(graph, eta, 60)
    assert error < 0.002
    assert abs(found - (1 - np.trace(C) / before)) < 4 * error
    assert found > beyond_spectral_gap.rate_of(graph, eta) + 4 * error


def test_motef_and_beer_end_at_the_published_errors():
    assert all(one.agrees for one in motef.results((8,)))


def test_base_graphs_average_exactly_after_as_many_graphs_as_published():
    assert [one.verdict for one in base_graph.results()] == ["agrees"] * 5


def test_choco_trains_where_ecd_is_lost():
    problem, at = choco.Problem(), np.array([200, 800])
    np.testing.assert_allclose(problem.loss.gradient(problem.optimum), 0, atol=1e-12)
    top, ecd = (problem.errors(choco.METHODS[name], at, 800, 1) for name in ("CHOCO, top 1 %", "ECD, 4 bits"))
    assert top[1] < 0.7 * top[0] < 0.7
    assert ecd[1] > 1


@pytest.mark.parametrize("keeps_average", [False, True])
def test_d2_stands_lost_messages_only_if_w_stays_doubly_stochastic(keeps_average):
    make = relaysgd_loss.METHODS["D2"]
    found = relaysgd_loss.on_digits(make, 0.1, keeps_average=keeps_average, steps=150)
    assert (found > 85) == keeps_average


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_says_what_it_compares_with(name):
    paper = paper_of(name)
    assert paper.title[0].islower()
    assert any(char.isdigit() for char in paper.source)  # the year


def test_the_command_makes_a_table_and_a_picture(tmp_path, capsys):
    command = ["saddle", "reproduce", "--paper=base_graph", f"--workdir={tmp_path / 'new'}"]
    assert main(command) == 0
    assert "Base-2 graph" in capsys.readouterr().out
    with (tmp_path / "new" / "base_graph.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"what": "Base-2 graph", "published": "9", "ours": "9", "verdict": "agrees"}
    assert (tmp_path / "new" / "base_graph.png").read_bytes().startswith(b"\x89PNG")
    assert main([*command, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [one["ours"] for one in content["results"]] == [9, 6, 5, 2, "never"]
    assert main([*command, "--table=1"]) == 2
    assert capsys.readouterr().err == "saddle: table must be given with --paper=saddle alone\n"
