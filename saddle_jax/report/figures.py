"""The paper's figures from run folders: compression errors, communication costs, partitions and curves.

Runs that differ only in the seed are one curve, see `saddle_jax.runs.table.seeds_together`.
"""

import math
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from saddle_jax.base.errors import DamagedError, RunError
from saddle_jax.core.comm_cost import readable
from saddle_jax.report.graphs import topology_of
from saddle_jax.report.plots import (
    Curve,
    draw_curves,
    finish,
    in_matplotlib,
    legend_below,
    name_bands,
    new_figure,
    plot_bars,
    plot_counts,
    save,
)
from saddle_jax.runs.schema import Measure
from saddle_jax.runs.table import (
    MOST_LINES,
    Run,
    cell_of,
    class_counts,
    class_names,
    common,
    consensus_stages,
    grouped,
    has,
    headline_of,
    labels,
    lambda_over_seeds,
    load_runs,
    over_seeds,
    seeds_together,
)
from saddle_jax.settings.settings import lacks, value_of

_RADII = ("gradient.rho", "method.rho")


def draw(
    kind: str,
    workdirs: Sequence[str | pathlib.Path],
    path: pathlib.Path,
    x: str | None = None,
    with_paper: bool = False,
) -> None:
    """Draws a figure of KINDS; a RunError if runs did not record its data.

    `x` is the x-axis of curves, one of `AXES`; None: epochs. `with_paper` adds horizontal lines at the
    paper's final results.
    """
    if kind == "curves":
        plot_curves(workdirs, path, x, with_paper=with_paper)
    else:
        _DRAWN[kind](load_runs(workdirs), path)


def plot_compression(runs: Sequence[Run], path: pathlib.Path) -> None:
    """Draws the compression error and the norm of what is compressed, over training.

    For models (Comp QGM, Comp Q-SADDLe) these are ||Q(theta) - theta|| and ||theta|| = ||x_i - x-hat_i||. For
    gradients (Comp NGM, Comp N-SADDLe) they are sums over the layers of compression errors and norms.
    """
    groups = seeds_together(runs)
    of_models = [g for g in groups if has(g, "compression_error")]
    of_gradients = [g for g in groups if has(g, "gradient_compression_error")]
    for group in groups:
        if group not in of_models and group not in of_gradients:
            raise RunError(f"compression needs compressed runs with --diagnostics=true, got {group[0].name}")
    layered = all(
        has(g, f"{name}_by_layer")
        for g in of_gradients
        for name in ("gradient_compression_error", "gradient_norm")
    )
    ending, how = ("_by_layer", "sum over layers") if layered else ("", "all layers as one; no sums recorded")
    panels = {
        "compression_error": "‖Q(θ) - θ‖, mean over agents",
        "compression_input": "‖θ‖ = ‖x - x̂‖, mean over agents",
        f"gradient_compression_error{ending}": f"‖Q(θ) - θ‖ of gradients,\n{how}",
        f"gradient_norm{ending}": f"gradient norm,\n{how}",
    }
    members = [of_models] * 2 + [of_gradients] * 2
    drawn = [(*panel, those) for panel, those in zip(panels.items(), members, strict=True) if those]
    rows = len(drawn) // 2
    figure, grid = new_figure(width=8, height=3 * rows + 0.5, rows=rows, columns=2)
    looks = [(label, *look) for label, look in zip(labels(groups), in_matplotlib(groups), strict=True)]
    for axes, (name, title, those) in zip(np.ravel(grid), drawn, strict=True):
        curves = [Curve(*over_seeds(group, name), *looks[groups.index(group)]) for group in those]
        heights = np.concatenate([curve.mean for curve in curves])
        # On a linear axis a diverging run would flatten the others.
        draw_curves(axes, curves, "log" if heights.max() > 1e4 * heights.min() else "linear")
        finish(axes, "epoch", title)
        if axes.get_yscale() == "linear":
            axes.set_ylim(bottom=0)
    legend_below(figure)
    name_bands(figure, groups)
    save(figure, path)


