"""Loss and accuracy over a run, or over several for comparison."""

import os
import pathlib
from collections.abc import Sequence

import numpy as np

from saddle_jax.report.gathered import gather
from saddle_jax.report.plots import new_figure, save
from saddle_jax.report.seeds import band, colour_of, finish, has, labels, over_seeds, seeds_together


def plot_curves(workdirs: Sequence[pathlib.Path], path: str | os.PathLike) -> None:
    """Draws training loss, test accuracy and consensus distance over epochs; seeds as mean and band."""
    groups = seeds_together(gather(workdirs))
    seeded = any(len(group) > 1 for group in groups)
    names = labels(groups) if seeded else [group[0].name for group in groups]
    legend_rows = (len(groups) + 1) // 2
    height = 3.2 + 0.14 * max(0, legend_rows - 3)  # the legend is below the panels
    figure, axes = new_figure(width=10, height=height, rows=1, columns=3)
    panels = (
        ("train_loss", "training loss", 1, "log"),
        ("test_accuracy", "test accuracy of the consensus model, %", 100, "linear"),
        ("consensus_distance", "consensus distance", 1, "log"),
    )
    handles = {}
    for cell, (name, title, scale, kind) in zip(axes.ravel(), panels, strict=True):
        for number, (group, label) in enumerate(zip(groups, names, strict=True)):
            if has(group, name):
                epochs, mean, spread = over_seeds(group, name)
                band(cell, epochs, scale * mean, scale * spread, label, colour_of(number, len(groups)))
        for line in cell.lines:
            handles[line.get_label()] = line
            if len(line.get_xdata()) < 60:
                line.set_marker(".")
        cell.set_title(title, fontsize=8)
        finish(cell, "epoch", "")
        if cell.lines and all(np.min(line.get_ydata(), initial=np.inf) > 0 for line in cell.lines):
            cell.set_yscale(kind)
    if len(groups) > 1:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", fontsize=7, ncols=2)
    save(figure, path)
