"""LESAM: one backward pass, uphill along what the rule has at hand or along the last movement."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import Problem

import saddle_jax as sj
from saddle_jax.core.comm_cost import passes_per_step
from saddle_jax.core.gradients import GradientFn


def recorded(along=None):
    """A gradient function that remembers where it was asked."""
    points = []

    def grad(x, d):
        points.append(x)
        return x

    return GradientFn(grad, None, along=along), points


def test_it_climbs_back_along_the_last_movement_or_along_what_is_at_hand():
    estimator, x = sj.lesam(0.5), jnp.array([1.0, 1.0])
    grad, points = recorded()
    _, state = estimator.gradient(grad, x, (), estimator.init(x), 0)
    _, state = estimator.gradient(grad, x - jnp.array([3.0, 4.0]), (), state, 0)
    np.testing.assert_array_equal(points[0], x)  # no movement yet
    np.testing.assert_allclose(points[1], x - jnp.array([3.0, 4.0]) + jnp.array([0.3, 0.4]), rtol=1e-6)
    np.testing.assert_array_equal(state, x - jnp.array([3.0, 4.0]))
    grad, points = recorded(along=jnp.array([0.0, 2.0]))
    estimator.gradient(grad, x, (), state, 0)
    np.testing.assert_allclose(points[0], [1.0, 1.5])


@pytest.mark.parametrize("name", ["dpsgd", "qgm"])
def test_agents_climb_along_m_hat_or_their_own_way(name):
    """In the second step, by hand: where the loss was evaluated tells the perturbation."""
    problem, graph = Problem(5), sj.ring(5)
    method = sj.saddle(getattr(sj, name)(graph, 0.1), sj.lesam(0.3))
    first, state, _ = method.step(
        problem.loss_fn, problem.params, method.init(problem.params), problem.batch(0)
    )
    _, _, metrics = method.step(problem.loss_fn, first, state, problem.batch(1))
    way = state.rule.m_hat if name == "qgm" else jax.tree.map(jnp.subtract, problem.params, first)
    scale = 0.3 / sj.agent_norms(way)
    climbed = jax.tree.map(lambda x, v: x + scale.reshape(-1, *(1,) * (v.ndim - 1)) * v, first, way)
    losses = jax.vmap(problem.loss_fn)(climbed, problem.batch(1))
    chex.assert_trees_all_close(metrics["loss"], losses, rtol=1e-5)
    assert np.abs(losses - jax.vmap(problem.loss_fn)(first, problem.batch(1))).max() > 1e-2


def test_it_costs_what_the_plain_method_costs():
    params = Problem(6).params
    assert passes_per_step(sj.saddle(sj.qgm(sj.ring(6), 0.1), sj.lesam()), params) == 1
    assert passes_per_step(sj.saddle(sj.ngm(sj.ring(6), 0.1), sj.lesam()), params) == 3


def test_models_and_states_may_be_donated():
    params = jax.tree.map(jnp.asarray, Problem(4).params)
    method = sj.saddle(sj.dpsgd(sj.ring(4), 0.1), sj.lesam())
    for mine, kept in zip(*map(jax.tree.leaves, (params, method.init(params).gradient[0])), strict=True):
        assert mine.unsafe_buffer_pointer() != kept.unsafe_buffer_pointer()
