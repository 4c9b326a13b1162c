"""LookSAM: what it remembers, what it borrows, and its kinds of steps."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import Problem, run
from suited import PLAIN

import saddle_jax as sj
from saddle_jax.sam.projection import orthogonal


@pytest.fixture
def gradients():
    """The plain gradient function of one agent's loss, its model and its batch."""
    problem = Problem(1)
    x, d = (jax.tree.map(lambda leaf: leaf[0], tree) for tree in (problem.params, problem.batch(0)))
    return jax.grad(problem.loss_fn), x, d


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.usefixtures("x64")
def test_what_is_remembered_is_orthogonal_to_the_gradient_over_all_tensors(gradients):
    grad, x, d = gradients
    estimator = sj.looksam(0.3, every=2, alpha=0.7)
    g, (g_s, g_v) = flat(grad(x, d)), estimator.gradient(grad, x, d, estimator.init(x), 0)
    assert abs(flat(g_v) @ g) < 1e-14
    # What was taken away is a multiple of g, of the whole of it: norms per tensor would give two multiples.
    ratios = (flat(g_s) - flat(g_v)) / g
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-12)
    between, kept = estimator.gradient(grad, x, d, g_v, 1)
    chex.assert_trees_all_equal(kept, g_v)
    np.testing.assert_allclose(np.linalg.norm(flat(between) - g), 0.7 * np.linalg.norm(g), rtol=1e-12)


def test_every_step_or_nothing_borrowed_is_sam():
    problem, base = Problem(5), sj.dpsgd(sj.ring(5), 0.1, **PLAIN)

    def models(estimator):
        return run(sj.saddle(base, estimator), problem)[0]

    chex.assert_trees_all_close(models(sj.looksam(0.2, every=1)), models(sj.sam(0.2)), rtol=1e-6)
    nothing = models(sj.looksam(0.2, every=3, alpha=0.0))
    chex.assert_trees_all_close(nothing, models(sj.sam(0.2, every=3)), rtol=1e-6)
    assert np.abs(models(sj.looksam(0.2, every=3))["w"] - nothing["w"]).max() > 1e-3


@pytest.mark.parametrize(("every", "passes"), [(1, 2), (2, 1.5), (5, 1.2), (10, 1.1)])
def test_it_counts_its_passes(every, passes):
    estimator = sj.looksam(every=every)
    assert estimator.passes_per_step == pytest.approx(passes)
    assert estimator.kinds == (0,) + (1,) * (every - 1)


def test_rounding_is_no_direction():
    """On a line SAM's gradient has no sideways part: borrowing what rounding left would be noise."""
    x = {"x": jnp.array([0.3, 0.7, 1.1], jnp.float32)}
    thrice = jax.tree.map(lambda x: 3.3 * x, x)
    np.testing.assert_array_equal(orthogonal(thrice, x)["x"], 0)
    np.testing.assert_array_equal(orthogonal(x, {"x": jnp.zeros(3)})["x"], x["x"])
    slightly = {"x": x["x"] + jnp.array([0.0, 0.0, 1e-4])}
    assert np.abs(orthogonal(slightly, x)["x"]).max() > 1e-5


def test_kinds_decided_by_the_caller_and_inside_the_program_are_the_same_steps():
    method, problem = sj.saddle(sj.ngm(sj.ring(5), 0.1), sj.looksam(0.2, every=2)), Problem(5)
    inside, _, _ = run(method, problem)
    params, state = problem.params, method.init(problem.params)
    for t in range(problem.steps):
        kind = method.kind(t)
        params, state, _ = method.step(problem.loss_fn, params, state, problem.batch(t), kind=kind)
    chex.assert_trees_all_close(jax.tree.map(lambda h: h[-1], inside), params, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every must be an integer >= 1, got 0"),
        ({"every": 2.0}, "every must be an integer >= 1, got 2.0"),
        ({"alpha": -1}, "alpha must be a number >= 0, got -1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options, message):
    with pytest.raises(sj.ArgumentError, match=f"^{message}$"):
        sj.looksam(0.1, **options)
