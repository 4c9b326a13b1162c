"""The text of `saddle demo`: two methods side by side, their differences, and an explanation."""

import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

from saddle_jax.report.sharpness import Stages
from saddle_jax.report.tables import NAMES
from saddle_jax.runs.statistics import Summary, summarise
from saddle_jax.runs.table import Cell

BASE, SADDLE = "qgm", "q_saddle"
_WIDTH = 80
_INTRODUCTION = (
    "Ten agents in a ring learn to read digits. Each holds images of few classes (Dirichlet, alpha 0.001) "
    "and talks to its two neighbours. QGM is a usual method; Q-SADDLe is the same with SAM's gradients, "
    "which look for flat minima."
)


class Shown(NamedTuple):
    """Results of both methods: test accuracies in percent, and lambda_max of the final models."""

    accuracies: Mapping[str, Cell]
    lambdas: Mapping[str, Summary]

    @property
    def difference(self) -> Summary:
        """SADDLe's gain in accuracy, paired by seed."""
        return self.accuracies[SADDLE].minus(self.accuracies[BASE])


def introduction() -> str:
    """Describes what is about to be trained."""
    return textwrap.fill(_INTRODUCTION, _WIDTH)


def shown(cells: Mapping[tuple[Any, ...], Cell], stages: Stages) -> Shown:
    """Collects the scores and the sharpness of both methods."""
    accuracies = {key[0]: cell for key, cell in cells.items()}
    lambdas = {
        method: summarise(
            [
                entry["lambda_max"]
                for run, entries in stages.items()
                if run.config.method.partition("(")[0] == method
                for entry in entries
                if entry["lambda_max"] is not None
            ]
        )
        for method in accuracies
    }
    return Shown(accuracies, lambdas)


def rows(results: Shown) -> list[list[str]]:
    """Returns the table of both methods and their difference."""
    table = [["", "test accuracy, %", "95 % interval", "lambda_max"]]
    for method in (BASE, SADDLE):
        cell, flatness = results.accuracies[method], results.lambdas[method]
        spread = "" if flatness.std is None else f" +- {flatness.std:.2g}"
        sharp = "-" if flatness.mean is None else f"{flatness.mean:.3g}{spread}"
        table.append([NAMES[method], cell.text(), cell.summary.interval(), sharp])
    difference = results.difference
    gained = "-" if difference.mean is None else f"{difference.mean:+.2f}"
    return [*table, ["difference", gained, difference.interval("+.2f"), _ratio(results)]]


def meaning(results: Shown) -> str:
    """Explains in a few sentences what the results mean, and what they leave open."""
    difference = results.difference
    if difference.mean is None:
        return "A method diverged: there is nothing to compare."
    more = f"{abs(difference.mean):.2f} points {'more' if difference.mean > 0 else 'less'}"
    text = f"Q-SADDLe reaches {more} than QGM, over the same seeds. "
    if difference.low is None or difference.high is None:
        text += "One seed decides nothing: give several, as --seeds=0,1,2."
    elif difference.low > 0:
        text += "The 95 % interval is above zero: the seeds agree."
    elif difference.high < 0:
        text += "The 95 % interval is below zero: this contradicts the paper."
    else:
        text += f"The 95 % interval contains zero: {difference.seeds} seeds do not decide it."
    sharp, flat = (results.lambdas[method].mean for method in (BASE, SADDLE))
    if sharp is not None and flat is not None and flat < sharp:
        text += " The loss around its models is flatter: the Hessian's largest eigenvalue is "
        text += f"{flat:.3g} in place of {sharp:.3g}. That flatter minima help is the paper's point."
    elif sharp is not None and flat is not None:
        text += f" The loss around its models is not flatter here: {flat:.3g} against {sharp:.3g}."
    return textwrap.fill(text, _WIDTH)


def record(results: Shown) -> dict[str, Any]:
    """Returns the results as a JSON object."""
    methods = {
        method: {"accuracies": list(cell.scores), "lambda_max": results.lambdas[method]._asdict()}
        for method, cell in results.accuracies.items()
    }
    return {"methods": methods, "difference": results.difference._asdict()}


def _ratio(results: Shown) -> str:
    sharp, flat = (results.lambdas[method].mean for method in (BASE, SADDLE))
    return "-" if sharp is None or not flat else f"{sharp / flat:.1f} times lower"
