"""The corollary on the test-bed: with eta = c sqrt(n/T) the error falls as 1 / sqrt(n) at a fixed T.

What c and T must be for that to show. Let H = L I and L = 1, without momentum. A run really has the error

    gap / (eta T)  +  eta sigma^2 / (2n)            =  (gap / c + c sigma^2 / 2) / sqrt(nT)

up to factors 1 - O(1 / (eta T)), because it starts elsewhere than it ends, and 1 + O(eta). The bound has

    4 gap / (eta T)  +  6 eta sigma^2 / n  +  1536 eta^2 sigma^2 / lambda^2  +  ...

and its third summand, a consensus error times a large constant, is 1536 c^2 sigma^2 n / T: it grows with n.
The first two lead where 256 c sqrt(n^3 / T) is about one or below, while eta T = c sqrt(nT) must be large for
the smallest n. Sizes 2 to 8 and a complete graph (lambda = 1) allow both with T = 40,000 and c = 0.043; gap
is chosen to make the two errors of a run equal, and delta and rho to leave them alone.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.graphs.named import complete
from saddle_jax.papers.saddle.theory.bound import Bound, Setting, bound, corollary_schedule
from saddle_jax.papers.saddle.theory.testbed import Measured, measure, quadratic


class Point(NamedTuple):
    """One size of the sweep: its setting, the bound, and the measured error."""

    setting: Setting
    bound: Bound
    measured: Measured


class Slope(NamedTuple):
    """The slope of log(error) against log(n) or log(T); the corollary says -1/2."""

    value: float
    standard_error: float  # what the errors of the measured points cause


def sweep(
    sizes: Sequence[int] = (2, 4, 8),
    *,
    steps: int = 40_000,
    c: float = 0.043,
    c_rho: float = 0.1,
    repetitions: int = 32,
    report: Callable[[Point], None] = lambda point: None,
) -> list[Point]:
    """Measures the test-bed on complete graphs, under the corollary's schedule, without momentum.

    `report` is called with every point as soon as it is measured.
    """
    if len(sizes) < 2:
        raise ArgumentError(f"sizes must be at least two, got {sizes}")
    sigma = 1.0
    gap = c**2 * sigma**2 / 2  # gap / c = c sigma^2 / 2
    points = []
    for n in sizes:
        eta, rho = corollary_schedule(checks.whole("sizes", n, at_least=2), steps, c, c_rho)
        problem = quadratic(complete(n), sigma=sigma, delta=0.1, gap=gap, dimension=8, flattest=1.0, seed=n)
        options = {"eta": eta, "beta": 0.0, "mu": 0.0, "rho": rho}
        setting = problem.setting(**options, steps=steps)
        measured = measure(problem, **options, steps=steps, repetitions=repetitions, seed=n)
        points.append(Point(setting, bound(setting), measured))
        report(points[-1])
    return points


def fit_slope(points: Sequence[Point], over: Literal["agents", "steps"] = "agents") -> Slope:
    """Fits the slope by least squares in log-log, each point weighted by its own standard error."""
    if len(points) < 2:
        raise ArgumentError(f"points must be at least two, got {len(points)}")
    sizes = np.log([getattr(point.setting, over) for point in points])
    errors = np.log([point.measured.mean for point in points])
    weights = [point.measured.mean / point.measured.standard_error for point in points]  # 1 / std of the log
    coefficients, covariance = _line(sizes, errors, np.asarray(weights))
    return Slope(float(coefficients[0]), math.sqrt(covariance[0, 0]))


def _line(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fits slope and intercept [2] and their covariance [2, 2], with the weights as they are."""
    design = np.stack([x, np.ones_like(x)], axis=1) * weights[:, None]
    covariance = np.linalg.inv(design.T @ design)
    return covariance @ design.T @ (y * weights), covariance
