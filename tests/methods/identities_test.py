"""Methods that are one another in special cases, what their states keep, and what they send."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problem import IRREGULAR, Problem, run
from suited import PLAIN
from tracking_test import PUSH, SCHEDULE, TURNS

import saddle_jax as sj
from saddle_jax.core.comm_cost import comm_cost
from saddle_jax.devices import lifting
from saddle_jax.devices.compilations import compilations

ALONE = sj.from_matrix([[1.0]])
MOMENTUM = {"beta": 0.9, "weight_decay": 0.03}
DECAY = {"weight_decay": 0.03}
STILL = {"beta": 0.0, "weight_decay": 0.03}

SAME = {
    "mt without momentum is gt diging": (
        sj.momentum_tracking(IRREGULAR, SCHEDULE, **PLAIN),
        sj.gradient_tracking(IRREGULAR, SCHEDULE, variant="diging", **PLAIN),
    ),
    "sgp on a doubly stochastic graph is dpsgd": (
        sj.sgp(IRREGULAR, SCHEDULE, **MOMENTUM),
        sj.dpsgd(IRREGULAR, SCHEDULE, **MOMENTUM),
    ),
    "sgp on directed graphs that take turns is dpsgd": (
        sj.sgp(TURNS, SCHEDULE, **MOMENTUM),
        sj.dpsgd(TURNS, SCHEDULE, **MOMENTUM),
    ),
    "push_diging on a doubly stochastic graph is gt": (
        sj.push_diging(IRREGULAR, SCHEDULE, **DECAY),
        sj.gradient_tracking(IRREGULAR, SCHEDULE, **STILL),
    ),
    "gut without tracking is awc": (
        sj.gut(IRREGULAR, SCHEDULE, mu=0.0, point="current", **STILL),
        sj.dpsgd(IRREGULAR, SCHEDULE, variant="awc", **STILL),
    ),
    "double averaging without momentum is atc": (
        sj.dpsgd(IRREGULAR, SCHEDULE, variant="double", **PLAIN),
        sj.dpsgd(IRREGULAR, SCHEDULE, **PLAIN),
    ),
    "decentlam without momentum is dpsgd": (
        sj.decentlam(IRREGULAR, SCHEDULE, **PLAIN),
        sj.dpsgd(IRREGULAR, SCHEDULE, **PLAIN),
    ),
    "d2 plus is original at a constant rate": (
        sj.d2(IRREGULAR, 0.1, variant="plus", **PLAIN),
        sj.d2(IRREGULAR, 0.1, variant="original", **PLAIN),
    ),
    "d2 relay is plus at a constant rate": (
        sj.d2(IRREGULAR, 0.1, variant="relay", **PLAIN),
        sj.d2(IRREGULAR, 0.1, variant="plus", **PLAIN),
    ),
    "gt of updates is gt at a constant rate": (
        sj.gradient_tracking(IRREGULAR, 0.1, momentum="updates", **PLAIN),
        sj.gradient_tracking(IRREGULAR, 0.1, **PLAIN),
    ),
    "half of W is half of gamma": (
        sj.d2(IRREGULAR, 0.1, gamma=0.8, **PLAIN),
        sj.d2(IRREGULAR, 0.1, gamma=0.4, half=False, **PLAIN),
    ),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("case", SAME)
def test_these_are_one_method(case):
    one, other = (run(method, Problem(5))[0] for method in SAME[case])
    chex.assert_trees_all_close(one, other, atol=1e-12)


def sgd(problem, nesterov, beta, shared):
    """Models of optax's SGD after each step: on agent 0's batches, or on those that all share."""
    optimizer = optax.chain(optax.add_decayed_weights(0.03), optax.sgd(SCHEDULE, beta, nesterov))
    params = jax.tree.map(lambda x: x[0], problem.params)
    state, history = optimizer.init(params), []
    for t in range(problem.steps):
        batch = jax.tree.map(lambda d: d.reshape(-1, d.shape[-1]) if shared else d[0], problem.batch(t))
        updates, state = optimizer.update(jax.grad(problem.loss_fn)(params, batch), state, params)
        params = optax.apply_updates(params, updates)
        history.append(params)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *history)


CENTRAL = {
    "dpsgd double": lambda g: (sj.dpsgd(g, SCHEDULE, variant="double", nesterov=False, **MOMENTUM), False),
    "gt": lambda g: (sj.gradient_tracking(g, SCHEDULE, **MOMENTUM), True),
    "gt heavy ball": lambda g: (sj.gradient_tracking(g, SCHEDULE, nesterov=False, **MOMENTUM), False),
    "gt updates": lambda g: (sj.gradient_tracking(g, SCHEDULE, momentum="updates", **MOMENTUM), True),
    "d2": lambda g: (sj.d2(g, SCHEDULE, half=False, **STILL), None),
    "d2 momentum": lambda g: (sj.d2(g, SCHEDULE, half=False, **MOMENTUM), True),
    "decentlam": lambda g: (sj.decentlam(g, SCHEDULE, **MOMENTUM), False),
    "sgp": lambda g: (sj.sgp(g, SCHEDULE, **MOMENTUM), True),
    "push_diging": lambda g: (sj.push_diging(g, SCHEDULE, **DECAY), None),
}
ONE_ALONE = CENTRAL | {
    "dpsgd awc": lambda g: (sj.dpsgd(g, SCHEDULE, variant="awc", **MOMENTUM), True),
    "gut": lambda g: (sj.gut(g, SCHEDULE, mu=0.9, **STILL), None),
    "mt": lambda g: (sj.momentum_tracking(g, SCHEDULE, **MOMENTUM), False),
    "mt mean": lambda g: (sj.momentum_tracking(g, SCHEDULE, init="mean", **MOMENTUM), False),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ONE_ALONE)
def test_one_agent_alone_is_sgd(name):
    (method, nesterov), problem = ONE_ALONE[name](ALONE), Problem(1)
    history, _, _ = run(method, problem)
    expected = sgd(problem, bool(nesterov), None if nesterov is None else 0.9, shared=False)
    chex.assert_trees_all_close(jax.tree.map(lambda x: x[:, 0], history), expected, atol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", CENTRAL)
def test_a_complete_graph_is_sgd_on_the_whole_batch(name):
    (method, nesterov), problem = CENTRAL[name](sj.complete(4)), Problem(4)
    problem.start = problem.start[:1] * 4
    history, _, _ = run(method, problem)
    expected = sgd(problem, bool(nesterov), None if nesterov is None else 0.9, shared=True)
    for i in range(4):
        chex.assert_trees_all_close(jax.tree.map(lambda x, i=i: x[:, i], history), expected, atol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("compressor", [None, sj.top_k(0.3)], ids=str)
@pytest.mark.parametrize(
    ("name", "field", "options"),
    [
        ("gradient_tracking", "c", {"beta": 0.0}),
        ("gradient_tracking", "c", {"momentum": "updates", "beta": 0.9}),
        ("d2", "q", {"beta": 0.0}),
        ("d2", "c", {"beta": 0.9}),
        ("momentum_tracking", "c", {}),
        ("momentum_tracking", "c", {"init": "mean"}),
    ],
)
def test_corrections_have_mean_zero(name, field, options, compressor):
    """So what is tracked has the mean of the agents' own gradients, momenta or updates."""
    options = {"weight_decay": 0.03, **options}
    method = sj.METHODS[name](IRREGULAR, SCHEDULE, compressor=compressor, gamma=0.5, **options)
    _, state, _ = run(method, Problem(5))
    for leaf in jax.tree.leaves(getattr(state.rule, field)):
        np.testing.assert_allclose(leaf.mean(axis=0), 0, atol=1e-12)
        assert np.abs(leaf).max() > 1e-3


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("compressor", [None, sj.top_k(0.3)], ids=str)
def test_the_mean_of_guts_directions_is_that_of_the_gradients(compressor):
    problem = Problem(5)
    history, state, _ = run(sj.gut(IRREGULAR, 0.1, point="current", compressor=compressor, **PLAIN), problem)
    last = jax.tree.map(lambda x: x[-2], history)  # where the last gradients were taken
    gradients = sj.local_gradients(problem.loss_fn)(last, problem.batch(problem.steps - 1))
    chex.assert_trees_all_close(sj.consensus(state.rule.d), sj.consensus(gradients), atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_push_sum_keeps_the_mass():
    for method in (sj.sgp(PUSH, 0.1), sj.push_diging(PUSH, 0.1)):
        _, state, _ = run(method, Problem(5))
        assert float(state.rule.w.sum()) == pytest.approx(5, abs=1e-12)
        assert np.ptp(state.rule.w) > 0.1


@pytest.mark.parametrize("factory", [sj.sgp, sj.push_diging])
def test_push_sum_with_idle_agents_on_several_devices(factory):
    """5 agents on 4 devices: three idle ones, without mass, whose models are another's copies."""
    problem, results = Problem(5), []
    for graph, devices in ((PUSH, 1), (PUSH.padded(8), 4)):
        mesh, method = sj.agent_mesh(devices), factory(graph, 0.1)
        with jax.set_mesh(mesh):

            def placed(tree, size=graph.size, mesh=mesh):
                rows = jnp.minimum(jnp.arange(size), 4)
                tree = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32)[rows], tree)
                return jax.device_put(tree, lifting.stacked_sharding(mesh))

            params = placed(problem.params)
            state, step = method.init(params), jax.jit(method.step, static_argnums=0)
            with compilations() as programs:
                for t in range(3):
                    params, state, _ = step(problem.loss_fn, params, state, placed(problem.batch(t)))
            assert devices == 1 or programs.count("jit(step)") == 1  # the mass is placed as the models are
            results.append(jax.device_get((params, state)))
    chex.assert_tree_all_finite(results[1])
    (alone, _), (spread, _) = results
    chex.assert_trees_all_close(jax.tree.map(lambda x: x[:5], spread), alone, rtol=1e-5, atol=1e-6)