def plot_zeta(runs: Sequence[Run], path: pathlib.Path) -> None:
    """Draws the contraction zeta_l = 1 - ||Q(theta_l) - theta_l||^2 / ||theta_l||^2, layer by epoch."""
    groups = seeds_together(runs)
    layers = max((len(run.about["layers"]) for run in runs), default=1)
    height = 1.2 + min(max(0.13 * layers, 1.2), 10)
    figure, grid = new_figure(width=8, height=height * len(groups), rows=len(groups))
    for axes, group, label in zip(np.ravel(grid), groups, labels(groups), strict=True):
        name = "gradient_zeta_by_layer" if has(group, "gradient_zeta_by_layer") else "zeta_by_layer"
        axes.set_title(label, fontsize=8)
        if not has(group, name):
            axes.text(0.5, 0.5, "not recorded", ha="center", va="center", transform=axes.transAxes)
            axes.set_axis_off()
            continue
        epochs, values = common(group, name)
        zeta = np.mean(np.asarray(values, np.float64), axis=0)  # [epochs, layers]
        low = float(np.min(zeta[np.isfinite(zeta)], initial=0.0))
        picture = axes.pcolormesh(
            np.asarray(epochs), np.arange(zeta.shape[1]), zeta.T, vmin=low, vmax=1, shading="nearest"
        )
        names = group[0].about["layers"]
        if len(names) == zeta.shape[1]:
            axes.set_yticks(range(len(names)), [str(one)[-40:] for one in names], fontsize=5)
        axes.set_xlabel("epoch", fontsize=8)
        axes.tick_params(axis="x", labelsize=7)
        figure.colorbar(picture, ax=axes, label="ζ")
    save(figure, path)


def plot_bits(runs: Sequence[Run], path: pathlib.Path) -> None:
    """Draws the consensus model's metric against the bytes sent, one line per method."""
    groups = _finished(runs)
    if not groups:
        raise RunError("bits needs finished runs, got none")
    # A line shares all settings but the compressor and those that depend on it.
    lines = _lines(groups, ("method.compressor", "method.gamma", "method.gossip"))
    figure, cells = new_figure(width=8, height=3.3, columns=2)
    titles = ("bits sent per parameter, neighbour and step", "bytes sent per agent")
    for axes, what, title in zip(cells.ravel(), (_bits_per_number, _bytes_sent), titles, strict=True):
        _draw_lines(axes, lines, what, in_matplotlib([members[0] for members in lines.values()]))
        axes.set_xscale("log")
        finish(axes, title, _score_title(runs))
        places = _apart(float(f"{what(group[0]):.3g}") for group in groups)
        if len(places) <= 8:
            ticks = [f"{place:g}" if what is _bits_per_number else readable(place) for place in places]
            axes.set_xticks(places, ticks)
            axes.set_xticks([], minor=True)
    cells.ravel()[0].legend(fontsize=7, frameon=False)
    left_out = [run.name for run in runs if not any(run in group for group in groups)]
    if left_out:
        figure.suptitle(f"left out, as they did not finish: {', '.join(left_out)}", fontsize=7)
    save(figure, path)


def _apart(places: Iterable[float]) -> list[float]:
    """Returns the places on a logarithmic axis whose labels do not overlap the previous one."""
    found: list[float] = []
    every = sorted(set(places))
    for place in every:
        if not found or math.log(place / found[-1]) > 0.12 * math.log(every[-1] / every[0]):
            found.append(place)
    return found


