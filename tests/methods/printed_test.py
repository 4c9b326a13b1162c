"""Every method against the paper's printed algorithms, transcribed in NumPy: 1e-10 in float64."""

import optax
import printed_algorithms as printed
import pytest
from problem import GRAPHS, Problem, assert_transcribed, assert_transcribed_with_radii, run

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


METHODS, ORDERED = ("dpsgd", "qgm", "ngm"), ("dpsgd", "qgm")
# With Nesterov's step on each graph, and with the heavy ball.
NETWORKS = [*((True, graph) for graph in GRAPHS), (False, GRAPHS[2])]


def check(name, graph, compressor, ascent_every=1, ascent_reuse=False, **options):
    """Runs method and transcription side by side, with plain gradients and with SAM."""
    compress, transcribed = COMPRESSORS[compressor]
    problem, options = Problem(graph.size), {"weight_decay": 0.03, **options}
    ours = dict(options)
    if ours.pop("order", None) == "paper":
        ours["gossip"] = sj.choco(compress, ours.pop("gamma"), order="paper")
    else:
        ours["compressor"] = compress

    def transcribe(rho):
        arguments = (problem.start, graph.mixing, problem.gradient, problem.steps, eta)
        climbs = {"rho": rho, "ascent_every": ascent_every, "ascent_reuse": ascent_reuse}
        return getattr(printed, name)(*arguments, Q=transcribed, **climbs, **options)

    method = getattr(sj, name)(graph, SCHEDULE, **ours)
    assert_transcribed_with_radii(method, problem, transcribe, ascent_every, ascent_reuse)


def label(value):
    return getattr(value, "name", {True: "nesterov", False: "heavy-ball"}.get(value))


# Of three choices each pair is met: with every compressor each method and each network, and so on.
@pytest.mark.parametrize(
    ("name", "compressor", "nesterov", "graph"),
    [
        (METHODS[(c + n) % 3], compressor, *network)
        for c, compressor in enumerate(COMPRESSORS)
        for n, network in enumerate(NETWORKS)
    ],
    ids=label,
)
def test_methods_are_the_printed_algorithms(name, compressor, nesterov, graph):
    check(name, graph, compressor, nesterov=nesterov, beta=0.9, gamma=0.7)


@pytest.mark.parametrize(
    ("name", "compressor", "graph"),
    [
        (ORDERED[(c + g) % 2], compressor, graph)
        for c, compressor in enumerate(["identity", "sign", "top_k"])
        for g, graph in enumerate(GRAPHS)
    ],
    ids=label,
)
def test_the_printed_order_of_compressed_gossip(name, compressor, graph):
    check(name, graph, compressor, order="paper", beta=0.9, gamma=0.5, nesterov=False)


@pytest.mark.parametrize(
    ("name", "reuse", "compressor"),
    [
        (name, reuse, ("none", "top_k")[(n + reuse) % 2])
        for n, name in enumerate(METHODS)
        for reuse in (False, True)
    ],
)
def test_the_compute_efficient_variant(name, reuse, compressor):
    check(name, GRAPHS[2], compressor, ascent_every=3, ascent_reuse=reuse, beta=0.9, nesterov=True)


@pytest.mark.parametrize("compressor", ["none", "sign"])
def test_self_gradients_at_the_mixed_model(compressor):
    check("ngm", GRAPHS[2], compressor, self_gradient="mixed", beta=0.9, gamma=0.5, nesterov=True)


@pytest.mark.parametrize("name", ["dpsgd", "qgm"])
def test_directed_graphs_and_another_mu(name):
    other = {"mu": 0.5} if name == "qgm" else {}
    check(name, sj.exponential(5), "top_k", beta=0.9, nesterov=True, **other)


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
    assert_transcribed(history, expected)
