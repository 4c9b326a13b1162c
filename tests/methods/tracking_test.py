"""Tracking methods and their neighbours against the published equations in NumPy: 1e-10 in float64."""

import numpy as np
import optax
import printed_algorithms as printed
import published_tracking as published
import pytest
from problem import GRAPHS, IRREGULAR, Problem, assert_transcribed_with_radii

import saddle_jax as sj
from saddle_jax.methods import METHODS

pytestmark = pytest.mark.usefixtures("x64")

# The learning rate falls at the third step: what is kept in its units must be seen through.
SCHEDULE = optax.piecewise_constant_schedule(0.2, {2: 0.1})


def eta(t):
    return 0.2 if t < 2 else 0.02


def push_graph(extra, name):
    """A directed ring with one link more: columns sum to one, rows do not."""
    adjacency = np.eye(5) + np.roll(np.eye(5), 1, axis=0)
    adjacency[extra] = 1
    return sj.from_matrix(adjacency / adjacency.sum(axis=0), name=name)


TURNS = sj.alternate(sj.path(5), sj.exponential(5), sj.star(5))
PUSH = push_graph((0, 2), "push")
PUSH_TURNS = sj.alternate(PUSH, push_graph((3, 0), "push_too"))

# The method, its options, and those of them that the transcription calls by its own defaults.
CASES = {
    "dpsgd awc": ("dpsgd", {"variant": "awc", "beta": 0.9, "nesterov": True}),
    "dpsgd double": ("dpsgd", {"variant": "double", "beta": 0.9, "nesterov": False}),
    "dpsgd double nesterov": ("dpsgd", {"variant": "double", "beta": 0.9, "nesterov": True}),
    "gt": ("gradient_tracking", {"beta": 0.0}),
    "gt momentum": ("gradient_tracking", {"beta": 0.9, "nesterov": False}),
    "gt diging": ("gradient_tracking", {"variant": "diging", "beta": 0.9, "nesterov": True}),
    "gt updates": ("gradient_tracking", {"momentum": "updates", "beta": 0.9, "nesterov": True}),
    "d2 plus": ("d2", {"variant": "plus", "beta": 0.0}),
    "d2 original": ("d2", {"variant": "original", "half": False, "beta": 0.0}),
    "d2 relay": ("d2", {"variant": "relay", "beta": 0.9, "nesterov": True}),
    "gut": ("gut", {"mu": 0.6, "beta": 0.0}),
    "gut current": ("gut", {"mu": 0.6, "point": "current", "beta": 0.0}),
    "qg-gutm": ("gut", {"mu": 0.06, "beta": 0.9, "nesterov": False}),
    "qg-gutm nesterov": ("gut", {"mu": 0.06, "beta": 0.9, "nesterov": True}),
    "mt": ("momentum_tracking", {"beta": 0.9}),
    "mt mean": ("momentum_tracking", {"beta": 0.9, "init": "mean"}),
    "decentlam": ("decentlam", {"beta": 0.9}),
    "sgp": ("sgp", {"beta": 0.9, "nesterov": True}),
    "push_diging": ("push_diging", {}),
}
COMPRESSED = [case for case, (name, _) in CASES.items() if "compressor" in METHODS.options(name)]
every_case = pytest.mark.parametrize("case", CASES)


def check(case, graphs, *, compressor=None, transcribed=None, **options):
    """Runs method and transcription side by side, with plain gradients and with SAM."""
    name, own = CASES[case]
    problem, options = Problem(graphs.size), {"weight_decay": 0.03, **own, **options}
    ours = options if compressor is None else {**options, "compressor": compressor}
    if options.get("order") == "paper":
        ours = {**own, "weight_decay": 0.03, "gossip": sj.choco(compressor, options["gamma"], order="paper")}

    def transcribe(rho):
        W = [graphs.at(t).mixing for t in range(problem.steps)]  # noqa: N806
        arguments = (problem.start, W.__getitem__, problem.gradient, problem.steps, eta)
        return getattr(published, name)(*arguments, rho=rho, Q=transcribed, **options)

    assert_transcribed_with_radii(sj.METHODS[name](graphs, SCHEDULE, **ours), problem, transcribe)


@every_case
def test_methods_are_the_published_ones(case):
    """On graphs by turns, directed ones among them: what is kept of a step must fit the next one's W."""
    check(case, TURNS)


@pytest.mark.parametrize(
    ("case", "graph"),
    [
        ("gut", GRAPHS[0]), ("gut current", GRAPHS[1]), ("qg-gutm", IRREGULAR), ("d2 relay", GRAPHS[1]),
        ("qg-gutm nesterov", sj.exponential(5)), ("sgp", sj.exponential(5)), ("gt", GRAPHS[0]),
    ],
    ids=lambda value: getattr(value, "name", value),
)  # fmt: skip
def test_on_graphs_that_stay(case, graph):
    """There GUT sends less: neighbours know each other's models. See below for the others."""
    check(case, graph)


@pytest.mark.parametrize("case", COMPRESSED)
def test_compressed_methods_mix_public_copies(case):
    check(case, IRREGULAR, compressor=sj.top_k(0.4), transcribed=printed.top_k(0.4), gamma=0.7)


@pytest.mark.parametrize("case", ["gt", "d2 plus", "decentlam"])
def test_the_printed_order_of_compressed_gossip(case):
    options = {"gamma": 0.5, "order": "paper"}
    check(case, IRREGULAR, compressor=sj.top_k(0.4), transcribed=printed.top_k(0.4), **options)


@pytest.mark.parametrize("graphs", [PUSH, PUSH_TURNS], ids=["push", "turns"])
@pytest.mark.parametrize("case", ["sgp", "push_diging"])
def test_push_methods_on_graphs_that_keep_mass(case, graphs):
    check(case, graphs)
