"""Scaling of a step's time and memory with the number of agents, model size and degree."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import Row, Timing, interleaved
from benchmarks.work import Job, Options, OurStep, Work
from saddle_jax import models
from saddle_jax.report.plots import new_figure, save

_IMAGE = (8, 8, 1)
_AGAINST = "step time and memory against "


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Fits the p of the power law value = c size^p, by least squares of logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def growth_jobs(case: str, options: Options) -> list[Job]:
    """Lists a job for each scaling: agents with two models, the CNN's width, N-SADDLe's neighbours."""
    quick = options.quick
    model, batch = ("mlp", 4) if quick else ("cnn", 32)
    counts, widths, degrees = (
        ((4, 8), (1, 2), (2, 4)) if quick else ((8, 16, 32, 64), (1, 2, 4), (2, 4, 6, 8))
    )
    families: dict[str, tuple[list[Work], Callable[[Work], float]]] = {
        **{
            f"agents, {kind}": (
                [Work("q_saddle", kind, n, batch, _IMAGE) for n in counts],
                lambda work: work.agents,
            )
            for kind in dict.fromkeys(("mlp", model))
        },
        f"parameters, {model}": (
            [Work("q_saddle", model, 8, batch, _IMAGE, width=width) for width in widths],
            lambda work: models.count(work.params()) / work.agents,
        ),
        f"degree + 1, n_saddle, {model}": (
            [Work("n_saddle", model, 10, batch, _IMAGE, degree=degree) for degree in degrees],
            lambda work: work.degree + 1,
        ),
    }
    return [
        Job(case, what, functools.partial(_measure, case, what, options.applied(family), size_of, options))
        for what, (family, size_of) in families.items()
    ]


def _measure(
    case: str, what: str, family: Sequence[Work], size_of: Callable[[Work], float], options: Options
) -> Row:
    steps = {str(work): OurStep(work) for work in family}
    timing: Timing = interleaved(steps, options.repeats)
    sizes = [size_of(work) for work in family]
    seconds = [timing.seconds(name).median for name in steps]
    # the program's memory, where outputs reuse donated arguments
    memory = [step.memory["argument"] + step.memory["temp"] for step in steps.values()]
    figures: dict[str, Any] = {
        "time ~ size^": exponent(sizes, seconds),
        "memory ~ size^": exponent(sizes, memory),
        "sizes": " ".join(f"{size:g}" for size in sizes),
        "ms": " ".join(f"{1e3 * s:.3g}" for s in seconds),
        "MB": " ".join(f"{m / 1e6:.3g}" for m in memory),
        "curve": {"sizes": sizes, "seconds": seconds, "bytes": memory},
    }
    return Row(case, f"{_AGAINST}{what}", figures=figures)


def curves(rows: Sequence[Row]) -> dict[str, dict[str, list[float]]]:
    """Returns sizes, seconds and bytes of each scaling, from the rows of this case."""
    return {row.what.removeprefix(_AGAINST): row.figures["curve"] for row in rows if "curve" in row.figures}


def plot_growth(curves: Mapping[str, Mapping[str, Sequence[float]]], path: str | os.PathLike) -> None:
    """Draws a column for each scaling: ms and MB against sizes, on logarithmic axes."""
    figure, grid = new_figure(width=3.0 * len(curves), height=5.0, rows=2, columns=len(curves))
    grid = grid.reshape(2, -1)
    for column, (what, curve) in enumerate(curves.items()):
        for row, (name, scale, unit) in enumerate((("seconds", 1e3, "ms"), ("bytes", 1e-6, "MB"))):
            axes = grid[row, column]
            values = [scale * value for value in curve[name]]
            axes.loglog(curve["sizes"], values, "o-", color="#4063d8", markersize=4)
            linear = [values[0] * size / curve["sizes"][0] for size in curve["sizes"]]
            axes.loglog(curve["sizes"], linear, "--", color="0.6", linewidth=1, label="linear")
            axes.set_xticks(curve["sizes"], [f"{size:,.0f}" for size in curve["sizes"]])
            axes.set_yticks(values, [f"{value:.3g}" for value in values])
            axes.minorticks_off()
            axes.set_xlabel(what)
            axes.set_ylabel(f"{unit} of a step" if row == 0 else f"{unit} of its program")
            axes.spines[["top", "right"]].set_visible(False)
    grid[0, 0].legend(frameon=False, fontsize=7)
    save(figure, path)
