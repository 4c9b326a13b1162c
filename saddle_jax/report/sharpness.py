"""Tables and plots of sharpness.json: lambda_max at stages of training, and the spectral density.

A run's stages are entries of its sharpness.json; plots and means over seeds are of the consensus model.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from saddle_jax.analysis.sharpness import CONSENSUS, name_of
from saddle_jax.report import plots
from saddle_jax.runs.statistics import Summary
from saddle_jax.runs.table import Run, lambda_over_seeds, seeds_together
from saddle_jax.settings.sweep import name_of as trial_name

Stages = Mapping[Run, Sequence[Mapping[str, Any]]]


def stage_rows(stages: Stages) -> list[list[str]]:
    """Returns the table of all runs' stages."""

    def number(value: float | None) -> str:
        return "not finite" if value is None else f"{value:.4g}"

    names = ("lambda_max", "residual", "lambda_min", "trace", "trace_error")
    rows = [["run", "epoch", "whose", *names[:-1], "+-"]]
    for run, entries in stages.items():
        for entry in entries:
            texts = [number(entry[name]) for name in names]
            rows.append([run.name, f"{entry['epoch']:g}", name_of(entry["whose"]), *texts])
    return rows


def seed_rows(stages: Stages) -> list[list[str]]:
    """Returns the table of the consensus models' lambda_max over several seeds."""
    rows = [["run", "epoch", "lambda_max", "95 % interval", "seeds"]]
    for label, group in _labelled(stages).items():
        for epoch, found in _heights(group, stages).items():
            if found.std is not None:
                mean = f"{found.mean:.4g} +- {found.std:.2g}"
                rows.append([label, f"{epoch:g}", mean, found.interval(".4g"), str(found.seeds)])
    return rows


def _consensus(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [entry for entry in entries if entry["whose"] == CONSENSUS]


def _heights(group: Sequence[Run], stages: Stages) -> dict[float, Summary]:
    return lambda_over_seeds(entry for run in group for entry in _consensus(stages[run]))


def _labelled(stages: Stages) -> dict[str, list[Run]]:
    """Groups runs that differ only in the seed by their folder and, in a sweep, its numbers."""
    found = {}
    for group in seeds_together([*stages]):
        swept = {name: value for name, value in group[0].setting.items() if name != "seed"}
        family = group[0].family or group[0].name
        found[f"{family} ({trial_name(swept)})" if swept else family] = group
    return found


def draw(
    stages: Stages, workdir: pathlib.Path, output: pathlib.Path | None, density: bool
) -> list[pathlib.Path]:
    """Draws bars if there are several runs or an output file, and densities on request; returns the paths.

    `workdir` is that of the first run.
    """
    groups = _labelled(stages)
    compares = len(groups) > 1 or output is not None
    bars = output or workdir.resolve().parent / "sharpness.png"
    paths = []
    if compares:
        epochs = sorted({entry["epoch"] for entries in stages.values() for entry in _consensus(entries)})
        heights = [_heights(group, stages) for group in groups.values()]
        plots.plot_bars(dict(zip(plots.labels(groups), heights, strict=True)), epochs, bars)
        paths.append(bars)
    if density:
        paths.append((bars.parent if compares else workdir) / f"density{bars.suffix}")
        plot_densities(stages, paths[-1])
    return paths


def plot_densities(stages: Stages, path: pathlib.Path) -> None:
    """Draws the spectral density of the Hessian, one panel per stage and one line per run."""
    names = plots.labels(run.name for run in stages)
    dense = [
        (name, entry)
        for name, entries in zip(names, stages.values(), strict=True)
        for entry in _consensus(entries)
        if entry["density"]
    ]
    epochs = sorted({entry["epoch"] for _, entry in dense})
    columns = max(len(epochs), 1)
    figure, grid = plots.new_figure(width=1 + 3.2 * columns, height=3.2, columns=columns)
    for cell, epoch in zip(np.ravel(grid), epochs, strict=False):
        for name, entry in dense:
            if entry["epoch"] == epoch:
                cell.plot(entry["density"]["x"], entry["density"]["y"], linewidth=1, label=name)
        cell.set_yscale("log")
        cell.set_ylim(bottom=1e-8)
        cell.set_title(f"epoch {epoch:.4g}", fontsize=8)
        plots.finish(cell, "eigenvalue", "density" if epoch == epochs[0] else "")
    plots.legend_below(figure)
    plots.save(figure, path)
