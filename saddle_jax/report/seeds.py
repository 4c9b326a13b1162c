"""Runs that differ in the seed alone: one line, their mean, with a band of one standard deviation."""

import colorsys
import json
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from saddle_jax.report.gathered import Run
from saddle_jax.training.config import IRRELEVANT

LINES = ("-", "--", ":", "-.")


def seeds_together(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups the runs that differ in the seed alone, in the order given."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_without(run), []).append(run)
    return list(groups.values())


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
    """Labels groups by method, compressor, and whatever else differs between them."""
    many = [group[0].config.to_json() for group in groups]
    differing = [name for name in many[0] if any(one[name] != many[0][name] for one in many)]
    plain = [name for name in ("method", "compressor") if name not in without]
    named = [*plain, *(name for name in differing if name not in (*plain, "seed", *IRRELEVANT, *without))]
    texts = []
    for one, group in zip(many, groups, strict=True):
        parts = [str(one[name]) if name in plain else f"{name} {one[name]}" for name in named]
        diverged = sum(run.state == "diverged" for run in group)
        texts.append(", ".join([*parts, *([f"{diverged} of {len(group)} diverged"] if diverged else [])]))
    return texts


def colour_of(number: int, count: int) -> Any:
    """Returns the colour of a line: one of matplotlib's ten, or, of more lines, a hue of its own.

    Neighbours on the circle of hues differ in lightness, too.
    """
    if count <= 10:
        return f"C{number}"
    return colorsys.hls_to_rgb(number / count, (0.35, 0.55, 0.7)[number % 3], 0.75)


def looks(groups: Sequence[Sequence[Run]]) -> list[tuple[Any, str]]:
    """Returns colour and line of each group; groups that differ in the ascent alone share the colour."""
    ascents = list(dict.fromkeys(group[0].config.ascent for group in groups))
    others = [_without(group[0], "ascent") for group in groups]
    hues = list(dict.fromkeys(others))
    if len(hues) in (1, len(groups)) or len(ascents) > len(LINES):
        return [(colour_of(number, len(groups)), "-") for number in range(len(groups))]
    return [
        (colour_of(hues.index(other), len(hues)), LINES[ascents.index(group[0].config.ascent)])
        for group, other in zip(groups, others, strict=True)
    ]


def _without(run: Run, *names: str) -> str:
    """Returns a run's settings as text, without some and without those that cannot change a number."""
    left_out = {"seed", *IRRELEVANT, *names}
    settings = {name: value for name, value in run.config.to_json().items() if name not in left_out}
    # What settings do not tell of a run that is made of objects, its name and its fingerprint do.
    return json.dumps([run.family, str(run.fact("computes")), settings])


def band(
    axes: Any,
    x: Sequence[float],
    mean: np.ndarray,
    spread: np.ndarray,
    label: str,
    colour: Any,
    line: str = "-",
) -> None:
    """Draws a line, and one standard deviation to both sides."""
    axes.plot(x, mean, linewidth=1.2, linestyle=line, label=label, color=colour)
    if spread.any():
        axes.fill_between(x, mean - spread, mean + spread, alpha=0.2, linewidth=0, color=colour)


def finish(axes: Any, x: str, y: str) -> None:
    """Names the axes, in small letters."""
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(which="both", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
