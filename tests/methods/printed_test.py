"""Every method against the paper's printed algorithms, transcribed in NumPy: 1e-10 in float64."""

import itertools

import numpy as np
import optax
import printed_algorithms as printed
import pytest
from problem import GRAPHS, Problem, run

import saddle_jax as sj

pytestmark = pytest.mark.usefixtures("x64")

COMPRESSORS = {
    "none": (None, None),
    "identity": (sj.identity(), printed.identity),
    "sign": (sj.sign(), printed.sign),
    "top_k": (sj.top_k(0.4), printed.top_k(0.4)),
}
# The learning rate falls at the third step: QGM must divide by the rate of that very step.
SCHEDULE = optax.piecewise_constant_schedule(0.2, {2: 0.1})


def eta(t):
    return 0.2 if t < 2 else 0.02


def check(name, graph, compressor, *, rho, **options):
    """Runs method and transcription side by side and compares every agent, tensor and step."""
    compress, transcribed = COMPRESSORS[compressor]
    problem = Problem(graph.size)
    shared = {"weight_decay": 0.03, **options}
    expected = getattr(printed, name)(
        problem.start,
        graph.mixing,
        problem.gradient,
        problem.steps,
        eta,
        rho=rho,
        Q=transcribed,
        **shared,
    )
    every, reuse = shared.pop("ascent_every", 1), shared.pop("ascent_reuse", False)
    if shared.pop("order", None) == "paper":
        shared["gossip"] = sj.choco(compress, shared.pop("gamma"), order="paper")
    else:
        shared["compressor"] = compress
    method = getattr(sj, name)(graph, SCHEDULE, **shared)
    if rho:
        method = sj.saddle(method, sj.sam(rho, every, reuse))
    history, _, _ = run(method, problem)
    for t, i in itertools.product(range(problem.steps), range(graph.size)):
        for tensor, values in zip(("b", "w"), expected[t][i], strict=True):
            np.testing.assert_allclose(
                history[tensor][t, i], values, rtol=0, atol=1e-10, err_msg=f"step {t}, agent {i}, {tensor}"
            )


@pytest.mark.parametrize(
    ("nesterov", "graph"),
    [(True, graph) for graph in GRAPHS] + [(False, GRAPHS[2])],
    ids=lambda value: getattr(value, "name", {True: "nesterov", False: "heavy-ball"}.get(value)),
)
@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("rho", [0.0, 0.3], ids=["plain", "sam"])
@pytest.mark.parametrize("name", ["dpsgd", "qgm", "ngm"])
def test_methods_are_the_printed_algorithms(name, rho, compressor, nesterov, graph):
    check(name, graph, compressor, rho=rho, nesterov=nesterov, beta=0.9, gamma=0.7)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
@pytest.mark.parametrize("compressor", ["identity", "sign", "top_k"])
@pytest.mark.parametrize("rho", [0.0, 0.3], ids=["plain", "sam"])
@pytest.mark.parametrize("name", ["dpsgd", "qgm"])
def test_the_printed_order_of_compressed_gossip(name, rho, compressor, graph):
    check(name, graph, compressor, rho=rho, order="paper", beta=0.9, gamma=0.5, nesterov=False)


@pytest.mark.parametrize("reuse", [False, True], ids=["plain-between", "reuse"])
@pytest.mark.parametrize("compressor", ["none", "top_k"])
@pytest.mark.parametrize("name", ["dpsgd", "qgm", "ngm"])
def test_the_compute_efficient_variant(name, compressor, reuse):
    check(name, GRAPHS[2], compressor, rho=0.3, ascent_every=3, ascent_reuse=reuse, beta=0.9, nesterov=True)


@pytest.mark.parametrize("rho", [0.0, 0.3], ids=["plain", "sam"])
@pytest.mark.parametrize("compressor", ["none", "sign"])
def test_self_gradients_at_the_mixed_model(compressor, rho):
    check("ngm", GRAPHS[2], compressor, rho=rho, self_gradient="mixed", beta=0.9, gamma=0.5, nesterov=True)


@pytest.mark.parametrize("name", ["dpsgd", "qgm"])
def test_directed_graphs_and_another_mu(name):
    other = {"mu": 0.5} if name == "qgm" else {}
    check(name, sj.exponential(5), "top_k", rho=0.1, beta=0.9, nesterov=True, **other)


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("dpsgd", {"beta": 0.9, "nesterov": True}),
        ("qgm", {"beta": 0.9, "mu": 0.9, "nesterov": True}),
        ("ngm", {"beta": 0.9, "nesterov": True, "self_gradient": "current"}),
    ],
)
def test_defaults_are_the_stated_ones(name, stated):
    problem, graph = Problem(5), GRAPHS[0]
    history, _, _ = run(getattr(sj, name)(graph, 0.1, compressor=sj.top_k(0.4)), problem)
    order = {} if name == "ngm" else {"order": "choco"}
    options = {"gamma": 1.0, "weight_decay": 1e-4, "Q": printed.top_k(0.4), **order, **stated}
    arguments = (problem.start, graph.mixing, problem.gradient, problem.steps, lambda t: 0.1)
    expected = getattr(printed, name)(*arguments, **options)
    np.testing.assert_allclose(history["w"][-1], [w for _, w in expected[-1]], atol=1e-10)
