"""Texts, tables, pictures and JSON about the theorem: its terms and conditions, the test-bed, and runs."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from saddle_jax.papers.saddle.theory.bound import Setting, bound, conditions
from saddle_jax.papers.saddle.theory.measured import MeasuredRun
from saddle_jax.papers.saddle.theory.testbed import Case, Measured, Point, Slope
from saddle_jax.report.plots import DASHES, finish, legend_below, new_figure, save
from saddle_jax.report.tables import as_text

# The terms of the bound as printed, by their names in `Bound`.
_PRINTED = {
    "gap": "4 (f(x0) - f*) / (eta~ T)",
    "noise_mean": "6 eta~ L / n  sigma^2",
    "noise_momentum": "18 eta~^2 L^2 C2  sigma^2",
    "noise_consensus": "768 eta~^2 L^2 C1 / lambda^2  sigma^2",
    "heterogeneity": "832 L^2 eta~^2 (1 - beta)^2 / lambda^2  delta^2",
    "perturbation_bias": "8 L^2  rho^2",
    "perturbation_mean": "12 eta~ L^3 / n  rho^2",
    "perturbation_momentum": "36 eta~^2 L^4 C2  rho^2",
    "perturbation_consensus": "3136 L^4 eta~^2 C1 / lambda^2  rho^2",
}


def describe_setting(setting: Setting, title: str) -> str:
    """Describes a setting: its constants, the terms of the bound, and the conditions."""
    s = setting
    return (
        f"{title}\n"
        f"n {s.agents}, T {s.steps:,}, eta {s.eta:.4g}, beta {s.beta:g}, mu {s.mu:g}, rho {s.rho:g}\n"
        f"L {s.L:.4g}, sigma {s.sigma:.4g}, delta {s.delta:.4g}, lambda {s.lambda_:.4g}, "
        f"f(x0) - f* {s.gap:.4g}; eta~ {s.tilde_eta:.4g}, C1 {s.C1:.4g}, C2 {s.C2:.4g}\n\n"
        f"{as_text(_term_rows(s))}\n\n{as_text(_condition_rows(s))}"
    )


def _term_rows(setting: Setting) -> list[list[str]]:
    terms = bound(setting)
    rows = [["term of the bound", "as printed", "value", "share"]]
    for name, value in terms._asdict().items():
        share = f"{100 * value / terms.total:.1f} %" if terms.total else "-"
        rows.append([name.replace("_", ", "), _PRINTED[name], f"{value:.4g}", share])
    return [*rows, ["total", "", f"{terms.total:.4g}", ""]]


def _condition_rows(setting: Setting) -> list[list[str]]:
    rows = [["condition", "of", "value", "limit", ""]]
    for c in conditions(setting):
        factor = f"{c.factor:,.0f}" if c.factor >= 100 else f"{c.factor:.3g}"
        verdict = "holds" if c.holds else f"violated by a factor of {factor}"
        source = "theorem" if c.printed else "proof only"
        rows.append([c.condition, source, f"{c.value:.4g}", f"{c.limit:.4g}", verdict])
    return rows


def describe_run(run: MeasuredRun, name: str) -> str:
    """Describes a run's setting, how its constants were measured, and what the theorem does not cover."""
    title = f"{name} at step {run.step:,}, {run.estimates.samples} samples per agent"
    lines = [
        describe_setting(run.setting, title),
        f"L is the largest that power iteration found; {run.estimates.L_along_sam:.4g} along SAM's "
        f"direction. sigma of the noisiest agent is {run.estimates.sigma_worst:.4g}",
        "all are of this one model: over all models L, sigma and delta are larger; f* is taken as 0",
        *(f"outside of the theorem: {text}" for text in run.outside),
    ]
    return "\n".join(lines)


def describe_measured(measured: Measured, setting: Setting) -> str:
    """Describes the error on the test-bed and the bound."""
    return (
        f"\nQ-SADDLe on quadratics with these constants: {measured.mean:.4g} +- "
        f"{measured.standard_error:.1g}, the bound is {bound(setting).total:.4g}\n"
    )


def describe_slope(slope: Slope) -> str:
    """Formats the slope of the sweep in one line."""
    return (
        f"slope of log(measured) over log(n): {slope.value:.3f} +- {slope.standard_error:.3f}; "
        "the corollary: -1/2"
    )


def point_rows(points: Sequence[Point]) -> list[list[str]]:
    """Returns the table of the sweep: the measured error, the bound, and the share of its leading terms."""
    rows = [["n", "eta", "measured", "+-", "bound", "its two leading terms"]]
    for setting, terms, (mean, error) in points:
        share = f"{100 * terms.leading / terms.total:.0f} %"
        numbers = [f"{setting.eta:.3g}", f"{mean:.4g}", f"{error:.1g}", f"{terms.total:.4g}"]
        rows.append([str(setting.agents), *numbers, share])
    return rows


