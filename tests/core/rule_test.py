"""Steps of several kinds: which is which, whose turn it is, what each sends; what an estimator may know."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problem import Problem, run

import saddle_jax as sj
from saddle_jax.core.comm_cost import comm_cost, passes_per_step
from saddle_jax.core.rule import Rule

tree = jax.tree.map


def local_sgd(topology, every, eta=0.1):
    """Averages with the neighbours in every n-th step only."""

    def step(s, x, state):
        half = tree(lambda x, g: x - eta * g, x, s.gradient(x))
        return (s.network.mix(half) if s.kind else half), state

    kinds = (0,) * (every - 1) + (1,)
    return sj.Method("local", topology, sj.Rule(lambda x: (), step, kinds=kinds, local_kinds=(0,)))


def averaging(topology):
    """Takes an exact average of all agents in every other step, after a first step of another kind."""

    def step(s, x, state):
        half = tree(lambda x, g: x - 0.1 * g, x, s.gradient(x))
        if s.kind == 2:
            s.note("first", jnp.float32(1), "")
        return {0: s.network.mix, 1: s.network.all_reduce, 2: lambda x: x}[s.kind](half), state

    rule = sj.Rule(lambda x: (), step, first_kinds=(2,), kinds=(0, 1), local_kinds=(2,))
    return sj.Method("averaging", topology, rule)


def test_the_kind_of_a_step_follows_from_its_number():
    rule = Rule(None, None, first_kinds=(7,), kinds=(0, 0, 3), local_kinds=(0,))
    assert [rule.kind(t) for t in range(7)] == [7, 0, 3, 0, 0, 3, 0]
    assert (rule.all_kinds, rule.comm_kinds) == ((0, 3, 7), (3, 7))
    traced = jax.jit(lambda t: (rule.comm_round(t), rule.place(t)))
    talked = 0
    for t in range(13):
        turns, place = traced(t)
        assert rule.comm_round(t) == turns == talked
        assert rule.all_kinds[int(place)] == rule.kind(t)
        talked += rule.kind(t) != 0


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("period", range(1, 4))
def test_turns_count_the_steps_in_which_agents_talk(first, period):
    for kinds in itertools.product((0, 1), repeat=first + period):
        rule = Rule(None, None, first_kinds=kinds[:first], kinds=kinds[first:], local_kinds=(0,))
        talks = [rule.kind(t) for t in range(9)]
        assert [rule.comm_round(t) for t in range(9)] == [sum(talks[:t]) for t in range(9)]


@pytest.mark.parametrize("make", [lambda g: local_sgd(g, 3), averaging], ids=["local", "averaging"])
def test_kinds_decided_by_the_caller_and_inside_the_program_are_the_same_steps(make):
    method, problem = make(sj.alternate(sj.ring(5), sj.path(5))), Problem(5, steps=6)
    inside, _, metrics = run(method, problem)
    params, state, kept = problem.params, method.init(problem.params), []
    for t in range(problem.steps):
        params, state, _ = method.step(problem.loss_fn, params, state, problem.batch(t), kind=method.kind(t))
        kept.append(params)
    chex.assert_trees_all_close(inside, tree(lambda *x: jnp.stack(x), *kept), rtol=1e-5, atol=1e-6)
    if method.name == "averaging":
        np.testing.assert_array_equal(np.isnan(metrics["first"]), [False] + [True] * 5)
        assert sj.consensus_distance(tree(lambda x: x[3], inside)) < 1e-6


def test_graphs_wait_while_nobody_talks():
    problem, (a, b) = Problem(5, steps=6), (sj.path(5), sj.star(5))
    history, _, _ = run(local_sgd(sj.alternate(a, b), 3), problem)
    x = problem.params
    gradients = sj.local_gradients(problem.loss_fn)
    for t in range(6):
        x = tree(lambda x, g: x - 0.1 * g, x, gradients(x, problem.batch(t)))
        if t % 3 == 2:
            x = sj.mix(a if t == 2 else b, x)
        chex.assert_trees_all_close(tree(lambda h, t=t: h[t], history), x, rtol=1e-5, atol=1e-6)


def test_the_books_are_kept_for_each_kind():
    params = {"w": jnp.zeros((6, 10))}
    cost = comm_cost(local_sgd(sj.alternate(sj.ring(6), sj.complete(6)), 3), params)
    assert cost.wire_bytes == (2 * 40,) * 6  # of the first step in which they talk
    totals = [cost.wire_bytes_per_agent(steps) for steps in range(15)]
    sent = [0, 0, 80, 0, 0, 200] * 3
    assert totals == [sum(sent[:steps]) for steps in range(15)]
    averaged = comm_cost(averaging(sj.ring(6)), params)
    # Step 0 is silent; odd steps take an average of all, 2 * 5 pieces of 40 / 6 bytes; even ones gossip.
    assert [averaged.wire_bytes_per_agent(steps) for steps in range(5)] == [0, 0, 66, 146, 212]
    assert passes_per_step(averaging(sj.ring(6)), params) == 1


def test_an_average_of_all_leaves_idle_agents_out():
    x = jnp.array([[1.0], [3.0], [100.0], [100.0]])
    network = sj.Network(sj.complete(2).padded(4))
    np.testing.assert_array_equal(network.all_reduce(x), np.full((4, 1), 2.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ()}, "kinds must name at least one kind of step, got none"),
        ({"kinds": (0, -1)}, r"kinds must be a tuple of integers >= 0, got \(0, -1\)"),
        ({"first_kinds": [0]}, r"first_kinds must be a tuple of integers >= 0, got \[0\]"),
        ({"local_kinds": (1,)}, r"local_kinds must name kinds of \(0,\), got \(1,\)"),
    ],
)
def test_kinds_that_make_no_sense_are_refused(options, message):
    with pytest.raises(sj.ArgumentError, match=message):
        sj.Method("mine", sj.ring(4), sj.Rule(lambda x: (), None, **options))


def test_a_silent_step_that_sends_and_steps_that_ask_differently_are_refused():
    def talks(s, x, state):
        return s.network.mix(x), state

    method = sj.Method("loud", sj.ring(4), sj.Rule(lambda x: (), talks, local_kinds=(0,)))
    with pytest.raises(
        sj.ArgumentError, match="loud must send nothing in steps of kind 0, which it calls local"
    ):
        method.init(jnp.zeros((4, 2)))

    def asks(s, x, state):
        return (s.gradient(x) if s.kind else s.cross_gradient_mean(x)), state

    method = sj.Method("fickle", sj.ring(4), sj.Rule(lambda x: (), asks, kinds=(0, 1)))
    with pytest.raises(sj.ArgumentError, match="fickle must ask for the same gradients"):
        method.init(jnp.zeros((4, 2)))
    local = local_sgd(sj.ring(4), 2)
    with pytest.raises(sj.ArgumentError, match=r"kind must be one of \[\(0, 0\), \(1, 0\)\], got \(2, 0\)"):
        local.step(lambda x, d: x.sum(), jnp.zeros((4, 2)), None, jnp.zeros(4), kind=(2, 0))


def knowing(needs):
    """An estimator that returns what it was told instead of a gradient."""

    def gradient(grad, x, d, state, kind):
        g = grad(x, d)
        told = {
            "key": lambda: jax.random.uniform(grad.key),
            "t": lambda: grad.t,
            "along": lambda: g if grad.along is None else grad.along,
            "losses": lambda: grad.losses(x, d),
        }[needs]()
        return jnp.zeros_like(x) + told, state

    return sj.GradientEstimator(needs, lambda x: (), gradient, needs=() if needs == "losses" else (needs,))


def told(needs, rule, batch=None, **options):
    method = sj.Method("asks", sj.ring(4), rule, gradient=knowing(needs))
    x = jnp.zeros((4, 3))
    state = method.init(x)._replace(t=jnp.int32(5))
    batch = jnp.arange(12.0).reshape(4, 3) if batch is None else batch
    return method.step(lambda x, d: jnp.mean(d) + 0 * x.sum(), x, state, batch, **options)[0]


OWN = sj.Rule(lambda x: (), lambda s, x, state: (s.gradient(x, along=x + 2.0), state))
PAIRS = sj.Rule(lambda x: (), lambda s, x, state: (s.cross_gradients(x).sum(axis=1), state))


@pytest.mark.parametrize("rule", [OWN, PAIRS], ids=["own", "pairs"])
def test_a_gradient_knows_what_it_needs(rule):
    pairs = 3 if rule is PAIRS else 1
    assert (told("t", rule) == 5 * pairs).all()
    drawn = told("key", rule, key=jax.random.key(1))
    assert len(np.unique(drawn[:, 0])) == 4
    assert not np.array_equal(drawn, told("key", rule, key=jax.random.key(2)))
    np.testing.assert_array_equal(told("along", rule), 2.0 if rule is OWN else 0.0)
    if rule is OWN:
        np.testing.assert_array_equal(told("losses", rule), np.arange(12.0).reshape(4, 3))
    with pytest.raises(sj.ArgumentError, match="key must be given to a step with key, which draws, got None"):
        told("key", rule)


def test_local_steps_with_one_agent_are_plain_descent():
    problem = Problem(1, steps=4)
    history, _, _ = run(local_sgd(sj.isolated(1), 2), problem)
    x, optimizer = problem.params, optax.sgd(0.1)
    for t in range(4):
        g = sj.local_gradients(problem.loss_fn)(x, problem.batch(t))
        x = optax.apply_updates(x, optimizer.update(g, optimizer.init(x))[0])
    chex.assert_trees_all_close(tree(lambda h: h[3], history), x, rtol=1e-5, atol=1e-6)
