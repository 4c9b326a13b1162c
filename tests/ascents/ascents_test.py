"""What every ascent must hold, those of the table and those to come: one test per law."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from composed import COMPOSED
from examples_of import one_of_each
from problem import Problem, compiled, run

import saddle_jax as sj
from saddle_jax.ascents import ASCENTS
from saddle_jax.base.tables import options
from saddle_jax.core.ascent import GradientFn
from saddle_jax.devices import lifting

EVERY = one_of_each(ASCENTS)
every_ascent = pytest.mark.parametrize("name", EVERY)
# The first option of most is the radius of their perturbation.
climbing = pytest.mark.parametrize(
    "name", [name for name in EVERY if next(iter(options(ASCENTS[name])), "").startswith("rho")]
)


def loss_fn(params, batch):
    return jnp.sum((params["x"] - batch) ** 2)


def losses(params, batch):
    return jax.vmap(lambda sample: loss_fn(params, sample[None]))(batch)


# All that an ascent may ask for.
GRAD = GradientFn(jax.grad(loss_fn), losses, jax.random.key(0), jnp.int32(3))


@every_ascent
def test_gradients_and_states_keep_their_shapes_in_every_phase(name):
    ascent, model = EVERY[name], {"x": jnp.arange(3.0)}
    state = ascent.init(model)
    for phase in ascent.phases:
        gradient, after = ascent.gradient(GRAD, model, jnp.ones(3), state, phase)
        chex.assert_trees_all_equal_shapes_and_dtypes((gradient, after), (model, state))
        assert ascent.passes(phase) >= 1


@every_ascent
def test_a_gradient_that_vanishes_stays_zero(name):
    ascent, model = EVERY[name], {"x": jnp.ones(3)}
    state = ascent.init(model)
    for phase in ascent.phases:
        gradient, state = ascent.gradient(GRAD, model, jnp.ones(3), state, phase)
        np.testing.assert_array_equal(gradient["x"], np.zeros(3))
        chex.assert_tree_all_finite(state)


@pytest.mark.usefixtures("x64")
@climbing
def test_rho_zero_is_the_plain_gradient_also_where_rho_is_swept(name):
    problem, base = Problem(5), sj.dpsgd(sj.ring(5), 0.1)
    plain, _, _ = run(base, problem)

    def swept(rho):
        return run(sj.saddle(base, ASCENTS[name](rho)), problem)[0]

    climbed = jax.vmap(swept)(jnp.array([0.0, 0.25]))
    chex.assert_trees_all_close(jax.tree.map(lambda x: x[0], climbed), plain, atol=1e-12)
    chex.assert_trees_all_close(jax.tree.map(lambda x: x[1], climbed), swept(0.25), atol=1e-12)
    assert np.abs(climbed["w"][1] - plain["w"]).max() > 1e-4


@pytest.mark.parametrize("make", [sj.sam, sj.asam, sj.looksam, sj.gsam, sj.esam, sj.lesam])
def test_no_radius_costs_no_pass(make):
    assert str(make(0.0)) == "plain()"


@climbing
def test_a_radius_that_is_no_length_is_refused(name):
    option = next(iter(options(ASCENTS[name])))
    for wrong in (-0.1, float("nan"), "0.1"):
        with pytest.raises(sj.ArgumentError, match=f"^{option} must be a number >= 0, got {wrong!r}$"):
            ASCENTS[name](wrong)


@every_ascent
def test_every_method_takes_it(name):
    params = {"x": jnp.zeros((6, 3))}
    for factory in (sj.dpsgd, sj.qgm, sj.ngm, *COMPOSED.values()):
        saddle = sj.saddle(factory(sj.ring(6), 0.1), EVERY[name])
        step = functools.partial(saddle.step, loss_fn)
        state = jax.eval_shape(saddle.init, params)
        after = jax.eval_shape(step, params, state, jnp.zeros((6, 3)), jax.random.key(0))
        chex.assert_trees_all_equal_shapes_and_dtypes(after[:2], (params, state))


@every_ascent
def test_devices_change_nothing_but_rounding(name):
    problem, method = Problem(8), sj.saddle(sj.ngm(sj.ring(8), 0.1), EVERY[name])
    ends = []
    for devices in (1, 4):
        mesh = sj.agent_mesh(devices)
        with jax.set_mesh(mesh):
            params = jax.device_put(problem.params, lifting.stacked_sharding(mesh))
            state = method.init(params)
            step = compiled(method.step, static_argnums=0)
            for t in range(2):
                params, state, _ = step(problem.loss_fn, params, state, problem.batch(t), jax.random.key(t))
            ends.append(jax.device_get((params, state)))
    chex.assert_trees_all_close(*ends, rtol=1e-5, atol=1e-5)


@every_ascent
def test_every_agent_climbs_by_itself_and_a_second_step_does_not_recompile(name):
    """What agent 0 does is the same, whatever the data of the others; and a state that was saved goes on."""
    problem, other = Problem(4), Problem(4, seed=1)
    other.start[0], other.x[:, 0], other.y[:, 0] = problem.start[0], problem.x[:, 0], problem.y[:, 0]
    method = sj.saddle(sj.dpsgd(sj.isolated(4), 0.1), EVERY[name])
    chex.clear_trace_counter()
    step = compiled(chex.assert_max_traces(method.step, n=1), static_argnums=0)
    ends = []
    for each in (problem, other):
        params = jax.tree.map(lambda x: x.astype(jnp.float32), each.params)
        state = method.init(params)
        for t in range(2):
            params, state = jax.device_get((params, state))
            params, state, _ = step(each.loss_fn, params, state, each.batch(t), jax.random.key(t))
        ends.append(jax.tree.map(lambda x: x[0], params))
    chex.assert_trees_all_equal(*ends)