MODEL = 4 * 8  # bytes: 8 numbers
BYTES = {  # what one link carries in one step
    "dpsgd double": (sj.dpsgd(IRREGULAR, 0.1, beta=0.9, variant="double"), 2 * MODEL),
    "dpsgd double without momentum": (sj.dpsgd(IRREGULAR, 0.1, variant="double", beta=0.0), MODEL),
    "gt": (sj.gradient_tracking(IRREGULAR, 0.1), 2 * MODEL),
    "gt updates": (sj.gradient_tracking(IRREGULAR, 0.1, momentum="updates", beta=0.9), 2 * MODEL),
    "d2": (sj.d2(IRREGULAR, 0.1), MODEL),
    "gut": (sj.gut(IRREGULAR, 0.1), MODEL),
    "gut without copies": (sj.gut(TURNS, 0.1), 2 * MODEL),
    "mt": (sj.momentum_tracking(IRREGULAR, 0.1), 2 * MODEL),
    "decentlam": (sj.decentlam(IRREGULAR, 0.1), MODEL),
    "sgp": (sj.sgp(PUSH, 0.1), MODEL + 4),
    "push_diging": (sj.push_diging(PUSH, 0.1), 2 * MODEL + 4),
}


@pytest.mark.parametrize("name", BYTES)
def test_a_link_carries_what_the_method_says(name):
    method, expected = BYTES[name]
    params = {"b": jnp.zeros((5, 2)), "w": jnp.zeros((5, 3, 2))}
    assert comm_cost(method, params).link_bytes == expected


