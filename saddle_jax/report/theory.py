"""The corollary's speed-up: errors measured on the test-bed, beside the theorem's bound."""

import pathlib
from collections.abc import Sequence

import numpy as np

from saddle_jax.analysis.theory.speedup import Point, Slope
from saddle_jax.report.plots import new_figure, save


def plot_speedup(points: Sequence[Point], slope: Slope, path: pathlib.Path) -> None:
    """Left: the measured error, the bound and its two leading terms over n. Right: the slope."""
    figure, axes = new_figure(width=8, height=3.2, rows=1, columns=2)
    left, right = axes.ravel()
    sizes = np.array([point.setting.agents for point in points])
    means = np.array([point.measured.mean for point in points])
    errors = [2 * point.measured.standard_error for point in points]
    left.plot(sizes, [point.bound.total for point in points], marker=".", label="bound")
    left.plot(sizes, [point.bound.leading for point in points], "--", label="its two leading terms")
    for cell in (left, right):
        cell.errorbar(sizes, means, errors, fmt="ko", markersize=3, capsize=3, label="measured, +- 2 s.e.")
    middle, height = np.exp(np.log(sizes).mean()), np.exp(np.log(means).mean())
    fitted = f"slope {slope.value:.3f} +- {slope.standard_error:.3f}"
    right.plot(sizes, height * (sizes / middle) ** slope.value, linewidth=1, label=fitted)
    right.plot(sizes, height * (sizes / middle) ** -0.5, ":", color="grey", label="slope -1/2")
    for cell in (left, right):
        cell.set_xscale("log", base=2)
        cell.set_yscale("log")
        cell.set_xticks(sizes, [str(n) for n in sizes])
        cell.set_xlabel("agents n", fontsize=8)
        cell.tick_params(which="both", labelsize=7)
        cell.spines[["top", "right"]].set_visible(False)
        cell.legend(fontsize=7, frameon=False)
    steps = points[0].setting.steps
    left.set_title(f"mean squared gradient of the consensus model, T = {steps:,}", fontsize=8)
    right.set_title(r"the same, $\eta = c\,\sqrt{n/T}$", fontsize=8)
    save(figure, path)
