"""Plots with matplotlib: partitions, images, curves and bars, with common colours and legends."""

import colorsys
import contextlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from saddle_jax.base.files import atomic_write
from saddle_jax.data.partition import Partition
from saddle_jax.runs.statistics import Summary
from saddle_jax.runs.table import Run, settings_without
from saddle_jax.settings.sweep import without

SPREAD = "± standard deviation"  # the label of what follows a mean, in pictures, pages and tables


def plot_partition(partition: Partition, class_names: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Draws the paper's bubble plot: agents against classes, with area proportional to samples."""
    plot_counts([(f"{partition.name}\n{partition.skew}", partition.class_counts, class_names)], path)


def plot_counts(plots: Sequence[tuple[str, np.ndarray, Sequence[str]]], path: str | os.PathLike[str]) -> None:
    """Draws bubble plots below each other, each from a title, counts [A, C] and class names."""
    most_agents = max(counts.shape[0] for _, counts, _ in plots)
    most_classes = min(max(counts.shape[1] for _, counts, _ in plots), 40)
    height = len(plots) * (1.8 + 0.32 * most_classes)
    figure, grid = new_figure(width=2.5 + 0.32 * most_agents, height=height, rows=len(plots))
    for axes, (title, counts, class_names) in zip(np.ravel(grid), plots, strict=True):
        agents, classes = counts.shape
        rows, columns = np.nonzero(counts)
        step = 0.32 * 72  # points between two agents
        area = (0.95 * step) ** 2 * counts[rows, columns] / counts.max()
        apart = 0.32 * 72 * min(classes, 40) / classes
        area = np.maximum(area * min(1.0, (apart / step) ** 2), 1.5)  # a single sample must be visible
        axes.scatter(rows, columns, s=area, color="#4063d8", linewidths=0)
        axes.set_xticks(range(agents), range(agents), fontsize=7)
        if classes <= 40:
            axes.set_yticks(range(classes), class_names[:classes], fontsize=7)
        axes.set_xlim(-0.7, agents - 0.3)
        axes.set_ylim(-0.7, classes - 0.3)
        axes.set_xlabel("agent")
        axes.set_ylabel("class")
        axes.set_title(title, fontsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def plot_contact_sheet(
    images: Any, labels: np.ndarray, class_names: Sequence[str], path: str | os.PathLike[str]
) -> None:
    """Draws ten images of each of up to ten classes, one class per row."""
    classes = min(len(class_names), 10)
    figure, axes = new_figure(width=7, height=0.6 * classes + 0.6, rows=classes, columns=10)
    for row in range(classes):
        samples = np.flatnonzero(labels == row)[:10]
        for column in range(10):
            cell = axes[row, column]
            cell.set_axis_off()
            if column < len(samples):
                image = np.asarray(images[samples[column : column + 1]])[0]
                cell.imshow(image.squeeze(), cmap="gray", vmin=0, vmax=255)
        axes[row, 0].text(
            -0.3,
            0.5,
            class_names[row][:18],
            transform=axes[row, 0].transAxes,
            ha="right",
            va="center",
            fontsize=7,
        )
    save(figure, path)


def labels(names: Iterable[str]) -> list[str]:
    """Shortens names of runs for a legend: drops the parts that all share, and escapes dollar signs.

    cifar10-ring10-qgm-none-seed0 and cifar10-ring10-q_saddle-none-seed0 are "qgm" and "q_saddle".
    """
    texts = list(names)
    parts = [name.split("-") for name in texts]
    if len(texts) > 1 and len({len(part) for part in parts}) == 1:
        telling = [i for i, column in enumerate(zip(*parts, strict=True)) if len(set(column)) > 1]
        shorter = ["-".join(part[i] for i in telling) for part in parts]
        texts = shorter if len(set(shorter)) == len(set(texts)) and all(shorter) else texts
    return [name.replace("$", r"\$") for name in texts]  # matplotlib would parse mathematics


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Writes a picture atomically, in the format of its suffix; PDFs have TrueType fonts."""
    import matplotlib

    # By default matplotlib embeds Type 3 fonts, which many venues refuse.
    with atomic_write(path) as partial, matplotlib.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42}):
        figure.savefig(partial, dpi=150)


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> Any:
    """Makes a figure and its axes without pyplot."""
    load_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=rows * columns == 1)


def load_matplotlib() -> None:
    """Imports matplotlib even if MPLBACKEND names a backend that is not installed, since none is needed.

    Jupyter sets that variable for subprocesses, too. A program that uses pyplot later still gets its backend,
    if it is installed.
    """
    if "matplotlib" in sys.modules:
        return
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend:
        with contextlib.suppress(ValueError):  # raised for a backend that is not installed
            matplotlib.rcParams["backend"] = backend


# A method and its SADDLe version have the same hue, with another shade and line style.


# Methods that are another method with SAM's gradients.
PLAIN = {"d_saddle": "dpsgd", "q_saddle": "qgm", "n_saddle": "ngm", "dfedsam": "dfedavgm"}
# The settings of an estimator: groups that differ only in these share a hue.
_OF_GRADIENT = ("method.rho", "method.ascent_every", "method.ascent_reuse")
DASHES = ("-", "--", ":", "-.")
# The fraction of colour in each shade; the rest is white. The page's script has the same numbers.
_SHADES = (1.0, 0.58, 0.78, 0.4)


class Look(NamedTuple):
    """The style of a group's line: shade 0 is the full colour and a solid line."""

    hue: int
    shade: int = 0


def looks(groups: Sequence[Sequence[Run]]) -> list[Look]:
    """Returns the style of each group; groups that differ only in the estimator share the hue."""
    families = [_family(group[0]) for group in groups]
    hues = list(dict.fromkeys(families))
    if any(families.count(family) > len(DASHES) for family in hues):
        return [Look(number) for number in range(len(groups))]
    ranked = sorted(range(len(groups)), key=lambda number: not _is_sharp(groups[number][0]))
    shades: dict[int, int] = {}
    for number in ranked:
        shades[number] = sum(families[other] == families[number] for other in shades)
    return [Look(hues.index(family), shades[number]) for number, family in enumerate(families)]


def in_matplotlib(groups: Sequence[Sequence[Run]]) -> list[tuple[Any, str]]:
    """Returns matplotlib's colour and line style of each group."""
    found = looks(groups)
    count = 1 + max((look.hue for look in found), default=0)
    return [(shaded(colour_of(look.hue, count), look.shade), DASHES[look.shade]) for look in found]


def shaded(colour: Any, shade: int) -> Any:
    """Mixes a colour with white according to its shade."""
    if not shade:
        return colour
    load_matplotlib()
    from matplotlib.colors import to_rgb

    return tuple(1 - _SHADES[shade] * (1 - part) for part in to_rgb(colour))


def colour_of(number: int, count: int) -> Any:
    """Returns the colour of a line: one of matplotlib's ten, or a distinct hue if there are more lines.

    Neighbouring hues differ in lightness, too.
    """
    if count <= 10:
        return f"C{number}"
    return colorsys.hls_to_rgb(number / count, (0.35, 0.55, 0.7)[number % 3], 0.75)


def _family(run: Run) -> tuple[str, str]:
    name, bracket, options = without(run.config.to_json(), _OF_GRADIENT)["method"].partition("(")
    return PLAIN.get(name, name) + bracket + options, settings_without(run, "method", "gradient")


def _is_sharp(run: Run) -> bool:
    """Returns whether a run uses sharpness-aware gradients, through its method or its estimator."""
    if run.config.gradient == "auto":
        return run.config.method.partition("(")[0] in PLAIN
    return run.config.gradient != "plain"


class Curve(NamedTuple):
    """A line of a plot: means over seeds, with a band of one standard deviation."""

    x: Sequence[float]
    mean: np.ndarray
    spread: np.ndarray
    label: str
    colour: Any
    dash: str = "-"


def draw_curves(axes: Any, curves: Sequence[Curve], scale: str) -> None:
    """Draws lines with their bands, on a logarithmic axis only if all means are positive.

    There a band is mean * exp(+-spread / mean), the standard deviation of the logarithm to first order, which
    stays positive.
    """
    if curves and all(np.min(one.mean, initial=np.inf) > 0 for one in curves):
        axes.set_yscale(scale)
    for x, mean, spread, label, colour, dash in curves:
        axes.plot(x, mean, linewidth=1.2, linestyle=dash, label=label, color=colour)
        if spread.any():
            low, high = mean - spread, mean + spread
            if axes.get_yscale() == "log":
                low, high = mean * np.exp(-spread / mean), mean * np.exp(spread / mean)
            axes.fill_between(x, low, high, alpha=0.2, linewidth=0, color=colour)


def legend_below(figure: Any, columns: int = 2) -> None:
    """Draws one legend of all panels below them, each label once."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        found, texts = axes.get_legend_handles_labels()
        handles |= dict(zip(texts, found, strict=True))
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", fontsize=7, ncols=columns)


def plot_bars(
    heights: Mapping[str, Mapping[float, Summary]],
    epochs: Sequence[float],
    path: str | os.PathLike[str],
    colours: Sequence[Any] | None = None,
    scale: str = "linear",
) -> None:
    """Draws lambda_max of consensus models: a group of bars per epoch, with one bar per label."""
    figure, axes = new_figure(width=max(5.0, 1.2 + 0.35 * len(epochs) * len(heights)), height=3.6)
    width = 0.8 / len(heights)
    colours = colours or [colour_of(number, len(heights)) for number in range(len(heights))]
    for number, ((label, found), colour) in enumerate(zip(heights.items(), colours, strict=True)):
        places = [epochs.index(epoch) + (number - (len(heights) - 1) / 2) * width for epoch in found]
        spread = [one.std or 0.0 for one in found.values()]
        errors = {"yerr": spread, "ecolor": "#404040", "capsize": 2} if any(spread) else {}
        means = [one.mean for one in found.values()]
        axes.bar(places, means, 0.92 * width, color=colour, label=label, **errors)
    axes.set_yscale(scale)
    axes.set_xticks(range(len(epochs)), [f"{epoch:.4g}" for epoch in epochs])
    finish(axes, "epoch", r"$\lambda_{max}$ of the Hessian, consensus model")
    legend_below(figure)
    save(figure, path)


def name_bands(figure: Any, groups: Sequence[Sequence[Run]]) -> None:
    """Explains lines and bands below a picture, if a line stands for several seeds."""
    counts = sorted({len(group) for group in groups if len(group) > 1})
    if counts:
        seeds = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
        text = f"lines: mean of {seeds} seeds; bands: {SPREAD}"
        figure.supxlabel(text, fontsize=7)


def finish(axes: Any, x: str, y: str) -> None:
    """Sets the axis labels and small fonts."""
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(which="both", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
