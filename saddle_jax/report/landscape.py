"""Pictures of loss surfaces [runs, n, m], and an interactive page to rotate them.

loss[r, i, j] is run r's loss at x[i] along its first direction and y[j] along its second.
"""

import os
import pathlib
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from saddle_jax.base.files import atomic_write
from saddle_jax.report.page import asset, embed, meta_element
from saddle_jax.report.plots import finish, labels, legend_below, load_matplotlib, new_figure, save

_COLORS = ("#4063d8", "#c0392b", "#389826", "#9558b2", "#b8860b", "#008b8b")


def save_numbers(
    x: np.ndarray, loss: np.ndarray, names: Sequence[str], folder: pathlib.Path, trial: int | None = None
) -> None:
    """Writes landscape.npz: coordinates x [n], used for both axes, losses [runs, n, n] and the runs' names.

    Each trial of a folder with several has its own file.
    """
    with atomic_write(folder / f"landscape{'' if trial is None else f'-{trial}'}.npz") as partial:
        np.savez(partial, x=x, y=x, loss=loss, names=np.array(names))


def write_all(
    x: np.ndarray, loss: np.ndarray, names: Sequence[str], folder: pathlib.Path, picture: str = "png"
) -> list[pathlib.Path]:
    """Writes the surfaces [runs, n, n] over x [n] as numbers, four pictures and a page; returns the files.

    `picture` is the file format of the pictures.
    """
    save_numbers(x, loss, names, folder)
    plots = {"landscape": plot_surfaces, "panels": plot_panels}
    plots |= {"contours": plot_contours, "sections": plot_sections}
    files = {folder / f"{name}.{picture}": plot for name, plot in plots.items()}
    files[folder / "landscape.html"] = write_page
    for path, write in files.items():
        write(x, x, loss, names, path)
    return [folder / "landscape.npz", *files]


def plot_surfaces(
    x: np.ndarray, y: np.ndarray, loss: np.ndarray, names: Sequence[str], path: str | os.PathLike[str]
) -> None:
    """Draws two runs per panel, as in the paper's Figure 1: the first as a surface, the second as a mesh."""
    load_matplotlib()
    from matplotlib.lines import Line2D

    texts = labels(names)
    starts = range(0, len(names), 2)
    figure, cells, across, along, finite = _in_space(x, y, loss, len(starts), len(starts), (5.2, 4.6))
    for cell, first in zip(cells, starts, strict=True):
        cell.plot_surface(across, along, finite[first], color=_COLORS[0], alpha=0.75, linewidth=0)
        lines = [Line2D([], [], color=_COLORS[0], linewidth=6, label=texts[first])]
        if first + 1 < len(names):
            cell.plot_wireframe(across, along, finite[first + 1], color=_COLORS[1], linewidth=0.6)
            lines.append(Line2D([], [], color=_COLORS[1], label=texts[first + 1]))
        cell.legend(handles=lines, fontsize=7, loc="upper left")
    save(figure, path)


def plot_panels(
    x: np.ndarray, y: np.ndarray, loss: np.ndarray, names: Sequence[str], path: str | os.PathLike[str]
) -> None:
    """Draws one run per panel, as in the paper's Figures 8 and 9, with a common loss axis."""
    columns = min(len(names), 2)
    figure, cells, across, along, finite = _in_space(x, y, loss, len(names), columns, (4.2, 3.8))
    low, high = np.nanmin(finite), np.nanmax(finite)
    for cell, name, values in zip(cells, labels(names), finite, strict=True):
        cell.plot_surface(across, along, values, cmap="viridis", vmin=low, vmax=high, linewidth=0)
        cell.set_zlim(low, high if high > low else low + 1)
        cell.set_title(name, fontsize=8)
    save(figure, path)


def _in_space(
    x: np.ndarray, y: np.ndarray, loss: np.ndarray, count: int, columns: int, size: tuple[float, float]
) -> tuple[Any, list[Any], np.ndarray, np.ndarray, np.ndarray]:
    """Makes a figure with three-dimensional panels; also returns both coordinates, and losses with NaN."""
    rows = -(-count // columns)
    figure, _ = new_figure(width=size[0] * columns, height=size[1] * rows)
    figure.clear()
    cells = [figure.add_subplot(rows, columns, number + 1, projection="3d") for number in range(count)]
    for cell in cells:
        cell.set_zlabel("loss", fontsize=8)
        cell.set_box_aspect(None, zoom=0.87)  # room for that label
        cell.tick_params(labelsize=6)
    across, along = np.meshgrid(x, y, indexing="ij")
    return figure, cells, across, along, np.where(np.isfinite(loss), loss, np.nan)


def plot_contours(
    x: np.ndarray, y: np.ndarray, loss: np.ndarray, names: Sequence[str], path: str | os.PathLike[str]
) -> None:
    """Draws contours, one panel per run, with common levels."""
    figure, cells = new_figure(width=0.8 + 3.2 * len(names), height=3.2, columns=len(names))
    finite = np.where(np.isfinite(loss), loss, np.nan)
    low, high = np.nanmin(finite), np.nanmax(finite)
    levels = np.linspace(low, high if high > low else low + 1, 20)
    panels = np.atleast_1d(np.asarray(cells, dtype=object)).ravel()
    for cell, name, values in zip(panels, labels(names), finite, strict=True):
        contours = cell.contourf(x, y, values.T, levels=levels, cmap="viridis")
        cell.plot(0, 0, "w+", markersize=6)
        cell.set_title(name, fontsize=8)
        cell.set_xticks(np.linspace(x[0], x[-1], 5))
        cell.set_yticks(np.linspace(y[0], y[-1], 5))
        cell.set_xlabel("first direction", fontsize=8)
        cell.set_aspect("equal")
        cell.tick_params(labelsize=7)
    panels[0].set_ylabel("second direction", fontsize=8)
    bar = figure.colorbar(contours, ax=list(panels))
    bar.set_label("loss", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    save(figure, path)


def plot_sections(
    x: np.ndarray, y: np.ndarray, loss: np.ndarray, names: Sequence[str], path: str | os.PathLike[str]
) -> None:
    """Draws the loss along each direction through the model, one line per run."""
    figure, cells = new_figure(width=7, height=3.2, columns=2)
    middle = len(x) // 2
    panels = ((x, loss[:, :, middle], "first direction"), (y, loss[:, middle, :], "second direction"))
    for cell, (places, values, title) in zip(np.ravel(cells), panels, strict=True):
        for number, (name, line) in enumerate(zip(labels(names), values, strict=True)):
            cell.plot(places, line, color=_COLORS[number % len(_COLORS)], linewidth=1.2, label=name)
        finish(cell, title, "loss")
    legend_below(figure)
    save(figure, path)


def write_page(
    x: np.ndarray, y: np.ndarray, loss: np.ndarray, names: Sequence[str], path: str | os.PathLike[str]
) -> None:
    """Writes one self-contained HTML file with the data as JSON."""
    values = np.array(loss, dtype=object)
    values[~np.isfinite(loss)] = None  # JSON has no infinity
    data = {
        "x": x.tolist(),
        "y": y.tolist(),
        "loss": values.tolist(),
        "names": list(names),
        "colors": [_COLORS[number % len(_COLORS)] for number in range(len(names))],
    }
    script, style = asset("landscape.js"), asset("landscape.css")
    text = string.Template(asset("landscape.html")).substitute(
        policy=meta_element(script, style), style=style, script=script, data=embed(data)
    )
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")