def test_tracked_quantities_share_one_message_and_are_compressed_apart():
    params = {"b": jnp.zeros((5, 2)), "w": jnp.zeros((5, 3, 2))}
    (exact,) = sj.gradient_tracking(IRREGULAR, 0.1).trace(params)
    (packed,) = sj.gradient_tracking(IRREGULAR, 0.1, compressor=sj.sign()).trace(params)
    assert len(exact.rounds) == 1
    assert len(packed.rounds) == 2


def test_the_first_step_of_momentum_tracking_may_average_over_all():
    method = sj.momentum_tracking(IRREGULAR, 0.1, init="mean")
    kinds = method.trace({"w": jnp.zeros((5, 3))})
    assert [[r.everyone for r in kind.rounds] for kind in kinds] == [[False], [True, False]]
    assert [method.kind(t) for t in range(3)] == [(1, 0), (0, 0), (0, 0)]


@pytest.mark.parametrize(
    "factory",
    [
        sj.d2,
        sj.gut,
        sj.decentlam,
        lambda *a: sj.gut(*a, beta=0.0),
        lambda *a: sj.gut(*a, compressor=sj.sign()),
    ],
    ids=["d2", "gut", "decentlam", "gut without momentum", "gut-sign"],
)
def test_a_learning_rate_of_zero_divides_nothing(factory):
    problem = Problem(5)
    for schedule in (optax.linear_schedule(0.0, 0.1, 2), optax.linear_schedule(0.1, 0.0, 2)):
        history, state, _ = run(factory(IRREGULAR, schedule), problem)
        chex.assert_tree_all_finite((history, state))