def case_rows(cases: Sequence[Case]) -> list[list[str]]:
    """Returns the table of the slopes of the corollary's cases."""
    rows = [["graph", "lambda", "beta", "slope in T", "at the largest T", "slope in n", "x c / sqrt(nT)"]]
    for case in cases:
        slopes = [case.slopes[0], case.last_slope, case.slopes[1]]
        texts = [f"{slope.value:.3f} +- {slope.standard_error:.3f}" for slope in slopes]
        lambda_ = case.over_steps[-1].setting.lambda_
        rows.append([case.graph, f"{lambda_:.3f}", f"{case.beta:g}", *texts, f"{case.excess:.2f}"])
    return rows


def plot_cases(cases: Sequence[Case], path: pathlib.Path) -> None:
    """Draws the errors of the corollary's cases over T and over n."""
    figure, axes = new_figure(width=9, height=3.6, rows=1, columns=2)
    graphs = list(dict.fromkeys(case.graph for case in cases))
    momenta = sorted({case.beta for case in cases})
    left, right = axes.ravel()
    for case in cases:
        look = {"color": f"C{graphs.index(case.graph)}", "linestyle": DASHES[momenta.index(case.beta) % 4]}
        for cell, points, over in ((left, case.over_steps, "steps"), (right, case.over_agents, "agents")):
            x = [getattr(point.setting, over) for point in points]
            errors = [2 * point.measured.standard_error for point in points]
            means = [point.measured.mean for point in points]
            label = f"{case.graph}, beta {case.beta:g}"
            cell.errorbar(x, means, errors, marker=".", linewidth=1, capsize=2, label=label, **look)
    for cell, over, name in ((left, "over_steps", "steps"), (right, "over_agents", "agents")):
        places = np.array([getattr(point.setting, name) for point in getattr(cases[0], over)], float)
        height = 0.8 * min(getattr(case, over)[0].measured.mean for case in cases)
        cell.plot(places, height * (places / places[0]) ** -0.5, ":", color="grey", label="slope -1/2")
        cell.set_xscale("log")
        cell.set_yscale("log")
        cell.set_xticks(places, [f"{value:,.0f}" for value in places])
        cell.set_xticks([], minor=True)
        finish(cell, {"steps": "steps T", "agents": "agents n"}[name], "")
    setting = cases[0].over_steps[0].setting
    left.set_title(f"mean squared gradient of the consensus model, n = {setting.agents}", fontsize=8)
    right.set_title(f"the same, T = {cases[0].over_agents[0].setting.steps:,}", fontsize=8)
    legend_below(figure, columns=5)
    save(figure, path)


def plot_speedup(points: Sequence[Point], slope: Slope, path: pathlib.Path) -> None:
    """Draws the measured error, the bound, its leading terms and the fitted slope over n."""
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
        finish(cell, "agents n", "")
        cell.legend(fontsize=7, frameon=False)
    steps = points[0].setting.steps
    left.set_title(f"mean squared gradient of the consensus model, T = {steps:,}", fontsize=8)
    right.set_title(r"the same, $\eta = c\,\sqrt{n/T}$", fontsize=8)
    save(figure, path)


def setting_record(setting: Setting) -> dict[str, Any]:
    """Returns a setting with its bound and conditions as a JSON object."""
    terms = bound(setting)
    found = [c._asdict() | {"holds": c.holds, "factor": c.factor} for c in conditions(setting)]
    return {
        "setting": dataclasses.asdict(setting),
        "bound": {**terms._asdict(), "total": terms.total},
        "conditions": found,
    }


def testbed_record(measured: Measured, points: Sequence[Point], slope: Slope) -> dict[str, Any]:
    """Returns the error on the test-bed, and its slope over the number of agents, as a JSON object."""
    speedup = list(map(_point_record, points))
    return {"measured": measured._asdict(), "speedup": speedup, "slope": slope._asdict()}


def corollary_record(cases: Sequence[Case]) -> dict[str, Any]:
    """Returns the errors over T and over n by graph and momentum, with their slopes, as a JSON object."""
    return {
        "corollary": [
            {
                "graph": case.graph,
                "beta": case.beta,
                "points": list(map(_point_record, dict.fromkeys((*case.over_steps, *case.over_agents)))),
                "slope_over_steps": case.slopes[0]._asdict(),
                "slope_over_agents": case.slopes[1]._asdict(),
            }
            for case in cases
        ]
    }


def _point_record(point: Point) -> dict[str, Any]:
    s = point.setting
    constants = {"agents": s.agents, "steps": s.steps, "eta": s.eta, "lambda": s.lambda_}
    return {**constants, "bound": point.bound.total, **point.measured._asdict()}


def run_record(run: MeasuredRun) -> dict[str, Any]:
    """Returns a run's constants, bound, conditions and uncovered parts as a JSON object."""
    about = {"step": run.step, "estimates": run.estimates._asdict(), "outside_the_theorem": run.outside}
    return {**setting_record(run.setting), **about}
