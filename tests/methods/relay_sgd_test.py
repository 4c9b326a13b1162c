"""RelaySGD against its paper in NumPy, with and without lost messages, and where it ends."""

import dataclasses

import chex
import numpy as np
import optax
import published_relay as published
import pytest
from problem import Problem, assert_transcribed_with_radii, run
from quadratics import Quadratics
from suited import PLAIN

import saddle_jax as sj

pytestmark = pytest.mark.usefixtures("x64")

MISSING = ("own", "last", "counts", "first")
EDGES = ((0, 1), (1, 2), (1, 3), (3, 4), (3, 5), (5, 6))  # irregular; 0 and 2 are four links from 6
SCHEDULE = optax.piecewise_constant_schedule(0.2, {2: 0.1})


def tree(edges):
    """A topology of a tree with weights that must not matter."""
    size = len(edges) + 1
    mixing = np.zeros((size, size))
    for a, b in edges:
        mixing[a, b] = mixing[b, a] = 0.1
    return sj.from_matrix(mixing + np.diag(1 - mixing.sum(axis=1)), name="tree")


TREES = {
    "tree": (tree(EDGES), EDGES),
    "path": (sj.path(5), ((0, 1), (1, 2), (2, 3), (3, 4))),
    "star": (sj.star(5), ((0, 1), (0, 2), (0, 3), (0, 4))),
}


def eta(t):
    return 0.2 if t < 2 else 0.02


def check(name, missing, heard=None, steps=6, **options):
    """Runs method and transcription side by side, with plain gradients and with SAM."""
    topology, edges = TREES[name]
    problem, options = Problem(topology.size, steps=steps), {"weight_decay": 0.03, "beta": 0.9, **options}
    method = sj.relay_sgd(topology, SCHEDULE, missing=missing, **options)
    if heard is not None:
        method = dataclasses.replace(method, faults=sj.Faults(arrived=heard))
        options["heard"] = lambda t, i, j: heard[t, i, j]

    def transcribe(rho):
        arguments = (problem.start, edges, problem.gradient, steps, eta)
        return published.relay_sgd(*arguments, rho=rho, missing=missing, **options)

    assert_transcribed_with_radii(method, problem, transcribe)


@pytest.mark.parametrize(("missing", "nesterov"), [*zip(MISSING, (False, True) * 2, strict=True)])
def test_it_is_the_published_method(missing, nesterov):
    check("tree", missing, nesterov=nesterov)


@pytest.mark.parametrize("name", ["path", "star"])
def test_it_is_the_published_method_on_other_trees(name):
    check(name, "own", nesterov=True)


@pytest.mark.parametrize("missing", MISSING)
def test_a_lost_message_leaves_average_and_relay_for_one_step(missing):
    heard = np.random.default_rng(0).uniform(size=(6, 7, 7)) > 0.3
    heard |= np.eye(7, dtype=bool)
    check("tree", missing, heard=heard, nesterov=False)


@pytest.mark.parametrize("name", TREES)
def test_it_is_the_exact_average_of_delayed_models(name):
    """x_i = 1/n sum_j h_j, taken max(dist(i, j) - 1, 0) steps ago."""
    topology, edges = TREES[name]
    n, problem = topology.size, Problem(topology.size, steps=8)
    history, _, _ = run(sj.relay_sgd(topology, 0.1, **PLAIN), problem)
    dist = published.distances(n, edges)

    def half(t, j):  # h_j of step t
        w = problem.start[j][1] if t == 0 else np.asarray(history["w"][t - 1, j])
        b = problem.start[j][0] if t == 0 else np.asarray(history["b"][t - 1, j])
        return w - 0.1 * problem.gradient(j, [b, w], t)[1]

    for t in range(int(dist.max()) - 1, problem.steps):
        for i in range(n):
            mean = sum(half(t - max(dist[i, j] - 1, 0), j) for j in range(n)) / n
            np.testing.assert_allclose(history["w"][t, i], mean, atol=1e-12)


def test_after_as_many_steps_as_the_tree_is_wide_everybody_has_heard_of_all():
    method, problem = sj.relay_sgd(TREES["tree"][0], 0.1, **PLAIN), Problem(7, steps=4)
    _, state, _ = run(method, problem)
    assert state.rule.counts.sum(axis=1).tolist() == [6] * 7
    _, state, _ = run(method, Problem(7, steps=3))
    assert state.rule.counts.sum(axis=1).tolist() == [5, 6, 5, 6, 6, 6, 4]  # 0 and 2 are four links from 6


@pytest.mark.parametrize("missing", MISSING)
def test_it_ends_at_the_optimum(missing):
    method = sj.relay_sgd(
        sj.path(5), 0.05, missing=missing, beta=0.5 if missing == "own" else 0.0, weight_decay=0.0
    )
    assert Quadratics(5).distance(method, 1500) < 1e-8


def test_idle_agents_do_not_count():
    problem, path = Problem(3), sj.path(3)
    alone, _, _ = run(sj.relay_sgd(path, 0.1, **PLAIN), problem)
    padded = Problem(4)
    padded.start[:3] = problem.start
    padded.x[:, :3], padded.y[:, :3] = problem.x, problem.y
    history, _, _ = run(sj.relay_sgd(path.padded(4), 0.1, **PLAIN), padded)
    chex.assert_trees_all_close({k: v[:, :3] for k, v in history.items()}, alone, atol=1e-14)


def test_what_is_no_tree_is_refused():
    beside = sj.from_matrix(np.pad(np.full((3, 3), 1 / 3), (0, 1)) + np.diag([0, 0, 0, 1]), connected=False)
    for topology, message in (
        (
            sj.ring(5),
            r"topology must be a tree for relay_sgd, such as sj.spanning_tree\(topology\), got ring",
        ),
        (sj.isolated(4), "topology must be a tree"),
        (sj.exponential(8), "topology must be a tree"),
        (beside, "topology must be a tree for relay_sgd, .* got matrix"),
        (sj.alternate(sj.path(5), sj.star(5)), "topology must have the same links in every step"),
        (5, "topology must be a Topology"),
    ):
        with pytest.raises(ValueError, match=message):
            sj.relay_sgd(topology, 0.1)
    with pytest.raises(ValueError, match=r"missing must be one of 'own', .* got 'x0'"):
        sj.relay_sgd(sj.path(3), 0.1, missing="x0")
