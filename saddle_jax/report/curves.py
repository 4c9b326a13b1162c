"""Loss and accuracy over a run, or over several for comparison."""

import os
import pathlib
from collections.abc import Sequence

from saddle_jax.report.plots import new_figure
from saddle_jax.rundir import read_metrics


def plot_curves(workdirs: Sequence[pathlib.Path], path: str | os.PathLike) -> None:
    """Training loss, test accuracy and consensus distance against epochs, one line per run."""
    figure, axes = new_figure(width=10, height=3.2, rows=1, columns=3)
    panels = (
        ("train_loss", "training loss", 1, "log"),
        ("test_accuracy", "test accuracy of the consensus model, %", 100, "linear"),
        ("consensus_distance", "consensus distance", 1, "log"),
    )
    for cell, (name, title, scale, kind) in zip(axes.ravel(), panels, strict=True):
        for workdir in workdirs:
            points = [(r["epoch"], scale * r[name]) for r in read_metrics(workdir) if r.get(name) is not None]
            if points:
                marker = "." if len(points) < 60 else None
                cell.plot(*zip(*points, strict=True), marker=marker, linewidth=1, label=workdir.name)
        cell.set_title(title, fontsize=8)
        cell.set_xlabel("epoch", fontsize=8)
        cell.tick_params(which="both", labelsize=7)
        cell.spines[["top", "right"]].set_visible(False)
        if cell.lines and all(value > 0 for line in cell.lines for value in line.get_ydata()):
            cell.set_yscale(kind)
    if len(workdirs) > 1:
        figure.legend(
            *axes.ravel()[0].get_legend_handles_labels(), loc="outside lower center", fontsize=7, ncols=2
        )
    figure.savefig(path, dpi=150)
