"""How time and memory of a step grow: curves on logarithmic axes."""

import os
from collections.abc import Mapping, Sequence

from saddle_jax.report.plots import new_figure, save


def plot_growth(curves: Mapping[str, Mapping[str, Sequence[float]]], path: str | os.PathLike) -> None:
    """Draws a column for each thing that grows: milliseconds and megabytes against sizes."""
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
