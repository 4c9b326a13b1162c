"""sharpness.json as a table and as pictures: lambda_max at stages of training, and the spectral density."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from saddle_jax.analysis.sharpness_runs import CONSENSUS, name_of
from saddle_jax.report.plots import labels, new_figure, save

# One run's entries of "stages"; the pictures show one model of each run, the consensus model.
Stages = Sequence[Mapping[str, Any]]


def stage_rows(runs: Mapping[str, Stages]) -> list[list[str]]:
    """Lists the stages of all runs as rows of text, under a header."""

    def number(value: float | None) -> str:
        return "not finite" if value is None else f"{value:.4g}"

    rows = [["run", "epoch", "whose", "lambda_max", "residual", "lambda_min", "trace", "+-"]]
    for name, stages in runs.items():
        for entry in stages:
            numbers = ("lambda_max", "residual", "lambda_min", "trace", "trace_error")
            texts = [number(entry[key]) for key in numbers]
            rows.append([name, f"{entry['epoch']:g}", name_of(entry["whose"]), *texts])
    return rows


def draw(
    runs: Mapping[str, Stages], workdir: pathlib.Path, output: str | None, density: bool
) -> list[pathlib.Path]:
    """Draws bars for several runs or where a file is named, and densities where they are asked for.

    `workdir` is the first run's. Returns the pictures' paths.
    """
    consensus = {
        name: [entry for entry in stages if entry["whose"] == CONSENSUS] for name, stages in runs.items()
    }
    compares = len(runs) > 1 or bool(output)
    bars = pathlib.Path(output or workdir.resolve().parent / "sharpness.png")
    paths = []
    if compares:
        plot_bars(consensus, bars)
        paths.append(bars)
    if density:
        paths.append((bars.parent if compares else workdir) / "density.png")
        plot_densities(consensus, paths[-1])
    return paths


def plot_bars(runs: Mapping[str, Stages], path: str | os.PathLike) -> None:
    """Draws the paper's figure: a group of bars for each stage, in it a bar for each run."""
    epochs = sorted({entry["epoch"] for stages in runs.values() for entry in stages})
    figure, axes = new_figure(width=max(4.5, 1.2 + 0.35 * len(epochs) * len(runs)), height=3.4)
    width = 0.8 / len(runs)
    for number, (name, stages) in enumerate(zip(labels(runs), runs.values(), strict=True)):
        finite = [entry for entry in stages if entry["lambda_max"] is not None]
        places = [epochs.index(e["epoch"]) + (number - (len(runs) - 1) / 2) * width for e in finite]
        axes.bar(places, [e["lambda_max"] for e in finite], 0.92 * width, label=name)
    axes.set_xticks(range(len(epochs)), [f"{epoch:.4g}" for epoch in epochs], fontsize=8)
    axes.set_xlabel("epoch", fontsize=8)
    axes.set_ylabel(r"$\lambda_{max}$ of the Hessian, consensus model", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", fontsize=7, ncols=2)
    save(figure, path)


def plot_densities(runs: Mapping[str, Stages], path: str | os.PathLike) -> None:
    """Draws the density of the Hessian's eigenvalues, a panel for each stage, a line for each run."""
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
        cell.set_xlabel("eigenvalue", fontsize=8)
        cell.tick_params(which="both", labelsize=7)
        cell.spines[["top", "right"]].set_visible(False)
    cells[0].set_ylabel("density", fontsize=8)
    if epochs:
        figure.legend(*cells[0].get_legend_handles_labels(), loc="outside lower center", fontsize=7, ncols=2)
    save(figure, path)
