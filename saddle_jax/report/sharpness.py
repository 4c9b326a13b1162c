"""Tables and plots of sharpness.json: lambda_max at stages of training, and the spectral density."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from saddle_jax.analysis.sharpness import CONSENSUS, Opened, name_of
from saddle_jax.report import plots
from saddle_jax.report.plots import labels, new_figure, save
from saddle_jax.runs.statistics import Summary, summarise
from saddle_jax.runs.table import run_names
from saddle_jax.settings.sweep import name_of as trial_name

# The "stages" of one run; plots show the consensus model.
Stages = Sequence[Mapping[str, Any]]


class Sharp(NamedTuple):
    """The sharpness measurements of one run.

    Attributes:
      name: the run's name, such as "folder (seed 1)" in a folder of several.
      family: the common name of runs that differ only in the seed, such as "folder".
      setting: the seed and swept settings that identify it in its folder.
      stages: its entries of sharpness.json.
    """

    name: str
    family: str
    setting: Mapping[str, Any]
    stages: Stages


def sharp_runs(runs: Sequence[Opened], stages: Sequence[Stages]) -> list[Sharp]:
    """Names runs by their folder and, in a folder of several, by their seed and swept settings."""
    workdirs = list(dict.fromkeys(run.workdir for run in runs))
    folders = dict(zip(workdirs, run_names(workdirs), strict=True))
    found = []
    for run, entries in zip(runs, stages, strict=True):
        folder = folders[run.workdir]
        others = {name: value for name, value in run.setting.items() if name != "seed"}
        family = f"{folder} ({trial_name(others)})" if others else folder
        found.append(Sharp(run.name(folder), family, run.setting, entries))
    return found


def stage_rows(runs: Sequence[Sharp]) -> list[list[str]]:
    """Returns the table of all runs' stages."""

    def number(value: float | None) -> str:
        return "not finite" if value is None else f"{value:.4g}"

    rows = [["run", "epoch", "whose", "lambda_max", "residual", "lambda_min", "trace", "+-"]]
    for run in runs:
        for entry in run.stages:
            numbers = ("lambda_max", "residual", "lambda_min", "trace", "trace_error")
            texts = [number(entry[key]) for key in numbers]
            rows.append([run.name, f"{entry['epoch']:g}", name_of(entry["whose"]), *texts])
    return rows


def seed_rows(runs: Sequence[Sharp]) -> list[list[str]]:
    """Returns the table of the consensus models' lambda_max over several seeds."""
    rows = [["run", "epoch", "lambda_max", "95 % interval", "seeds"]]
    for (family, epoch), found in over_seeds(runs).items():
        if found.std is not None:
            rows.append([family, f"{epoch:g}", f"{found.mean:.4g} +- {found.std:.2g}", found.interval(".4g")])
            rows[-1].append(str(found.seeds))
    return rows


def over_seeds(runs: Sequence[Sharp]) -> dict[tuple[str, float], Summary]:
    """Summarises finite values of the consensus models' lambda_max by family and epoch."""
    values: dict[tuple[str, float], list[float]] = {}
    for run in runs:
        for entry in run.stages:
            if entry["whose"] == CONSENSUS and entry["lambda_max"] is not None:
                values.setdefault((run.family, entry["epoch"]), []).append(entry["lambda_max"])
    return {place: summarise(found) for place, found in values.items()}


def draw(
    runs: Sequence[Sharp], workdir: pathlib.Path, output: pathlib.Path | None, density: bool
) -> list[pathlib.Path]:
    """Draws bars if there are several runs or an output file, and densities on request; returns the paths.

    `workdir` is that of the first run.
    """
    compares = len({run.family for run in runs}) > 1 or output is not None
    bars = output or workdir.resolve().parent / "sharpness.png"
    paths = []
    if compares:
        plot_stages(runs, bars)
        paths.append(bars)
    if density:
        consensus = {run.name: [e for e in run.stages if e["whose"] == CONSENSUS] for run in runs}
        paths.append((bars.parent if compares else workdir) / f"density{bars.suffix}")
        plot_densities(consensus, paths[-1])
    return paths


def plot_stages(runs: Sequence[Sharp], path: str | os.PathLike) -> None:
    """Draws the paper's figure: a group of bars per stage, with one bar per run or group of seeds."""
    found = over_seeds(runs)
    families = list(dict.fromkeys(run.family for run in runs))
    epochs = sorted({entry["epoch"] for run in runs for entry in run.stages if entry["whose"] == CONSENSUS})
    heights = [{e: found[family, e] for e in epochs if (family, e) in found} for family in families]
    plots.plot_bars(dict(zip(labels(families), heights, strict=True)), epochs, path)


def plot_densities(runs: Mapping[str, Stages], path: str | os.PathLike) -> None:
    """Draws the spectral density of the Hessian, one panel per stage and one line per run."""
    epochs = sorted({e["epoch"] for stages in runs.values() for e in stages if e["density"]})
    figure, grid = new_figure(width=1 + 3.2 * max(len(epochs), 1), height=3.2, columns=max(len(epochs), 1))
    cells = np.atleast_1d(np.asarray(grid, dtype=object)).ravel()
    for cell, epoch in zip(cells, epochs, strict=False):
        for name, stages in zip(labels(runs), runs.values(), strict=True):
            for entry in stages:
                if entry["epoch"] == epoch and entry["density"]:
                    cell.plot(entry["density"]["x"], entry["density"]["y"], linewidth=1, label=name)
        cell.set_yscale("log")
        cell.set_ylim(bottom=1e-8)
        cell.set_title(f"epoch {epoch:.4g}", fontsize=8)
        plots.finish(cell, "eigenvalue", "density" if cell is cells[0] else "")
    plots.legend_below(figure)
    save(figure, path)
