"""Methods with compressed messages against their papers in NumPy, their identities, and where they end."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import printed_algorithms as printed
import published_compressed as published
import pytest
from problem import GRAPHS, IRREGULAR, Problem, assert_transcribed, assert_transcribed_with_radii, run
from quadratics import Quadratics
from suited import PLAIN, plain

import saddle_jax as sj
from saddle_jax.core.comm_cost import comm_cost

pytestmark = pytest.mark.usefixtures("x64")

OPTIONS = {
    "deep_squeeze": {"gamma": 0.6, "beta": 0.9, "nesterov": False},
    "dcd": {"beta": 0.9, "nesterov": True},
    "ecd": {"beta": 0.5, "nesterov": False},
    "beer": {"gamma": 0.4},
    "motef": {"gamma": 0.4, "lam": 0.7},
    "ada_gossip": {"gamma": 0.3, "beta": 0.9, "nesterov": True, "beta2": 0.9},
}
COMPRESSORS = {
    "identity": (sj.identity(), printed.identity),
    "top_k": (sj.top_k(0.4), printed.top_k(0.4)),
}
SCHEDULE = optax.piecewise_constant_schedule(0.2, {2: 0.1})
every_method = pytest.mark.parametrize("name", OPTIONS)


def eta(t):
    return 0.2 if t < 2 else 0.02


@pytest.mark.parametrize(
    ("name", "compressor", "graph"),
    [(name, "top_k", GRAPHS[n % 3]) for n, name in enumerate(OPTIONS)]
    + [(name, "identity", GRAPHS[(n + 1) % 3]) for n, name in enumerate(OPTIONS)],
    ids=lambda value: getattr(value, "name", value),
)
def test_methods_are_the_published_ones(name, compressor, graph):
    operator, transcribed = COMPRESSORS[compressor]
    problem, options = Problem(graph.size), {"weight_decay": 0.03, **OPTIONS[name]}

    def transcribe(rho):
        arguments = (problem.start, graph.mixing, problem.gradient, problem.steps, eta)
        return getattr(published, name)(*arguments, rho=rho, Q=transcribed, **options)

    method = getattr(sj, name)(graph, SCHEDULE, compressor=operator, **options)
    assert_transcribed_with_radii(method, problem, transcribe)


@every_method
def test_defaults_are_the_stated_ones_and_no_compressor_sends_everything(name):
    problem, graph = Problem(5), GRAPHS[0]
    history, _, _ = run(getattr(sj, name)(graph, 0.1), problem)
    arguments = (problem.start, graph.mixing, problem.gradient, problem.steps, lambda t: 0.1)
    stated = {"beta": 0.9, "nesterov": True, "weight_decay": 1e-4}
    stated = {option: value for option, value in stated.items() if option in sj.METHODS.options(name)}
    expected = getattr(published, name)(*arguments, Q=printed.identity, **stated)
    assert_transcribed(history, expected)


def test_deep_squeeze_without_compression_is_dpsgd():
    problem, options = Problem(5), {"beta": 0.9, "weight_decay": 0.03}
    history, _, _ = run(
        sj.deep_squeeze(IRREGULAR, 0.1, compressor=sj.identity(), gamma=1.0, **options), problem
    )
    expected, _, _ = run(sj.dpsgd(IRREGULAR, 0.1, **options), problem)
    chex.assert_trees_all_close(history, expected, atol=1e-12)


@pytest.mark.parametrize("name", ["dcd", "ecd"])
def test_dcd_and_ecd_without_compression_adapt_while_they_combine(name):
    """They become x <- W x - eta m, D-PSGD whose gradient is not mixed."""
    problem = Problem(5)
    history, _, _ = run(getattr(sj, name)(IRREGULAR, 0.1, compressor=sj.identity(), **PLAIN), problem)
    x = printed.copy(problem.start)
    for t in range(problem.steps):
        x = [
            printed.subtract(
                printed.add(x[i], published.pull(IRREGULAR.mixing, x, i)),
                printed.times(0.1, problem.gradient(i, x[i], t)),
            )
            for i in range(5)
        ]
        np.testing.assert_allclose(history["w"][t], [w for _, w in x], atol=1e-12)


def test_beer_without_compression_and_from_true_copies_is_gradient_tracking():
    """With H = x and G = V before the second step it is DIGing: x <- W x - eta y, y <- W y + g - g'."""
    problem, ring = Problem(5), sj.ring(5)
    method = sj.beer(ring, 0.1, gamma=1.0, compressor=sj.identity(), weight_decay=0.0)
    x, state = problem.params, method.init(problem.params)
    gradient = sj.local_gradients(problem.loss_fn)
    y = g = gradient(x, problem.batch(0))
    z = x
    rule = state.rule._replace(H=x)
    state = state._replace(rule=rule)
    for t in range(problem.steps):
        if t == 1:  # nothing of V travelled in the first step: now its copy is the true one
            state = state._replace(rule=state.rule._replace(G=state.rule.V))
        x, state, _ = method.step(problem.loss_fn, x, state, problem.batch(t))
        if t > 0:
            old, g = g, gradient(z, problem.batch(t))
            y = jax.tree.map(lambda y, g, old: y + g - old, sj.mix(ring, y), g, old)
        z = jax.tree.map(lambda z, y: z - 0.1 * y, sj.mix(ring, z), y)
        chex.assert_trees_all_close(x, z, atol=1e-12)


