"""GSAM: its radius follows the learning rate, and its correction leaves the perturbed loss alone."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import Problem, run

import saddle_jax as sj
from saddle_jax.core.gradients import GradientFn


def models(estimator, problem):
    return run(sj.saddle(sj.qgm(sj.ring(5), 0.1), estimator), problem)[0]


def test_without_correction_it_is_sam():
    problem = Problem(5)
    chex.assert_trees_all_close(
        models(sj.gsam(0.3, alpha=0.0), problem), models(sj.sam(0.3), problem), rtol=1e-6
    )
    half = sj.gsam(0.4, 0.2, alpha=0.0, share=lambda t: 0.5)
    chex.assert_trees_all_close(models(half, problem), models(sj.sam(0.3), problem), rtol=1e-5, atol=1e-6)


def test_the_correction_is_orthogonal_to_the_perturbed_gradient():
    problem = Problem(1)
    x, d = (jax.tree.map(lambda leaf: leaf[0], tree) for tree in (problem.params, problem.batch(0)))
    seen = []

    def grad(x, d):
        seen.append(jax.grad(problem.loss_fn)(x, d))
        return seen[-1]

    g_tilde, _ = sj.gsam(0.3, alpha=0.5).gradient(grad, x, d, (), 0)
    _, g_p = seen
    correction = jax.tree.map(jnp.subtract, g_tilde, g_p)
    along = sum(jnp.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (correction, g_p)), strict=True))
    assert abs(along) < 1e-6
    assert float(sj.agent_norms(correction, axes=0)) > 1e-2


def test_it_asks_for_the_step_only_where_its_radius_changes():
    assert sj.gsam(0.3).needs == ()
    changing = sj.gsam(0.4, 0.1, share=lambda t: 1 / (1 + t))
    assert changing.needs == ("t",)
    assert (sj.gsam().passes_per_step, changing.passes_per_step) == (2, 2)
    radii = []

    def grad(x, d):
        radii.append(float(x[0]))
        return jnp.ones(1)

    for t in (0, 1, 2):
        changing.gradient(GradientFn(grad, None, t=jnp.int32(t)), jnp.zeros(1), (), (), 0)
    np.testing.assert_allclose(radii[1::2], [0.4, 0.25, 0.2], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho_max": -1}, "rho_max must be a number >= 0, got -1"),
        ({"rho_min": -1}, "rho_min must be a number >= 0, got -1"),
        ({"alpha": -1}, "alpha must be a number >= 0, got -1"),
        ({"share": 0.5}, "share must be a function of the step t, or None, got 0.5"),
        (
            {"rho_max": 0.1, "rho_min": 0.2, "share": lambda t: 1.0},
            "rho_min must be at most rho_max = 0.1, got 0.2",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options, message):
    with pytest.raises(sj.ArgumentError, match=f"^{message}$"):
        sj.gsam(**options)
