"""Loss and test metric over a run, or over several for comparison: against epochs, or what they cost."""

import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from saddle_jax.base.errors import DamagedError, RunError
from saddle_jax.core.ledger import readable
from saddle_jax.report.gathered import MOST_LINES, Run, gather
from saddle_jax.report.looks import in_matplotlib
from saddle_jax.report.measures import Measure, same
from saddle_jax.report.plots import new_figure, save
from saddle_jax.report.seeds import band, finish, has, labels, name_bands, over_seeds, seeds_together


class Axis(NamedTuple):
    """What a curve may be drawn against."""

    metric: str
    title: str
    missing: str  # what to do about runs that did not record it


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
        "with --config.latency, --config.bandwidth or --config.compute_time, which simulate time",
    ),
}


class _Panel(NamedTuple):
    metric: str
    title: str
    factor: int
    scale: str
    x: Axis


def plot_curves(
    workdirs: Sequence[pathlib.Path],
    path: str | os.PathLike,
    x: str | None = None,
    names: Sequence[str] | None = None,
    with_paper: bool = False,
) -> None:
    """Draws training loss, the metric of the test and consensus distance; seeds as mean and band.

    Against epochs; or against what `x` names, one of AXES. Left open, the metric is drawn once more against
    bytes and backward passes, if a step of one run costs more than that of another, and against simulated
    seconds, if they were simulated. `names` are those of the folders, in place of their own. `with_paper`
    draws lines across at the paper's final figures of these runs.

    Raises:
      RunError: a run did not record what it is drawn against, or none of them reproduces a figure.
    """
    runs = gather(workdirs, names, MOST_LINES)
    groups = seeds_together(runs)
    seeded = any(len(group) > 1 for group in groups)
    texts = [group[0].family or group[0].name for group in groups]
    texts = labels(groups) if seeded and names is None else texts
    _check_recorded(runs, x or "epoch")
    panels = _panels(AXES[x or "epoch"], same([run.measures for run in runs]))
    if x is None and any(has(group, "simulated_seconds") for group in groups):
        panels += [panels[1]._replace(x=AXES[name]) for name in ("bytes", "passes", "seconds")]
    elif x is None and len({_costs(run) for run in runs}) > 1 and None not in map(_costs, runs):
        panels += [panels[1]._replace(x=AXES[name]) for name in ("step", "bytes", "passes")]
    rows = len(panels) // 3
    legend = 0.14 * max(0, (len(groups) + 1) // 2 - 3)  # below the panels
    figure, axes = new_figure(width=10, height=3.2 * rows + legend, rows=rows, columns=3)
    handles: dict[Any, Any] = {}
    for cell, panel in zip(axes.ravel(), panels, strict=True):
        _draw(cell, panel, groups, texts)
        if with_paper and panel.metric == panels[1].metric:
            _draw_paper(cell, groups, texts)
        handles |= {line.get_label(): line for line in cell.lines}
    if len(groups) > 1:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", fontsize=7, ncols=2)
    name_bands(figure, groups)
    save(figure, path)


def _costs(run: Run) -> tuple[float, float] | None:
    """Returns the bytes and backward passes of a step; None if they were not recorded."""
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
        (*over_seeds(group, panel.metric, panel.x.metric), label, *look)
        for group, label, look in zip(groups, names, in_matplotlib(groups), strict=True)
        if has(group, panel.metric) and has(group, panel.x.metric)
    ]
    if found and all(np.min(mean, initial=np.inf) > 0 for _, mean, *_ in found):
        cell.set_yscale(panel.scale)
    for x, mean, spread, label, colour, dash in found:
        band(cell, x, panel.factor * mean, panel.factor * spread, label, colour, dash)
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
        if run.metrics and not run.curve(AXES[x].metric)[0]:
            raise RunError(f"curves against {x} need runs {AXES[x].missing}, got {run.name}")
