"""The convergence theorem: as printed, and on problems whose constants are known."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import compiled

import saddle_jax as sj
from saddle_jax.papers.saddle.theory import testbed
from saddle_jax.papers.saddle.theory.bound import (
    Setting,
    bound,
    conditions,
    corollary_schedule,
    largest_eta,
    mixing_lambda,
)

BY_HAND = Setting(
    L=2, sigma=3, delta=1, lambda_=0.5, gap=10, eta=0.1, beta=0.5, mu=0.5, rho=0.5, agents=4, steps=100
)


def printed(L, sigma, delta, lam, gap, eta, beta, mu, rho, n, T):  # noqa: N803
    """The right-hand side of Theorem 1, copied from the page line by line."""
    C1 = (2 - beta - mu) * (1 - beta) ** 2 / (1 - mu)  # noqa: N806
    C2 = beta**2 / ((1 - mu) * (1 - beta))  # noqa: N806
    te = eta / (1 - beta)
    return (
        4 / (te * T) * gap
        + (6 * te * L / n + 18 * te**2 * L**2 * C2 + 768 * te**2 * L**2 * C1 / lam**2) * sigma**2
        + (832 * L**2 * te**2 * (1 - beta) ** 2 / lam**2) * delta**2
        + (8 * L**2 + 12 * te * L**3 / n + 36 * te**2 * L**4 * C2 + 3136 * L**4 * te**2 * C1 / lam**2)
        * rho**2
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_is_the_printed_formula(seed):
    random = np.random.default_rng(seed)
    values = [float(x) for x in random.uniform(0.05, 0.95, size=9)]
    n, steps = int(random.integers(1, 50)), int(random.integers(1, 1000))
    setting = Setting(*values, agents=n, steps=steps)
    assert bound(setting).total == pytest.approx(printed(*values, n, steps), rel=1e-12)


def test_the_bound_by_hand():
    found = bound(BY_HAND)
    assert (BY_HAND.tilde_eta, BY_HAND.C1, BY_HAND.C2) == (0.2, 0.5, 1.0)
    np.testing.assert_allclose(found, [2, 5.4, 25.92, 2211.84, 133.12, 8, 1.2, 5.76, 1003.52])
    np.testing.assert_allclose([found.leading, found.total], [7.4, 3396.76])


def test_the_bound_grows_with_what_is_bad_and_vanishes_with_it():
    before = bound(BY_HAND).total
    for name in ("L", "sigma", "delta", "gap", "rho"):
        more = dataclasses.replace(BY_HAND, **{name: 1.1 * getattr(BY_HAND, name)})
        assert bound(more).total > before
    for name, value in (("lambda_", 0.6), ("agents", 8), ("steps", 200)):
        assert bound(dataclasses.replace(BY_HAND, **{name: value})).total < before
    for name, terms in (
        ("sigma", slice(1, 4)),
        ("delta", slice(4, 5)),
        ("rho", slice(5, 9)),
        ("gap", slice(1)),
    ):
        without = bound(dataclasses.replace(BY_HAND, **{name: 0.0}))
        assert sum(without[terms]) == 0
        assert without.total == pytest.approx(before - sum(bound(BY_HAND)[terms]))


def test_conditions_and_by_how_much_they_are_violated():
    found = conditions(BY_HAND)
    expected = [0.5 / 14, 0.5 / 8, 0.125 / math.sqrt(12), 0.5 / 20, 0.5 / 21]
    np.testing.assert_allclose([c.limit for c in found], expected)
    assert [c.holds for c in found] == [False] * 5
    assert [c.printed for c in found] == [True, True, True, False, False]
    np.testing.assert_allclose([c.factor for c in found], np.array([0.1, 0.1, 0.1, 0.1, 1.0]) / expected)
    plain = dataclasses.replace(BY_HAND, beta=0.0, mu=0.0, eta=0.025)
    assert conditions(plain)[2].limit == math.inf
    assert all(c.holds for c in conditions(plain))
    assert largest_eta(BY_HAND) == largest_eta(plain) == 0.025


def test_the_corollary():
    eta, rho = corollary_schedule(agents=4, steps=100, c=0.5, c_rho=2.0)
    assert (eta, rho) == pytest.approx((0.1, 0.2))
    totals = []
    for n, steps in ((4, 10**16), (16, 10**16), (4, 4 * 10**16)):  # both four times nT: half as much
        eta, rho = corollary_schedule(n, steps, 0.5, 2.0)
        changes = {"eta": eta, "rho": rho, "agents": n, "steps": steps}
        totals.append(bound(dataclasses.replace(BY_HAND, **changes)).total)
    np.testing.assert_allclose(totals, np.array([1, 0.5, 0.5]) * totals[0], rtol=2e-3)


@pytest.mark.parametrize(
    "topology", [sj.ring(6), sj.star(5), sj.exponential(6), sj.complete(4)], ids=lambda t: t.name
)
def test_lambda_is_the_sharp_constant_of_assumption_3(topology):
    found = mixing_lambda(topology)
    random = np.random.default_rng(0)
    ratios = []
    for _ in range(20):
        z = random.normal(size=(3, topology.size))
        for _ in range(30):  # towards the slowest mode, there and back: W^T W
            z = z - z.mean(axis=1, keepdims=True)
            before = np.sum(z**2)
            mixed = z @ topology.mixing.T
            ratios.append(np.sum(mixed**2) / before if before > 1e-30 else 0.0)
            z = mixed @ topology.mixing
            z /= max(np.linalg.norm(z), 1e-30)
    assert max(ratios) == pytest.approx(1 - found, rel=1e-3, abs=1e-9)


def test_lambda_of_known_graphs():
    assert mixing_lambda(sj.ring(4)) == pytest.approx(1 - 1 / 9)
    assert mixing_lambda(sj.ring(4), gamma=0.5) == pytest.approx(1 - 4 / 9)  # (1 + 1/3) / 2
    assert mixing_lambda(sj.isolated(3)) == 0
    assert mixing_lambda(sj.from_matrix([[1.0]])) == 1


BAD = {
    "L": ({"L": 0}, "L must be a number > 0 and <= 1e\\+30, got 0"),
    "sigma": ({"sigma": -1}, "sigma must be a number >= 0 and <= 1e\\+30, got -1"),
    "beta": ({"beta": 1.0}, "beta must be a number >= 0 and < 1, got 1.0"),
    "lambda": ({"lambda_": 0.0}, "lambda must be a number > 0 and <= 1, got 0.0"),
    "steps": ({"steps": 0}, "steps must be an integer >= 1 and <= 1000000000000000000, got 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_constants_are_named(name):
    changes, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(BY_HAND, **changes)


# The test-bed


def test_the_test_bed_has_the_constants_that_were_asked_for():
    problem = testbed.quadratic(sj.ring(5), L=2.0, sigma=0.7, delta=0.3, gap=1.5, dimension=3)
    setting = problem.setting(eta=0.01, beta=0.1, mu=0.2, rho=0.05, steps=7)
    hessian = np.diag(problem.curvature)
    x = np.array([0.3, -1.0, 2.0])  # any x
    local = np.stack([hessian @ (x - b) for b in problem.centres])
    whole = local.mean(axis=0)
    assert np.mean(np.sum((local - whole) ** 2, axis=1)) == pytest.approx(0.3**2)

    def f(x):
        return np.mean([(x - b) @ hessian @ (x - b) / 2 for b in problem.centres])

    assert f(problem.start) - f(problem.centres.mean(axis=0)) == pytest.approx(1.5)
    assert np.linalg.eigvalsh(hessian).max() == 2.0
    constants = (setting.L, setting.sigma, setting.delta, setting.gap, setting.lambda_)
    np.testing.assert_allclose(constants, (2.0, 0.7, 0.3, 1.5, mixing_lambda(sj.ring(5))))
    with pytest.raises(ValueError, match=r"delta must be 0 for one agent, got 0\.5"):
        testbed.quadratic(sj.from_matrix([[1.0]]))


def test_what_is_measured_without_momentum_and_sam_is_what_theory_says_exactly():
    """x-bar is then an autoregressive sequence in every eigen-direction of H, whose moments are known."""
    problem = testbed.quadratic(sj.ring(4), sigma=2.0, delta=0.5)
    eta, steps = 0.1, 200
    t = np.arange(steps)[:, None]
    a = 1 - eta * problem.curvature
    mean = a**t * problem.start
    variance = eta**2 * 2.0**2 / (4 * len(a)) * (1 - a ** (2 * t)) / (1 - a**2)
    expected = np.mean(np.sum(problem.curvature**2 * (mean**2 + variance), axis=1))
    found = testbed.measure(problem, eta=eta, beta=0.0, mu=0.0, rho=0.0, steps=steps, repetitions=256)
    assert found.standard_error < 0.02 * expected
    assert abs(found.mean - expected) < 4 * found.standard_error


@pytest.mark.parametrize("topology", [sj.ring(4), sj.star(5)], ids=lambda t: t.name)
def test_below_the_bound_wherever_theorem_and_proof_apply(topology):
    for number, (sigma, delta, rho, momentum) in enumerate(
        [(0, 0, 0, 0), (1, 0, 0.1, 0), (0, 2, 0.1, 1), (1, 1, 0, 1), (0.3, 0.3, 1, 1), (3, 5, 0.3, 0.5)]
    ):
        problem = testbed.quadratic(topology, sigma=sigma, delta=delta, gap=1.0, seed=number)
        beta = momentum * mixing_lambda(topology) / (21 + mixing_lambda(topology))  # as much as is allowed
        options = {"beta": beta, "mu": 0.9 if momentum == 1 else beta, "rho": float(rho), "steps": 100}
        eta = largest_eta(problem.setting(eta=1.0, **options))
        setting = problem.setting(eta=eta, **options)
        assert all(c.factor <= 1 + 1e-9 for c in conditions(setting))
        found = testbed.measure(problem, eta=eta, **options, repetitions=8)
        assert 0 < found.mean + 3 * found.standard_error < bound(setting).total


def test_twice_the_agents_make_the_error_smaller_by_the_root_of_two():
    points = testbed.sweep((2, 8), steps=2000, c=0.3, repetitions=32)
    slope = testbed.fit_slope(points)
    assert slope.standard_error < 0.04
    # eta T is 19 for two agents: where the run starts still shows, by 0.02 or less
    assert slope.value == pytest.approx(-0.5, abs=3 * slope.standard_error + 0.02)
    expected = 0.3 / np.sqrt(2000 * np.array([2, 8]))  # both errors of a run: c / 2 each, over sqrt(nT)
    np.testing.assert_allclose([p.measured.mean for p in points], expected, rtol=0.1)


def point(n, mean, error):
    setting = dataclasses.replace(BY_HAND, agents=n)
    return testbed.Point(setting, bound(setting), testbed.Measured(mean, error))


def test_the_slope_and_its_error_are_those_of_numpy():
    points = [point(2, 1.0, 0.1), point(4, 0.6, 0.02), point(16, 0.4, 0.03)]
    found = testbed.fit_slope(points)
    weights = [p.measured.mean / p.measured.standard_error for p in points]
    line, covariance = np.polyfit(np.log([2, 4, 16]), np.log([1, 0.6, 0.4]), 1, w=weights, cov="unscaled")
    assert found == pytest.approx((line[0], np.sqrt(covariance[0, 0])))
    with pytest.raises(ValueError, match="points must be at least two, got 1"):
        testbed.fit_slope(points[:1])


def test_agents_with_curvatures_of_their_own_have_the_same_mean_and_minimum():
    problem = testbed.quadratic(sj.ring(5), L=2.0, delta=0.3, gap=1.5, dimension=3, spread=0.5)
    assert problem.curvatures.shape == (5, 3)
    np.testing.assert_allclose(problem.curvatures.mean(axis=0), problem.curvature)
    local = -problem.curvatures * problem.centres  # at zero
    np.testing.assert_allclose(local.mean(axis=0), 0, atol=1e-12)
    setting = problem.setting(eta=0.01, beta=0.0, mu=0.0, rho=0.0, steps=7)
    assert (setting.L, setting.delta, setting.gap) == pytest.approx((3.0, 0.3, 1.5))
    with pytest.raises(ValueError, match=r"spread must be a number >= 0 and < 1, got 1\.0"):
        testbed.quadratic(sj.ring(5), spread=1.0)


def test_the_graph_moves_the_mean_only_if_curvatures_differ():
    def error(topology, spread):
        problem = testbed.quadratic(topology, sigma=0.0, delta=2.0, spread=spread)
        return testbed.measure(problem, eta=0.1, beta=0.0, mu=0.0, rho=0.0, steps=200, repetitions=2).mean

    assert error(sj.ring(9), 0.0) == pytest.approx(error(sj.complete(9), 0.0), rel=1e-3)
    assert error(sj.ring(9), 0.5) > 1.05 * error(sj.complete(9), 0.5)


def test_the_corollary_over_steps_on_a_sparse_graph():
    (case,) = testbed.measure_cases(["ring"], [0.5], sizes=(4, 8), steps=(500, 4000), repetitions=16)
    assert [point.setting.steps for point in case.over_steps] == [500, 4000]
    assert [(point.setting.agents, point.setting.steps) for point in case.over_agents] == [
        (4, 4000),
        (8, 4000),
    ]
    assert {point.setting.beta for point in case.over_agents} == {0.5}
    over_steps, over_agents = case.slopes
    assert over_steps == case.last_slope
    # What is of order 1 / T makes the one steeper and the other flatter; it is a few percent at T = 4,000.
    assert over_steps.value == pytest.approx(-0.5, abs=0.08)
    assert over_agents.value == pytest.approx(-0.5, abs=0.12)
    assert case.excess == pytest.approx(1.0, abs=0.15)
    slope = testbed.fit_slope(case.over_steps, "steps")
    first, last = (point.measured.mean for point in case.over_steps)
    assert slope.value == pytest.approx(np.log(last / first) / np.log(8))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("beta", "eta", "is_proved"), [(0.9, 0.003, False), (0.029, 0.06, True)])
def test_the_printed_theorem_needs_the_proofs_condition_on_beta(beta, eta, is_proved):
    """Smooth losses sqrt(1 + (x - b_i)^2), no noise, all printed conditions kept: and yet.

    Their gradients are 1-Lipschitz and below one. Neighbours on the torus have opposite b_i, which is the
    mode of W with eigenvalue -0.6; for beta = 0.9 and mu = 0 it grows 1.5-fold a step, the gradients
    of half the agents become 1 and of the others -1, and the mean stands still where it is.
    """
    topology, spread, rho, steps, start = sj.torus(4, 4), 0.2, 1e-3, 700, 2.0
    column, row = np.divmod(np.arange(16), 4)
    centres = jnp.asarray(np.where((row + column) % 2, spread, -spread))[:, None]

    def loss_fn(x, b):
        return jnp.sum(jnp.sqrt(1 + (x - b) ** 2))

    def f(x):
        return (jnp.sqrt(1 + (x - spread) ** 2) + jnp.sqrt(1 + (x + spread) ** 2)) / 2

    method = sj.q_saddle(topology, eta, rho, beta=beta, mu=0.0, nesterov=False, weight_decay=0.0)
    gradients = sj.local_gradients(loss_fn, sj.sam(rho))

    def step(carry, _):
        # x-bar by its own recursion (mu = 0): the mean of models as far apart as these is lost to rounding
        params, state, x, x_before = carry
        x_next = x - eta * jnp.mean(gradients(params, centres)) - beta * (x_before - x)
        params, state, _ = method.step(loss_fn, params, state, centres)
        return (params, state, x_next, x), (jax.grad(f)(x) ** 2, x, jnp.mean(params))

    params = jnp.full((16, 1), start)
    first = (params, method.init(params), jnp.float64(start), jnp.float64(start))
    _, (squares, means, means_of_models) = compiled(lambda c: jax.lax.scan(step, c, None, length=steps))(
        first
    )
    np.testing.assert_allclose(means[1:40], means_of_models[:39], rtol=1e-6)  # while they are still near
    setting = Setting(
        L=1.0,
        sigma=0.0,
        delta=spread,  # 1-Lipschitz gradients of points 2 * spread apart
        lambda_=mixing_lambda(topology),
        gap=float(f(start) - f(0.0)),
        eta=eta,
        beta=beta,
        mu=0.0,
        rho=rho,
        agents=16,
        steps=steps,
    )
    assert all(c.holds for c in conditions(setting) if c.printed)
    assert all(c.holds for c in conditions(setting)) == is_proved
    assert (float(jnp.mean(squares)) <= bound(setting).total) == is_proved
