"""Convex problems: their optimum and constants, against other routes to the same numbers."""

import functools

import numpy as np
import pytest
import scipy.optimize

from saddle_jax import data
from saddle_jax.data import convex

every_kind = pytest.mark.parametrize("kind", convex.CONVEX_KINDS)


@functools.cache
def divided(kind, agents=10, partition="dirichlet(0.1)", weight_decay=0.0, **options):
    samples = convex.make_samples(kind, **options)
    shares = data.make_partition(partition, samples.groups, agents, seed=0)
    return convex.agent_losses(samples, shares, weight_decay)


def plain_loss(losses, weight_decay_and_penalty):
    """F as the module's first lines print it: a loop over agents and samples."""

    def value(x):
        total = 0.0
        for loss in losses:
            of_agent = 0.0
            for a, b in zip(loss.features, loss.targets, strict=True):
                z = a @ x
                of_agent += (z - b) ** 2 / 2 if loss.kind == "ridge" else np.log1p(np.exp(-b * z))
            total += of_agent / len(loss.targets) + weight_decay_and_penalty / 2 * (x @ x)
        return total / len(losses)

    return value


@every_kind
def test_the_loss_is_the_printed_one_and_its_derivatives_are_its_differences(kind):
    samples = convex.make_samples(kind, dimension=4, samples=30)
    losses = divided(kind, agents=3, partition="quantity_skew", dimension=4, samples=30, weight_decay=0.01)
    assert len({len(loss.targets) for loss in losses}) > 1  # agents count equally, and not by their samples
    whole, x = convex.whole_loss(losses), np.random.RandomState(1).normal(size=4)
    printed = plain_loss(losses, samples.penalty + 0.01)
    assert whole.value(x) == pytest.approx(printed(x), rel=1e-13)
    assert whole.weights.sum() == pytest.approx(1, rel=1e-13)
    h, axes = 1e-5, np.eye(4)
    slopes = [(printed(x + h * e) - printed(x - h * e)) / (2 * h) for e in axes]
    np.testing.assert_allclose(whole.gradient(x), slopes, atol=1e-8)
    rows = [(whole.gradient(x + h * e) - whole.gradient(x - h * e)) / (2 * h) for e in axes]
    np.testing.assert_allclose(whole.hessian(x), rows, atol=1e-8)


@every_kind
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_optimum_is_that_of_scipy(kind, weight_decay):
    losses = divided(kind, weight_decay=weight_decay)
    optimum, whole = convex.solve(losses), convex.whole_loss(losses)
    found = scipy.optimize.minimize(
        whole.value, np.ones(20), jac=whole.gradient, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-12}
    )
    np.testing.assert_allclose(optimum.point, found.x, atol=1e-7)
    assert optimum.value == pytest.approx(found.fun, rel=1e-12)
    assert np.linalg.norm(whole.gradient(optimum.point)) < 1e-14
    delta = np.sqrt(np.mean([np.linalg.norm(loss.gradient(optimum.point)) ** 2 for loss in losses]))
    assert optimum.heterogeneity == pytest.approx(delta, rel=1e-12)
    assert delta > 0.05


@every_kind
def test_the_gap_is_the_difference_of_losses_and_keeps_its_digits(kind):
    losses = divided(kind)
    least, whole = convex.solve(losses).point, convex.whole_loss(losses)
    direction = np.random.RandomState(3).normal(size=20)
    for scale in (0.01, 1.0, 1000.0):
        x = least + scale * direction
        difference = whole.value(x) - whole.value(least)
        assert whole.gap(x, least) == pytest.approx(difference, rel=1e-9, abs=1e-14)
    assert whole.gap(least, least) == 0
    curvature = direction @ whole.hessian(least) @ direction  # near by the loss is its parabola
    assert whole.gap(least + 1e-9 * direction, least) == pytest.approx(0.5e-18 * curvature, rel=1e-4)


def test_ridge_regression_has_its_closed_form():
    losses = divided("ridge", agents=7, weight_decay=0.02)
    matrix = sum(loss.features.T @ loss.features / len(loss.targets) for loss in losses) / 7
    vector = sum(loss.features.T @ loss.targets / len(loss.targets) for loss in losses) / 7
    closed = np.linalg.solve(matrix + losses[0].penalty * np.eye(20), vector)
    np.testing.assert_allclose(convex.solve(losses).point, closed, atol=1e-13)