def plot_radii(runs: Sequence[Run], path: pathlib.Path) -> None:
    """Draws the consensus model's metric against SAM's radius; methods without one are horizontal lines."""
    groups = _finished(runs)
    with_radius = [group for group in groups if _has_radius(group[0])]
    others = [group for group in groups if group not in with_radius]
    if not with_radius:
        raise RunError("rho needs finished runs of methods with SAM, got none")
    figure, axes = new_figure(width=5.5, height=3.3)
    lines = _lines(with_radius, _RADII)
    styles = in_matplotlib([*(members[0] for members in lines.values()), *others])
    _draw_lines(axes, lines, _radius, styles)
    for group, label, (colour, dash) in zip(others, labels(others), styles[len(lines) :], strict=True):
        height, deviation = _scores(group)
        axes.axhline(height, color=colour, linestyle=dash, linewidth=1, label=label)
        axes.axhspan(height - deviation, height + deviation, color=colour, alpha=0.15, linewidth=0)
    places = sorted({_radius(group[0]) for group in with_radius})
    if places[0] > 0:
        axes.set_xscale("log")
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.set_xticks([], minor=True)
    finish(axes, "rho", _score_title(runs))
    axes.legend(fontsize=7, frameon=False)
    save(figure, path)


def _finished(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups the runs with a final score by all settings but the seed."""
    return seeds_together([run for run in runs if run.score() is not None])


def _score_title(runs: Sequence[Run]) -> str:
    headline = headline_of(runs)
    return f"test {headline.title}{headline.unit}"


def _lines(groups: Sequence[list[Run]], free: Sequence[str]) -> dict[str, list[list[Run]]]:
    """Joins the groups that differ only in the settings `free`, by what they have in common."""
    pairs = grouped(zip(labels(groups, free), groups, strict=True), lambda pair: pair[0])
    return {label: [group for _, group in found] for label, found in pairs.items()}


def _draw_lines(
    axes: Any,
    lines: Mapping[str, Sequence[list[Run]]],
    x: Callable[[Run], float],
    styles: Sequence[tuple[Any, str]],
) -> None:
    """Draws scores over x, with error bars over seeds and a line through them."""
    form = {"marker": "o", "markersize": 3, "linewidth": 1, "capsize": 2}
    for (label, members), (colour, dash) in zip(lines.items(), styles, strict=False):
        places, mean, spread = zip(*sorted((x(group[0]), *_scores(group)) for group in members), strict=True)
        axes.errorbar(places, mean, yerr=spread, label=label, color=colour, linestyle=dash, **form)


def _has_radius(run: Run) -> bool:
    return not all(lacks(run.config, name) for name in _RADII)


def _radius(run: Run) -> float:
    """Returns SAM's radius: that of the estimator that is named, or of the method's own."""
    return float(next(value_of(run.config, name) for name in _RADII if not lacks(run.config, name)))


def _scores(group: Sequence[Run]) -> tuple[float, float]:
    summary = cell_of(group).summary
    return summary.mean or 0.0, summary.std or 0.0


def plot_sharpness(runs: Sequence[Run], path: pathlib.Path) -> None:
    """Draws lambda_max of consensus models from `saddle sharpness`, one bar per method, over seeds.

    It draws the stages that all methods share, or else every stage.
    """
    groups = seeds_together([run for run in runs if consensus_stages(run)])
    if not groups:
        raise RunError("sharpness needs runs that `saddle sharpness` has measured, got none")
    stages = [[stage for run in group for stage in consensus_stages(run)] for group in groups]
    epochs_of = [{stage["epoch"] for stage in found} for found in stages]
    epochs = sorted(set.intersection(*epochs_of) or set.union(*epochs_of))
    heights = [
        {epoch: bar for epoch, bar in lambda_over_seeds(found).items() if epoch in epochs} for found in stages
    ]
    texts = labels(groups, ("method.gamma",))  # gamma depends on the compressor
    texts = texts if len(set(texts)) == len(texts) else labels(groups)
    colours = [colour for colour, _ in in_matplotlib(groups)]
    plot_bars(dict(zip(texts, heights, strict=True)), epochs, path, colours, scale="log")


def plot_partitions(runs: Sequence[Run], path: pathlib.Path) -> None:
    """Draws each partition's class allocation; a dataset must have classes."""
    plots: dict[str, tuple[str, np.ndarray, Sequence[str]]] = {}
    for run in runs:
        title = str(run.fact("partition", "name") or run.name)
        counts = class_counts(run)
        if counts is None:
            raise RunError(f"{run.name} has no classes whose allocation could be drawn")
        names = class_names(run, counts.shape[1])
        plots.setdefault(str(run.fact("partition", "fingerprint")), (title, counts, names))
    plot_counts(list(plots.values()), path)


def _bits_per_number(run: Run) -> float:
    """Returns the bits sent per step, neighbour and parameter: 32 for plain QGM, 64 for NGM."""
    topology = topology_of(run)
    if topology is None:
        raise RunError(f"bits needs graphs that were recorded, got {run.name}, whose graph is too large")
    out_degrees = float(np.mean([graph.out_degree for graph in topology.graphs]))
    numbers = run.result["steps"] * out_degrees * (run.fact("parameters") or 0)
    if not numbers:
        raise RunError(f"bits needs runs that send something, got {run.name}")
    result: float = 8 * run.result["bytes_sent_per_agent"] / numbers
    return result


def _bytes_sent(run: Run) -> float:
    result: float = run.result["bytes_sent_per_agent"]
    return result


_DRAWN: dict[str, Callable[[Sequence[Run], pathlib.Path], None]] = {
    "compression": plot_compression,
    "zeta": plot_zeta,
    "bits": plot_bits,
    "rho": plot_radii,
    "sharpness": plot_sharpness,
    "partition": plot_partitions,
}
KINDS = (*_DRAWN, "curves")


# Training curves of one or several runs: against epochs, or against their costs.


class Axis(NamedTuple):
    """An x-axis of curves."""

    metric: str
    title: str
    missing: str  # advice for runs that did not record it


AXES = {
    "epoch": Axis("epoch", "epoch", ""),
    "step": Axis("step", "step", ""),
    "bytes": Axis("bytes_sent_per_agent", "bytes sent per agent", "that say what they sent"),
    "paper_bytes": Axis(
        "paper_bytes_sent_per_agent",
        "bytes sent per agent, as the paper counts",
        "that say what they sent",
    ),
    "passes": Axis(
        "backward_passes", "backward passes per agent", "of a version that counts backward passes"
    ),
    "seconds": Axis(
        "simulated_seconds",
        "simulated seconds",
        "with --timing, which simulates time",
    ),
}


class _Panel(NamedTuple):
    metric: str
    title: str
    factor: int
    scale: str
    x: Axis


def plot_curves(
    workdirs: Sequence[str | pathlib.Path],
    path: str | os.PathLike[str],
    x: str | None = None,
    names: Sequence[str] | None = None,
    with_paper: bool = False,
    lines: Sequence[str] = (),
) -> None:
    """Draws training loss, test metric and consensus distance, as mean and band over seeds.

    The x-axis is `x`, one of AXES. By default it is epochs, and the metric is drawn again against bytes and
    backward passes if their cost per step differs between runs, and against simulated seconds if these were
    simulated. `names` replace those of the folders, and `lines` the labels of the lines, in their order.
    `with_paper` adds horizontal lines at the paper's final results for these runs.

    Raises:
      RunError: a run did not record the x-axis, or no run reproduces a result of the paper.
    """
    runs = load_runs(workdirs, names, MOST_LINES)
    groups = seeds_together(runs)
    seeded = any(len(group) > 1 for group in groups)
    texts = [group[0].family or group[0].name for group in groups]
    texts = labels(groups) if seeded and names is None else texts
    texts = list(lines) if len(lines) == len(groups) else texts
    _check_recorded(runs, x or "epoch")
    panels = _panels(AXES[x or "epoch"], headline_of(runs))
    if x is None and any(has(group, "simulated_seconds") for group in groups):
        panels += [panels[1]._replace(x=AXES[name]) for name in ("bytes", "passes", "seconds")]
    elif x is None and len({_costs(run) for run in runs}) > 1 and None not in map(_costs, runs):
        panels += [panels[1]._replace(x=AXES[name]) for name in ("step", "bytes", "passes")]
    rows = len(panels) // 3
    legend = 0.14 * max(0, (len(groups) + 1) // 2 - 3)  # height of the legend below the panels
    figure, axes = new_figure(width=10, height=3.2 * rows + legend, rows=rows, columns=3)
    for cell, panel in zip(axes.ravel(), panels, strict=True):
        _draw(cell, panel, groups, texts)
        if with_paper and panel.metric == panels[1].metric:
            _draw_paper(cell, groups, texts)
    if len(groups) > 1:
        legend_below(figure)
    name_bands(figure, groups)
    save(figure, path)


def _costs(run: Run) -> tuple[float, float] | None:
    """Returns bytes and backward passes per step; None if they were not recorded."""
    sent, passes = (run.curve(AXES[name].metric, "step") for name in ("bytes", "passes"))
    if not sent[0] or not passes[0]:
        return None
    return sent[1][-1] / sent[0][-1], passes[1][-1] / passes[0][-1]


def _panels(x: Axis, headline: Measure) -> list[_Panel]:
    title = f"test {headline.title} of the consensus model{headline.unit}"
    scale = "linear" if headline.better == "higher" else "log"
    return [
        _Panel("train_loss", "training loss", 1, "log", x),
        _Panel(headline.key, title, headline.factor, scale, x),
        _Panel("consensus_distance", "consensus distance", 1, "log", x),
    ]


def _draw(cell: Any, panel: _Panel, groups: Sequence[Sequence[Run]], names: Sequence[str]) -> None:
    found = [
        Curve(*over_seeds(group, panel.metric, panel.x.metric), label, *look)
        for group, label, look in zip(groups, names, in_matplotlib(groups), strict=True)
        if has(group, panel.metric) and has(group, panel.x.metric)
    ]
    found = [one._replace(mean=panel.factor * one.mean, spread=panel.factor * one.spread) for one in found]
    draw_curves(cell, found, panel.scale)
    for line in cell.lines:
        if len(line.get_xdata()) < 60:
            line.set_marker(".")
    cell.set_title(panel.title, fontsize=8)
    finish(cell, panel.x.title, "")
    if panel.x.metric != "epoch":
        cell.locator_params(axis="x", nbins=4)  # its labels are long
        written = readable if panel.x.metric.endswith("bytes_sent_per_agent") else "{:,g}".format
        cell.xaxis.set_major_formatter(lambda count, _: written(count))


def _draw_paper(cell: Any, groups: Sequence[Sequence[Run]], names: Sequence[str]) -> None:
    printed = [(group[0].paper or {}).get("paper", "-") for group in groups]
    if all(text == "-" for text in printed):
        raise RunError(
            f"curves with the paper's figures need runs that reproduce one, got {', '.join(names)}"
        )
    for text, name, (colour, _) in zip(printed, names, in_matplotlib(groups), strict=True):
        if text != "-":
            label = f"{name}: {text} in the paper"
            cell.axhline(_mean_of(text), color=colour, linestyle=":", linewidth=1, label=label)


def _mean_of(printed: str) -> float:
    found = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)(?: \+- [\d.]+)?\*?", printed)
    if found is None:
        raise DamagedError(f"paper.json must have a figure such as 79.48 +- 2.76, got {printed[:40]!r}")
    return float(found[1])


def _check_recorded(runs: Sequence[Run], x: str) -> None:
    for run in runs:
        if run.metrics() and not run.curve(AXES[x].metric)[0]:
            raise RunError(f"curves against {x} need runs {AXES[x].missing}, got {run.name}")
