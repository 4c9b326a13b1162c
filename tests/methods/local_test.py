"""Methods with local steps: as published, what they become at limits, where they end, what they send."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import published_local as published
import pytest
from printed_algorithms import top_k
from problem import (
    GRAPHS,
    IRREGULAR,
    Problem,
    assert_transcribed,
    assert_transcribed_with_radii,
    compiled,
    run,
)
from quadratics import Quadratics

import saddle_jax as sj
from saddle_jax.core.comm_cost import comm_cost, passes_per_step
from saddle_jax.devices.compilations import compilations

TURNS = sj.alternate(sj.path(5), sj.star(5), IRREGULAR)
# Rounds of three steps: the rate falls inside the second of them, and the run ends inside the third.
STEPS, K, DROP = 8, 3, 4
SCHEDULE = optax.piecewise_constant_schedule(0.2, {DROP: 0.3})


def eta(t):
    return 0.2 if t < DROP else 0.06


def of_slowmo(graph, rate, *, tau, outer_beta=0.5, alpha=1.0, average=True, **options):
    method = sj.dpsgd(graph, rate, **options)
    return sj.slowmo(method, rate, every=tau, beta=outer_beta, alpha=alpha, average=average)


METHODS = {
    "dpsgd": (sj.dpsgd, published.gossip_every_k, {"beta": 0.9}),
    "qgm": (sj.qgm, published.local_qgm, {"beta": 0.9, "mu": 0.7}),
    "dfedavgm": (sj.dfedavgm, published.dfedavgm, {"beta": 0.9, "gossips": 2}),
    "kgt": (sj.kgt, published.kgt, {"eta_s": 0.8}),
    "slowmo": (of_slowmo, published.slowmo, {"tau": 6, "outer_beta": 0.6, "alpha": 0.8, "beta": 0.9}),
}


def assert_published(name, graph, *, k=K, compressor=None, transcribed=None, **others):
    """Runs method and transcription side by side, with plain gradients and with SAM."""
    factory, transcription, options = METHODS[name]
    options = {"weight_decay": 0.03, **options, **others}
    problem = Problem(graph.size, steps=STEPS)
    compressed = {} if compressor is None else {"compressor": compressor}
    method = factory(graph, SCHEDULE, local_steps=k, **options, **compressed)
    options |= {} if transcribed is None else {"Q": transcribed}
    mixing = [each.mixing for each in graph.graphs]

    def transcribe(rho):
        return transcription(problem.start, mixing, problem.gradient, STEPS, eta, k, rho=rho, **options)

    assert_transcribed_with_radii(method, problem, transcribe)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "graph"),
    [(name, graph) for n, name in enumerate(METHODS) for graph in (GRAPHS[n % 3], TURNS)],
    ids=lambda case: getattr(case, "name", case),
)
def test_methods_are_the_published_algorithms(name, graph):
    assert_published(name, graph)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["dpsgd", "qgm", "dfedavgm", "kgt"])
def test_what_travels_may_be_compressed(name):
    assert_published(name, IRREGULAR, compressor=sj.top_k(0.4), transcribed=top_k(0.4), gamma=0.6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dpsgd", {"nesterov": False}),
        ("qgm", {"nesterov": False, "mu": None}),
        ("dfedavgm", {"gossips": 1, "gamma": 0.5}),
        ("kgt", {"eta_s": 1.0, "gamma": 0.5}),
        ("slowmo", {"tau": 2, "average": False}),  # falls on local steps, on gossips, and on both sides
        ("slowmo", {"tau": 2, "nesterov": False}),
    ],
)
def test_other_options_are_the_published_ones(name, options):
    assert_published(name, IRREGULAR, **options)


@pytest.mark.usefixtures("x64")
def test_dfedsam_is_dfedavgm_with_sam():
    problem = Problem(5, steps=6)
    method = sj.dfedsam(IRREGULAR, 0.1, local_steps=3, rho=0.2, gossips=2, weight_decay=0.03)
    base = sj.dfedavgm(IRREGULAR, 0.1, local_steps=3, gossips=2, weight_decay=0.03)
    history, _, _ = run(method, problem)
    arguments = (problem.start, [IRREGULAR.mixing], problem.gradient, 6, lambda t: 0.1, 3)
    assert_transcribed(history, published.dfedavgm(*arguments, gossips=2, rho=0.2, weight_decay=0.03))
    chex.assert_trees_all_equal(history, run(sj.saddle(base, 0.2), problem)[0])
    plain, _, _ = run(base, problem)
    assert np.abs(plain["w"] - history["w"]).max() > 1e-3
    assert (str(sj.dfedsam(IRREGULAR, 0.1).gradient), base.rule.kinds) == ("sam(rho=0.05)", (1, 1, 0))


@pytest.mark.parametrize("factory", [sj.dpsgd, sj.qgm])
def test_one_local_step_is_the_same_program(factory):
    """No other state, and no other operation: rounds of one step are the method itself."""
    problem = Problem(5)
    plain, rounds = factory(IRREGULAR, 0.1, beta=0.9), factory(IRREGULAR, 0.1, beta=0.9, local_steps=1)
    assert (
        (plain.rule.kinds, plain.rule.local_kinds)
        == (rounds.rule.kinds, rounds.rule.local_kinds)
        == ((0,), ())
    )
    state = plain.init(problem.params)
    assert len(jax.tree.leaves(state.rule)) == 2  # one buffer of two tensors
    programs = [
        str(
            jax.make_jaxpr(functools.partial(m.step, problem.loss_fn))(
                problem.params, state, problem.batch(0)
            )
        )
        for m in (plain, rounds)
    ]
    assert programs[0] == programs[1]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("graph", [IRREGULAR, TURNS], ids=lambda g: g.name)
def test_kgt_with_one_local_step_is_gradient_tracking(graph):
    problem, mixing = Problem(5, steps=STEPS), [each.mixing for each in graph.graphs]

    def transcribe(rho):
        arguments = (problem.start, mixing, problem.gradient, STEPS, eta)
        return published.gradient_tracking_atc(*arguments, rho=rho, weight_decay=0.03)

    method = sj.kgt(graph, SCHEDULE, local_steps=1, weight_decay=0.03)
    assert_transcribed_with_radii(method, problem, transcribe)


@pytest.mark.usefixtures("x64")
def test_without_momentum_rounds_of_one_step_are_dpsgd():
    problem = Problem(5)
    dpsgd, _, _ = run(sj.dpsgd(IRREGULAR, 0.1, beta=0.0, weight_decay=0.03), problem)
    for beta in (0.0, 0.9):  # the momentum starts anew in each round, so that it never comes to anything
        method = sj.dfedavgm(IRREGULAR, 0.1, local_steps=1, beta=beta, weight_decay=0.03)
        chex.assert_trees_all_close(run(method, problem)[0], dpsgd, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_slowmo_without_momentum_is_an_exact_average_now_and_then():
    problem, rate = Problem(5, steps=6), 0.1
    base = sj.qgm(IRREGULAR, rate)
    history, _, _ = run(sj.slowmo(base, rate, every=2, beta=0.0, alpha=1.0), problem)
    params, state = problem.params, base.init(problem.params)
    step = compiled(base.step, static_argnums=0)
    for t in range(6):
        params, state, _ = step(problem.loss_fn, params, state, problem.batch(t))
        if t % 2 == 1:
            params = jax.tree.map(lambda x: jnp.broadcast_to(x.mean(axis=0), x.shape), params)
        chex.assert_trees_all_close(jax.tree.map(lambda h, t=t: h[t], history), params, atol=1e-12)


def test_slowmo_keeps_the_kinds_of_steps_that_a_method_has():
    """Kinds are pairs: twice the method's, and one more in every third step."""

    def step(s, x, state):
        s.note("kind", jnp.int32(s.kind), "")
        return (x if s.kind == 1 else s.network.mix(x)), state

    rule = sj.Rule(
        lambda x: (), step, requires="row", kinds=(0, 1), first_kinds=(2, 1, 2, 2), local_kinds=(1,)
    )
    method = sj.Method("mine", sj.ring(4), rule)
    slow = sj.slowmo(method, 0.1, every=3)
    assert (slow.name, slow.rule.requires) == ("mine+slowmo", "row")
    kinds = [slow.rule.kind(t) for t in range(16)]
    assert [kind // 2 for kind in kinds] == [method.rule.kind(t) for t in range(16)]
    assert [kind % 2 for kind in kinds] == [0, 0, 1] * 5 + [0]
    assert slow.rule.local_kinds == (2,)  # in step 5 all agents take an average, though nobody gossips
    assert sj.slowmo(method, 0.1, every=3, average=False).rule.local_kinds == (2, 3)
    x = jnp.zeros((4, 2))
    state = slow.init(x)
    for t in range(8):
        x, state, metrics = slow.step(lambda x, d: 0.0, x, state, x)
        assert int(metrics["kind"]) == method.rule.kind(t)


def test_the_state_of_slowmo_may_be_donated_with_the_models():
    method, loss_fn = sj.slowmo(sj.dpsgd(sj.ring(4), 0.1), 0.1, every=2), Problem.loss_fn
    problem = Problem(4)
    step = compiled(method.step, static_argnums=0, donate_argnums=(1, 2), static_argnames=("kind",))
    params, state = problem.params, method.init(problem.params)
    for t in range(3):  # also after an outer step, which ends where a is
        params, state, _ = step(loss_fn, params, state, problem.batch(t), kind=method.kind(t))
    chex.assert_tree_all_finite((params, state))


@pytest.mark.parametrize("name", METHODS)
def test_a_learning_rate_that_ends_at_zero_leaves_the_models_where_they_are(name):
    factory, _, options = METHODS[name]
    options = {**options, "tau": 2} if name == "slowmo" else options
    problem = Problem(5, steps=9)
    falling = optax.piecewise_constant_schedule(0.1, {4: 0.0})  # inside a round, and before an outer step
    method = factory(sj.complete(5), falling, local_steps=3, **options)
    history, state, _ = run(method, problem)
    chex.assert_tree_all_finite((history, state))
    if name != "slowmo":  # whose outer step goes on with alpha < 1
        before, after = (jax.tree.map(lambda x, t=t: x[t].mean(axis=0), history) for t in (5, 8))
        chex.assert_trees_all_close(before, after, atol=1e-5)


@pytest.mark.usefixtures("x64")
def test_kgt_is_exact_on_heterogeneous_data_and_the_others_are_not():
    losses = Quadratics(5)
    kgt = sj.kgt(sj.ring(5), 0.05, weight_decay=0.0)
    assert losses.distance(kgt) < 1e-8
    assert losses.distance(sj.kgt(TURNS, 0.05, local_steps=3, weight_decay=0.0)) < 1e-8
    # Losses both ways keep the average. An outer step inside a round does not count as a way that it went.
    lossy = dataclasses.replace(kgt, faults=sj.Faults(drop=0.3))
    assert losses.distance(lossy) < 1e-8
    assert losses.distance(sj.slowmo(kgt, 0.05, every=7)) < 1e-8
    rates = {"learning_rate": 0.02, "local_steps": 5, "weight_decay": 0.0}
    for method in (
        sj.dpsgd(sj.ring(5), beta=0.0, **rates),
        sj.qgm(sj.ring(5), **rates),
        sj.dfedavgm(sj.ring(5), **rates),
        sj.dfedavgm(sj.ring(5), gossips=4, **rates),
        sj.dfedsam(sj.ring(5), rho=0.01, **rates),
        sj.slowmo(sj.dpsgd(sj.ring(5), beta=0.0, **rates), 0.02, every=10),
    ):
        assert 1e-3 < losses.distance(method) < 1.0, method.name


@pytest.mark.usefixtures("x64")
def test_the_corrections_of_kgt_are_zero_in_the_mean():
    for method in (sj.kgt(IRREGULAR, 0.1), sj.kgt(IRREGULAR, 0.1, compressor=sj.top_k(0.4), gamma=0.4)):
        _, state, _ = run(method, Problem(5, steps=10))
        assert np.abs(state.rule.c["w"]).max() > 0.01
        chex.assert_trees_all_close(
            sj.consensus(state.rule.c), {"b": np.zeros(2), "w": np.zeros((3, 2))}, atol=1e-12
        )


MODEL = 40  # bytes of ten numbers; each agent of a ring of six sends two of them where a message travels


@pytest.mark.parametrize(
    ("method", "round_bytes", "steps"),
    [
        (sj.dpsgd(sj.ring(6), 0.1, local_steps=4), 2 * MODEL, 4),
        (sj.qgm(sj.ring(6), 0.1, local_steps=4), 2 * MODEL, 4),
        (sj.kgt(sj.ring(6), 0.1, local_steps=4), 2 * 2 * MODEL, 4),
        (sj.dfedavgm(sj.ring(6), 0.1, local_steps=4, gossips=3), 3 * 2 * MODEL, 4),
        (sj.dfedsam(sj.ring(6), 0.1), 2 * MODEL, 5),
        (sj.dfedavgm(sj.ring(6), 0.1, local_steps=4, compressor=sj.sign()), 2 * (4 + 2), 4),
        # An all-reduce of six agents is 2 * 5 / 6 of a model.
        (sj.slowmo(sj.dpsgd(sj.ring(6), 0.1), 0.1, every=3), 3 * 2 * MODEL + 66, 3),
        (sj.slowmo(sj.dpsgd(sj.ring(6), 0.1, local_steps=2), 0.1, every=6), 3 * 2 * MODEL + 66, 6),
        (sj.slowmo(sj.dpsgd(sj.ring(6), 0.1), 0.1, every=3, average=False), 3 * 2 * MODEL, 3),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_books_charge_a_round_and_nothing_between(method, round_bytes, steps):
    cost = comm_cost(method, {"w": jnp.zeros((6, 10))})
    assert cost.wire_bytes_per_agent(steps) == round_bytes
    assert cost.wire_bytes_per_agent(7 * steps) == 7 * round_bytes
    assert passes_per_step(method, {"w": jnp.zeros((6, 10))}) == (2 if method.name == "dfedsam" else 1)


def test_the_books_of_graphs_that_take_turns_move_on_once_per_round():
    """Several gossips at the end of a round go over the same graph."""
    graphs = sj.alternate(sj.ring(6), sj.complete(6))
    method = sj.dfedavgm(graphs, 0.1, local_steps=2, gossips=3)
    cost = comm_cost(method, {"w": jnp.zeros((6, 10))})
    sent = [cost.wire_bytes_per_agent(steps) for steps in range(1, 7)]
    assert sent == [3 * MODEL * models for models in (0, 2, 2, 7, 7, 9)]


def test_what_makes_no_sense_is_refused():
    ring = sj.ring(5)
    for build, message in (
        (lambda: sj.dpsgd(ring, 0.1, local_steps=0), "local_steps must be .* got 0"),
        (lambda: sj.qgm(ring, 0.1, local_steps=2.5), "local_steps must be .* got 2.5"),
        (lambda: sj.kgt(ring, 0.1, local_steps=0), "local_steps must be .* got 0"),
        (lambda: sj.kgt(ring, 0.1, eta_s=0.0), "eta_s must be a number > 0, got 0.0"),
        (lambda: sj.dfedavgm(ring, 0.1, gossips=0), "gossips must be .* got 0"),
        (lambda: sj.dfedsam(ring, 0.1, rho=-1.0), "rho must be a number >= 0, got -1.0"),
        (lambda: sj.slowmo(ring, 0.1), "method must be a Method"),
        (lambda: sj.slowmo(sj.dpsgd(ring, 0.1), 0.1, every=0), "every must be .* got 0"),
        (lambda: sj.slowmo(sj.dpsgd(ring, 0.1), 0.1, beta=1.0), "beta must be .* got 1.0"),
        (lambda: sj.slowmo(sj.dpsgd(ring, 0.1), 0.1, alpha=0), "alpha must be .* got 0"),
        (lambda: sj.slowmo(sj.dpsgd(ring, 0.1), 0.1, average=1), "average must be .* got 1"),
        (
            lambda: sj.slowmo(sj.dpsgd(TURNS, 0.1, local_steps=4), 0.1, every=6),
            "every must let .* dpsgd talks, .*: take a multiple of its 4 steps, got 6",
        ),
    ):
        with pytest.raises(sj.ArgumentError, match=message):
            build()
    # Where graphs do not take turns, or nothing is averaged, any number of steps will do.
    sj.slowmo(sj.dpsgd(ring, 0.1, local_steps=4), 0.1, every=6)
    sj.slowmo(sj.dpsgd(TURNS, 0.1, local_steps=4), 0.1, every=6, average=False)


def test_an_average_of_all_agents_needs_a_network_without_faults():
    method = dataclasses.replace(sj.slowmo(sj.dpsgd(sj.ring(5), 0.1), 0.1), faults=sj.Faults(drop=0.1))
    with pytest.raises(sj.ArgumentError, match="faults must be None for an average of all agents"):
        method.init(Problem(5).params)


def test_an_average_of_all_agents_is_the_same_on_any_number_of_devices():
    problem, ends = Problem(8), []
    method = sj.slowmo(sj.kgt(sj.ring(8), 0.1, local_steps=2), 0.1, every=2)
    for devices in (1, 4):
        mesh = sj.agent_mesh(devices)
        with jax.set_mesh(mesh):
            placed = sj.stacked_sharding(mesh)
            params = jax.device_put(problem.params, placed)
            state = method.init(params)
            step = compiled(method.step, static_argnums=0)
            with compilations() as programs:
                for t in range(4):
                    batch = jax.device_put(problem.batch(t), placed)
                    params, state, _ = step(problem.loss_fn, params, state, batch)
                    for leaf in jax.tree.leaves((params, state)):
                        assert not leaf.ndim or leaf.sharding.is_equivalent_to(placed, leaf.ndim)
            assert programs.count("jit(step)") == 1 or devices == 1
            ends.append(jax.device_get((params, state)))
    chex.assert_trees_all_close(*ends, rtol=1e-5, atol=1e-5)