@every_kind
@pytest.mark.parametrize("condition", [10.0, 1000.0])
def test_the_constants_are_those_that_were_asked_for(kind, condition):
    optimum = convex.solve(divided(kind, condition=condition))
    assert optimum.smoothness == pytest.approx(1, rel=1e-6)
    assert optimum.convexity == pytest.approx(1 / condition, rel=1e-4)
    assert optimum.condition == pytest.approx(condition, rel=1e-4)
    decayed = convex.solve(divided(kind, condition=condition, weight_decay=0.5))
    assert decayed.smoothness == pytest.approx(1.5, rel=1e-6)
    assert decayed.convexity == pytest.approx(0.5 + 1 / condition, rel=1e-6)
    assert optimum.agent_smoothness >= optimum.smoothness


@every_kind
def test_curvature_stays_between_the_constants_everywhere(kind):
    losses = divided(kind)
    optimum, whole = convex.solve(losses), convex.whole_loss(losses)
    random = np.random.RandomState(2)
    for scale in (0.0, 0.1, 1.0, 100.0):
        eigenvalues = np.linalg.eigvalsh(whole.hessian(scale * random.normal(size=20)))
        assert eigenvalues[-1] <= optimum.smoothness * (1 + 1e-12)
        assert eigenvalues[0] >= optimum.convexity * (1 - 1e-9)
    at_zero = np.linalg.eigvalsh(whole.hessian(np.zeros(20)))[-1]
    assert at_zero == pytest.approx(optimum.smoothness, rel=1e-12)  # L is reached


@every_kind
def test_heterogeneity_is_what_the_groups_and_the_partition_make_of_it(kind):
    many = {"samples": 10_000}  # with few of them, agents differ by chance
    apart = convex.solve(divided(kind, **many)).heterogeneity
    assert convex.solve(divided(kind, heterogeneity=0.0, **many)).heterogeneity < 0.25 * apart
    assert convex.solve(divided(kind, partition="iid", **many)).heterogeneity < 0.25 * apart


def test_the_noise_is_the_deviation_of_one_samples_gradient():
    (loss,) = divided("ridge", agents=1)
    optimum = convex.solve([loss])
    each = (loss.features @ optimum.point - loss.targets)[:, None] * loss.features
    deviation = np.sqrt(np.trace(np.cov(each.T, bias=True)))
    assert optimum.noise == pytest.approx(deviation, rel=1e-12)
    assert optimum.heterogeneity < 1e-14  # of a single agent


def test_samples_follow_from_the_seed():
    one, same, other = (convex.make_samples(seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.features, same.features)
    np.testing.assert_array_equal(one.targets, same.targets)
    assert np.abs(one.features - other.features).max() > 0.1
    np.testing.assert_array_equal(np.bincount(one.groups), np.full(10, 100))
    assert set(convex.make_samples("logistic").targets) == {-1.0, 1.0}


BAD = {
    "kind": ({"kind": "lasso"}, "kind must be one of 'ridge', 'logistic', got 'lasso'"),
    "dimension": ({"dimension": 1}, "dimension must be an integer >= 2 and <= 1000, got 1"),
    "few": ({"samples": 10}, "samples must be an integer >= 20 and <= 1000000, got 10"),
    "many": ({"samples": 10**9}, "samples must be an integer >= 20 and <= 1000000, got 1000000000"),
    "uneven": ({"samples": 1001}, "samples must be a multiple of groups = 10, got 1001"),
    "condition": ({"condition": 1}, "condition must be a number > 1, got 1"),
    "noise": ({"noise": -1.0}, "noise must be a number >= 0, got -1.0"),
    "heterogeneity": ({"heterogeneity": "much"}, "heterogeneity must be a number >= 0, got 'much'"),
    "seed": ({"seed": -1}, "seed must be an integer >= 0 and <= 4294967295, got -1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_named_with_their_value(name):
    options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        convex.make_samples(**options)