def test_motef_whose_momentum_is_the_gradient_is_beer():
    problem, shared = Problem(5), {"compressor": sj.top_k(0.4), "gamma": 0.4}
    history, _, _ = run(sj.motef(IRREGULAR, 0.1, lam=1.0, **shared), problem)
    expected, _, _ = run(sj.beer(IRREGULAR, 0.1, **shared), problem)
    chex.assert_trees_all_close(history, expected, atol=1e-13)
    other, _, _ = run(sj.motef(IRREGULAR, 0.1, lam=0.5, **shared), problem)
    assert np.abs(other["w"] - expected["w"]).max() > 1e-3


@pytest.mark.parametrize("name", ["beer", "motef"])
def test_the_mean_of_what_is_tracked_is_the_mean_gradient(name):
    problem = Problem(5)
    method = getattr(sj, name)(IRREGULAR, 0.1, compressor=sj.top_k(0.4))
    _, state, _ = run(method, problem)
    chex.assert_trees_all_close(sj.consensus(state.rule.V), sj.consensus(state.rule.M), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "options"),
    [("beer", {"gamma": 0.2}), ("motef", {"gamma": 0.2, "lam": 0.5})],
)
def test_tracking_ends_at_the_optimum_even_with_top_k(name, options):
    method = getattr(sj, name)(sj.ring(5), 0.05, compressor=sj.top_k(0.5), **options, **plain(name))
    assert Quadratics(5).distance(method) < 1e-8


# Where the others end, to 1 % (the worst agent's distance). D-PSGD ends at 0.0826: AdaGossip averages fully
# once neighbours differ little; DCD and ECD do not mix the gradient, which doubles the distance.
BIASED = {
    "deep_squeeze": ({"compressor": sj.top_k(0.5), "gamma": 0.3}, 0.508),
    "dcd": ({"compressor": sj.top_k(0.5)}, 0.161),
    "ecd": ({"compressor": sj.quantize(8)}, 0.161),
    "ada_gossip": ({"compressor": sj.top_k(0.5), "gamma": 0.3}, 0.0826),
}


@pytest.mark.parametrize("name", BIASED)
def test_the_others_end_beside_the_optimum(name):
    options, distance = BIASED[name]
    method = getattr(sj, name)(sj.ring(5), 0.05, **options, **plain(name))
    assert Quadratics(5).distance(method) == pytest.approx(distance, rel=0.01)


@pytest.mark.parametrize("name", ["dcd", "ecd", "beer", "motef", "ada_gossip"])
def test_copies_need_links_that_stay(name):
    graphs = sj.alternate(sj.path(5), sj.star(5))
    with pytest.raises(ValueError, match="topology must have the same links in every step"):
        getattr(sj, name)(graphs, 0.1).init(Problem(5).params)


@pytest.mark.parametrize("name", ["dcd", "ecd", "beer", "motef", "ada_gossip"])
def test_copies_need_messages_that_arrive(name):
    method = dataclasses.replace(getattr(sj, name)(sj.ring(5), 0.1), faults=sj.Faults(drop=0.1))
    with pytest.raises(ValueError, match="faults must lose nothing for compressed gossip"):
        method.init(Problem(5).params)


def test_deep_squeeze_goes_on_where_messages_get_lost():
    """A link that loses everything is no link: its weight stays with the agents' own."""
    heard = np.ones((4, 5, 5), bool)
    heard[:, 0, 1] = heard[:, 1, 0] = False
    mixing = np.where(heard[0], IRREGULAR.mixing, 0)
    mixing += np.diag(1 - mixing.sum(axis=1))
    problem, options = Problem(5), {"compressor": sj.top_k(0.4)}
    method = sj.deep_squeeze(IRREGULAR, 0.1, **options)
    history, _, _ = run(dataclasses.replace(method, faults=sj.Faults(arrived=heard)), problem)
    expected, _, _ = run(sj.deep_squeeze(sj.from_matrix(mixing), 0.1, **options), problem)
    chex.assert_trees_all_close(history, expected, atol=1e-12)
    other, _, _ = run(method, problem)
    assert np.abs(history["w"] - other["w"]).max() > 1e-3


def test_the_first_step_of_beer_sends_half():
    """Nothing of V travels in it."""
    params = {"w": jnp.zeros((5, 1000), jnp.float32)}
    cost = comm_cost(sj.beer(sj.ring(5), 0.1), params)
    assert [cost.wire_bytes_per_agent(steps) for steps in (1, 2, 3)] == [8_000, 24_000, 40_000]


def test_deep_squeeze_keeps_nothing_of_others():
    history, _, _ = run(
        sj.deep_squeeze(sj.alternate(sj.path(5), sj.star(5)), 0.1, compressor=sj.top_k(0.4)), Problem(5)
    )
    chex.assert_tree_all_finite(history)


def test_options_are_checked():
    for build, message in (
        (lambda: sj.motef(sj.ring(5), 0.1, lam=0.0), "lam must be a number > 0 and <= 1, got 0.0"),
        (lambda: sj.ada_gossip(sj.ring(5), 0.1, beta2=1.0), "beta2 must be a number >= 0 and < 1, got 1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            build()
