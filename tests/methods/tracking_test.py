"""Tracking methods and their neighbours against the published equations in NumPy: 1e-10 in float64."""

import itertools

import numpy as np
import optax
import printed_algorithms as printed
import published_tracking as published
import pytest
from problem import GRAPHS, IRREGULAR, Problem, run

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


def check(case, graphs, *, rho=0.0, compressor=None, transcribed=None, **options):
    """Runs method and transcription side by side and compares every agent, tensor and step."""
    name, own = CASES[case]
    problem, options = Problem(graphs.size), {"weight_decay": 0.03, **own, **options}
    packed = {} if compressor is None else {"compressor": compressor}
    ours = {**options, **packed}
    if ours.pop("order", None) == "paper":
        ours["gossip"] = sj.choco(ours.pop("compressor"), ours.pop("gamma"), order="paper")
    method = sj.saddle(sj.METHODS[name](graphs, SCHEDULE, **ours), rho)
    history, _, _ = run(method, problem)
    expected = getattr(published, name)(
        problem.start, lambda t: graphs.at(t).mixing, problem.gradient, problem.steps, eta,
        rho=rho, Q=transcribed, **options,
    )  # fmt: skip
    for t, i in itertools.product(range(problem.steps), range(graphs.size)):
        for tensor, values in zip(("b", "w"), expected[t][i], strict=True):
            np.testing.assert_allclose(
                history[tensor][t, i], values, rtol=0, atol=1e-10, err_msg=f"step {t}, agent {i}, {tensor}"
            )


@pytest.mark.parametrize(
    ("graphs", "rho"),
    [(GRAPHS[0], 0.0), (GRAPHS[1], 0.3), (IRREGULAR, 0.3), (sj.exponential(5), 0.0), (TURNS, 0.3)],
    ids=["ring", "torus-sam", "irregular-sam", "directed", "turns-sam"],
)
@every_case
def test_methods_are_the_published_ones(case, graphs, rho):
    check(case, graphs, rho=rho)


@pytest.mark.parametrize("case", COMPRESSED)
def test_compressed_methods_mix_public_copies(case):
    check(case, IRREGULAR, rho=0.3, compressor=sj.top_k(0.4), transcribed=printed.top_k(0.4), gamma=0.7)


@pytest.mark.parametrize("case", ["gt", "d2 plus", "decentlam"])
def test_the_printed_order_of_compressed_gossip(case):
    options = {"gamma": 0.5, "order": "paper"}
    check(case, IRREGULAR, compressor=sj.top_k(0.4), transcribed=printed.top_k(0.4), **options)


@pytest.mark.parametrize("graphs", [PUSH, PUSH_TURNS], ids=["push", "turns"])
@pytest.mark.parametrize("rho", [0.0, 0.3], ids=["plain", "sam"])
@pytest.mark.parametrize("case", ["sgp", "push_diging"])
def test_push_methods_on_graphs_that_keep_mass(case, graphs, rho):
    check(case, graphs, rho=rho)
