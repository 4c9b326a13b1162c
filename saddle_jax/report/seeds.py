"""Runs that differ in the seed alone: one line, their mean, with a band of one standard deviation."""

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from saddle_jax.report.gathered import Run
from saddle_jax.report.looks import settings_without
from saddle_jax.settings.config import IRRELEVANT

SPREAD = "± standard deviation"  # what stands behind a mean, in pictures, pages and tables alike


def seeds_together(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups the runs that differ in the seed alone, in the order given."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(settings_without(run), []).append(run)
    return list(groups.values())


def distinct_seeds(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups the runs as above, but each by itself where a seed was run twice: those are no two samples."""
    several = []
    for group in seeds_together(runs):
        is_once = len({run.config.seed for run in group}) == len(group)
        several += [group] if is_once else [[run] for run in group]
    return several


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean and the standard deviation, which is 0 for one value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def has(group: Sequence[Run], name: str) -> bool:
    """Tells whether there is a line to draw: epochs at which all seeds logged a metric."""
    return bool(common(group, name)[0])


def common(group: Sequence[Run], name: str) -> tuple[list[float], list[list[Any]]]:
    """Returns the epochs at which all seeds logged a metric, and its values [seeds, epochs, ...] there.

    A seed that diverged has no part in the others' mean; `labels` says so.
    """
    whole = [run for run in group if run.state != "diverged"] or group
    curves = [dict(zip(*run.curve(name), strict=True)) for run in whole]
    epochs = [epoch for epoch in curves[0] if all(epoch in curve for curve in curves)]
    return epochs, [[curve[epoch] for epoch in epochs] for curve in curves]


def over_seeds(
    group: Sequence[Run], name: str, x: str = "epoch"
) -> tuple[list[float], np.ndarray, np.ndarray]:
    """Returns epochs, mean and standard deviation over seeds; layers are summed.

    In place of epochs, `x` may name a metric that all lines have, such as "simulated_seconds": its mean.
    """
    epochs, values = common(group, name)
    table = np.asarray(values, np.float64)
    if table.ndim == 3:
        table = table.sum(axis=2)
    mean, spread = table.mean(axis=0), table.std(axis=0, ddof=min(1, len(table) - 1))
    if x == "epoch":
        return epochs, mean, spread
    logged, places = common(group, x)
    place = dict(zip(logged, np.mean(places, axis=0).tolist(), strict=True))
    kept = [number for number, epoch in enumerate(epochs) if epoch in place]
    return [place[epochs[number]] for number in kept], mean[kept], spread[kept]


def labels(groups: Sequence[Sequence[Run]], without: Sequence[str] = ()) -> list[str]:
    """Labels groups by method, by compressor if there is any, and by whatever else differs between them."""
    many = [group[0].config.to_json() for group in groups]
    differing = [name for name in many[0] if any(one[name] != many[0][name] for one in many)]
    compressed = any(one["compressor"] != "none" for one in many)
    always = ("method", "compressor") if compressed else ("method",)
    plain = [name for name in always if name not in without]
    named = [*plain, *(name for name in differing if name not in (*plain, "seed", *IRRELEVANT, *without))]
    texts = []
    for one, group in zip(many, groups, strict=True):
        parts = [str(one[name]) if name in plain else f"{name} {one[name]}" for name in named]
        diverged = sum(run.state == "diverged" for run in group)
        texts.append(", ".join([*parts, *([f"{diverged} of {len(group)} diverged"] if diverged else [])]))
    return texts


def group_labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Names groups on a page: a run by its own name, several seeds by what tells them from other groups."""
    named = [
        group[0].name if len(group) == 1 else (group[0].family or text)
        for group, text in zip(groups, labels(groups), strict=True)
    ]
    return named if len(set(named)) == len(named) else [group[0].name for group in groups]


def band(
    axes: Any,
    x: Sequence[float],
    mean: np.ndarray,
    spread: np.ndarray,
    label: str,
    colour: Any,
    line: str = "-",
) -> None:
    """Draws a line, and one standard deviation to both sides.

    On a logarithmic axis, which must be one by now, that is to first order the deviation of the logarithm:
    mean * exp(+-spread / mean), which never falls below zero.
    """
    axes.plot(x, mean, linewidth=1.2, linestyle=line, label=label, color=colour)
    if spread.any():
        low, high = mean - spread, mean + spread
        if axes.get_yscale() == "log":
            low, high = mean * np.exp(-spread / mean), mean * np.exp(spread / mean)
        axes.fill_between(x, low, high, alpha=0.2, linewidth=0, color=colour)


def name_bands(figure: Any, groups: Sequence[Sequence[Run]]) -> None:
    """Says below a picture what lines and bands are, where several seeds are drawn as one line."""
    counts = sorted({len(group) for group in groups if len(group) > 1})
    if counts:
        seeds = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
        text = f"lines: mean of {seeds} seeds; bands: {SPREAD}"
        figure.supxlabel(text, fontsize=7)


def finish(axes: Any, x: str, y: str) -> None:
    """Names the axes, in small letters."""
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(which="both", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
