"""Where methods end on heterogeneous quadratics without noise: at the optimum, or by how much beside it."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
from fixed_points import FixedPoints
from problem import IRREGULAR
from quadratics import Quadratics
from suited import PLAIN, plain
from tracking_test import PUSH, PUSH_TURNS, TURNS

import saddle_jax as sj
from saddle_jax.methods import base_methods

pytestmark = pytest.mark.usefixtures("x64")

ETA = 0.02
# The methods that momentum is a part of; the others have none here.
MOMENTUM = ["qgm", "q_saddle", "ngm", "n_saddle", "cga"]
MOMENTUM += ["momentum_tracking", "decentlam", "dfedavgm", "dfedsam"]
# How each method is made beyond that, what is zero where it ends, and the worst agent's distance from
# the optimum there. On IRREGULAR, on PUSH or on a path.
LIMITS = {
    "dpsgd": ({}, FixedPoints.adapt_then_combine, 0.156),
    "d_saddle": ({"rho": 0.1}, lambda p, x: p.adapt_then_combine(x, rho=0.1), 0.167),
    # Nesterov's step beside a momentum that ends at zero is 1 + beta times as long.
    "qgm": ({}, lambda p, x: p.adapt_then_combine(x, factor=1.9), 0.276),
    "q_saddle": ({"rho": 0.1}, lambda p, x: p.adapt_then_combine(x, factor=1.9, rho=0.1), 0.292),
    "ngm": ({}, lambda p, x: p.ngm(x, beta=0.9), 0.81),
    "n_saddle": ({"rho": 0.1}, lambda p, x: p.ngm(x, beta=0.9, rho=0.1), 0.85),
    "gradient_tracking": ({}, FixedPoints.agreement, 0.0),
    "d2": ({}, FixedPoints.agreement, 0.0),
    "gut": ({}, lambda p, x: p.gut(x, mu=0.9), 0.0205),
    "momentum_tracking": ({}, FixedPoints.agreement, 0.0),
    "sgp": ({}, FixedPoints.sgp, 0.044),
    "push_diging": ({}, FixedPoints.agreement, 0.0),
    "decentlam": ({}, FixedPoints.adapt_then_combine, 0.156),
    "cga": ({}, lambda p, x: p.cga(x, beta=0.9), 0.76),
    "relay_sgd": ({}, FixedPoints.agreement, 0.0),
    "deep_squeeze": ({}, lambda p, x: p.adapt_then_combine(x, gamma=0.9), 0.175),
    "dcd": ({}, FixedPoints.adapt_while_combining, 0.187),
    "ecd": ({}, FixedPoints.adapt_while_combining, 0.187),
    "beer": ({"gamma": 0.5}, FixedPoints.agreement, 0.0),
    "motef": ({"gamma": 0.5}, FixedPoints.agreement, 0.0),
    "ada_gossip": ({"gamma": 0.02, "beta2": 0.9}, lambda p, x: p.ada_gossip(x, gamma=0.02), 0.345),
    "kgt": ({}, FixedPoints.agreement, 0.0),
    "dfedavgm": ({}, lambda p, x: p.local_steps(x, steps=5, beta=0.9), 0.98),
    "dfedsam": ({"rho": 0.01}, lambda p, x: p.local_steps(x, steps=5, beta=0.9, rho=0.01), 0.98),
}
OTHER_GRAPHS = {"sgp": PUSH, "push_diging": PUSH, "relay_sgd": sj.path(5)}


def test_every_method_has_a_limit():
    assert LIMITS.keys() == {*base_methods()}


@pytest.mark.parametrize("name", LIMITS)
def test_a_method_ends_where_its_equation_says(name):
    options, equation, distance = LIMITS[name]
    problem, graph = Quadratics(5), OTHER_GRAPHS.get(name, IRREGULAR)
    options = plain(name) | ({"beta": 0.9} if name in MOMENTUM else {}) | options
    models, _ = problem.end(sj.METHODS[name](graph, ETA, **options), steps=4000)
    left = equation(FixedPoints(graph.mixing, problem.h, problem.c, ETA), models)
    assert np.abs(left).max() < 1e-9
    found = np.linalg.norm(models - problem.optimum, axis=1).max()
    assert found == pytest.approx(distance, rel=0.01, abs=1e-8)


# Variants, each with a learning rate and a graph.
EXACT = {
    "gt": lambda: sj.gradient_tracking(IRREGULAR, 0.1, **PLAIN),
    "gt diging": lambda: sj.gradient_tracking(IRREGULAR, 0.1, variant="diging", **PLAIN),
    "gt momentum": lambda: sj.gradient_tracking(IRREGULAR, 0.02, beta=0.9, weight_decay=0.0),
    "gt updates": lambda: sj.gradient_tracking(
        IRREGULAR, 0.02, momentum="updates", beta=0.9, weight_decay=0.0
    ),
    "gt on graphs that take turns": lambda: sj.gradient_tracking(TURNS, 0.05, **PLAIN),
    "gt compressed": lambda: sj.gradient_tracking(
        IRREGULAR, 0.1, compressor=sj.quantize(8), gamma=0.5, **PLAIN
    ),
    "d2": lambda: sj.d2(IRREGULAR, 0.1, **PLAIN),
    "d2 momentum": lambda: sj.d2(IRREGULAR, 0.02, beta=0.9, weight_decay=0.0),
    "d2 on a torus": lambda: sj.d2(sj.torus(4, 4), 0.1, **PLAIN),
    "d2 on graphs that take turns": lambda: sj.d2(TURNS, 0.05, **PLAIN),
    "mt": lambda: sj.momentum_tracking(IRREGULAR, 0.02, weight_decay=0.0),
    "mt mean": lambda: sj.momentum_tracking(IRREGULAR, 0.02, init="mean", weight_decay=0.0),
    "push_diging": lambda: sj.push_diging(PUSH, 0.1, weight_decay=0.0),
    "push_diging on graphs that take turns": lambda: sj.push_diging(PUSH_TURNS, 0.1, weight_decay=0.0),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_methods_end_at_the_optimum(name):
    method = EXACT[name]()
    assert Quadratics(method.topology.size).distance(method) < 1e-8


@pytest.mark.parametrize("name", ["gt", "gt diging", "gt momentum", "gt updates", "d2", "d2 momentum", "mt"])
def test_they_stay_exact_when_messages_are_lost_both_ways(name):
    """What is lost stays with the agent, W is doubly stochastic in every step, and the mean is right."""
    method = dataclasses.replace(
        EXACT[name](), faults=sj.Faults(drop=0.3, symmetric=True, lost_weight="self")
    )
    assert Quadratics(5).distance(method) < 1e-8
    one_way = dataclasses.replace(method, faults=sj.Faults(drop=0.3, symmetric=False, lost_weight="self"))
    assert not Quadratics(5).distance(one_way) < 1e-3


def assert_same_end(method, other):
    """Both end at the same models, which are not the optimum."""
    problem = Quadratics(5)
    models, _ = problem.end(method)
    np.testing.assert_allclose(models, problem.end(other)[0], atol=1e-8)
    assert np.abs(models - problem.optimum).max() > 1e-2


@pytest.mark.parametrize("variant", ["atc", "awc"])
def test_momentum_multiplies_the_bias_of_dpsgd(variant):
    """Momentum 0.9 ends where a learning rate ten times as large does."""
    assert_same_end(
        sj.dpsgd(IRREGULAR, 0.01, beta=0.9, nesterov=False, variant=variant, weight_decay=0.0),
        sj.dpsgd(IRREGULAR, 0.1, variant=variant, **PLAIN),
    )


@pytest.mark.parametrize("name", ["qgm", "decentlam"])
def test_momentum_of_gossiped_steps_keeps_the_bias_of_dpsgd(name):
    options = {"nesterov": False} if name == "qgm" else {}
    options |= {"beta": 0.9, "weight_decay": 0.0}
    assert_same_end(sj.METHODS[name](IRREGULAR, 0.05, **options), sj.dpsgd(IRREGULAR, 0.05, **PLAIN))


@pytest.mark.parametrize(
    ("options", "factor"),
    [({"mu": 0.5}, 0.5), ({"mu": 0.05, "beta": 0.9, "nesterov": False}, 0.95 / (0.95 + 0.05 * 1.9))],
    ids=["gut", "qg-gutm"],
)
def test_gut_shrinks_the_bias_of_dpsgd(options, factor):
    """It ends where (1 - mu) g = (1 - mu + mu b) L x / eta; b is 1 without momentum."""
    method = sj.gut(IRREGULAR, 0.05, point="current", **PLAIN | options)
    assert_same_end(method, sj.dpsgd(IRREGULAR, 0.05 * factor, variant="awc", **PLAIN))


def test_gut_has_a_tenth_of_the_bias_of_dpsgd():
    problem = Quadratics(5)
    biased = problem.distance(sj.dpsgd(IRREGULAR, 0.01, variant="awc", **PLAIN))
    assert problem.distance(sj.gut(IRREGULAR, 0.01, mu=0.9, **PLAIN)) == pytest.approx(0.1 * biased, rel=0.1)


def averaging(graph, rate):
    """D-PSGD on any graph, which `sj.dpsgd` refuses to be."""

    def step(s, x, state):
        return s.network.mix(jax.tree.map(lambda x, g: x - rate * g, x, s.gradient(x))), state

    return sj.Method("averaging", graph, sj.Rule(lambda x: (), step))


def test_on_directed_graphs_push_sum_finds_the_optimum_and_averaging_does_not():
    problem, rows = Quadratics(5), sj.from_matrix(PUSH.mixing.T)
    errors = [problem.distance(sj.sgp(PUSH, rate, **PLAIN)) for rate in (0.02, 0.01)]
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)  # it vanishes with the learning rate
    wrong = [problem.distance(averaging(rows, rate)) for rate in (0.02, 0.01)]
    assert min(wrong) > 0.2
    assert wrong[0] / wrong[1] == pytest.approx(1, rel=0.1)  # it does not


@pytest.mark.parametrize(("variant", "exact"), [("original", False), ("plus", True), ("relay", True)])
def test_d2_after_a_drop_of_the_learning_rate(variant, exact):
    """The rate falls while the gradients are large; "original" keeps a drift for good."""
    schedule = optax.piecewise_constant_schedule(0.1, {10: 0.2})
    distance = Quadratics(5).distance(sj.d2(sj.ring(5), schedule, variant=variant, **PLAIN))
    assert distance < 1e-8 if exact else distance > 1e-2
