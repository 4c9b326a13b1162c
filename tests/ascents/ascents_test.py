"""What every ascent must hold, those of the table and those to come: one test per law."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples_of import one_of_each
from problem import Problem, compiled, run

import saddle_jax as sj
from saddle_jax.ascents import ASCENTS
from saddle_jax.base.tables import options

EVERY = one_of_each(ASCENTS)
every_ascent = pytest.mark.parametrize("name", EVERY)


def loss_fn(params, batch):
    return jnp.sum((params["x"] - batch) ** 2)


@every_ascent
def test_gradients_and_states_keep_their_shapes_in_every_phase(name):
    ascent, model = EVERY[name], {"x": jnp.arange(3.0)}
    state = ascent.init(model)
    for phase in ascent.phases:
        gradient, after = ascent.gradient(jax.grad(loss_fn), model, jnp.ones(3), state, phase)
        chex.assert_trees_all_equal_shapes_and_dtypes((gradient, after), (model, state))
        assert ascent.passes(phase) >= 1


@every_ascent
def test_a_gradient_that_vanishes_stays_zero(name):
    ascent, model = EVERY[name], {"x": jnp.ones(3)}
    gradient, _ = ascent.gradient(jax.grad(loss_fn), model, jnp.ones(3), ascent.init(model), ascent.phases[0])
    np.testing.assert_array_equal(gradient["x"], np.zeros(3))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", [name for name in EVERY if "rho" in options(ASCENTS[name])])
def test_rho_zero_is_the_plain_gradient(name):
    problem, base = Problem(5), sj.dpsgd(sj.ring(5), 0.1)
    climbed, _, _ = run(sj.saddle(base, ASCENTS[name](0.0)), problem)
    plain, _, _ = run(base, problem)
    chex.assert_trees_all_close(climbed, plain, atol=1e-12)
    moved, _, _ = run(sj.saddle(base, EVERY[name]), problem)
    assert np.abs(moved["w"] - plain["w"]).max() > 1e-4


@every_ascent
def test_every_agent_climbs_by_itself_and_a_second_step_does_not_recompile(name):
    """What agent 0 does is the same, whatever the data of the others."""
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
            params, state, _ = step(each.loss_fn, params, state, each.batch(t))
        ends.append(jax.tree.map(lambda x: x[0], params))
    chex.assert_trees_all_equal(*ends)
