"""What a page's script draws and writes as CSV: numbers of runs, by column, and their means over seeds."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from saddle_jax.report import graph_drawings
from saddle_jax.report.curves import AXES
from saddle_jax.report.gathered import Run, class_counts, class_names
from saddle_jax.report.looks import looks
from saddle_jax.report.measures import Measure
from saddle_jax.report.seeds import distinct_seeds, group_labels, has, over_seeds
from saddle_jax.report.statistics import half_interval
from saddle_jax.report.topologies import topology_of

# The curves that have a place of their own: metric, title, logarithmic at first, factor to what is drawn.
_PANELS = (
    ("consensus_distance", "Consensus distance", True, 1),
    ("messages_lost", "Share of messages lost, %", False, 100),
    ("learning_rate", "Learning rate", True, 1),
    ("gradient_norm", "Gradient norm", True, 1),
    ("update_norm", "Update norm", True, 1),
    ("compression_error", "Compression error ‖Q(θ) - θ‖ of models", True, 1),
    ("compression_input", "‖θ‖ before compression, of models", True, 1),
    ("gradient_compression_error", "Compression error ‖Q(θ) - θ‖ of gradients", True, 1),
    ("gradient_compression_input", "‖θ‖ before compression, of gradients", True, 1),
)
_MOST_NAMES = 200  # metrics of a page; a run of ours has some forty
# What curves are drawn against.
_AXES = {axis.metric: axis.title for axis in AXES.values()}


def panels(measures: Sequence[Measure]) -> list[tuple[str, str, bool, int]]:
    """Lists the curves that have a place of their own, for runs with these metrics."""
    first: list[tuple[str, str, bool, int]] = [("train_loss", "Training loss", True, 1)]
    for one in measures:
        title = f"Test {one.title} of the consensus model{one.unit}"
        first.append((one.key, title, one.better == "lower", one.factor))
    last = []
    for one in measures:
        if one.name != "loss":
            last.append((f"train_{one.name}", f"Training {one.title}{one.unit}", False, one.factor))
        title = f"Test {one.title}, mean over the agents' own models{one.unit}"
        last.append((f"agent_{one.name}_mean", title, one.better == "lower", one.factor))
    return [*first, _PANELS[0], *last, *_PANELS[1:]]


def page_data(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns what the script draws and writes as CSV."""
    every = dict.fromkeys(name for run in runs for record in run.metrics for name in record)
    names = _most_telling(runs, every)
    shown = _panels_of(runs, names)
    groups = distinct_seeds(runs)
    return {
        "names": len(names),
        "left_out": len(every) - len(names),
        "axes": [[key, title] for key, title in _AXES.items() if _is_recorded(runs, key)],
        "panels": [
            {"key": key, "title": title, "log": log, "factor": factor} for key, title, log, factor in shown
        ],
        "groups": [
            {
                "label": label,
                "runs": [runs.index(run) for run in group],
                "look": look._asdict(),
                "means": {key: mean for key, *_ in shown if (mean := _mean(runs, group, key))},
            }
            for group, label, look in zip(groups, group_labels(groups), looks(groups), strict=True)
        ],
        "runs": [_run_data(run, names) for run in runs],
    }


def _most_telling(runs: Sequence[Run], every: Collection[str]) -> list[str]:
    """Returns the names of the metrics that a page has, of too many those that it knows first."""
    if len(every) <= _MOST_NAMES:
        return list(every)
    known = {*_AXES, *(name for run in runs for name, *_ in panels(run.measures))}
    return sorted(every, key=lambda name: name not in known and not name.endswith(("_by_layer", "_each")))[
        :_MOST_NAMES
    ]


def _run_data(run: Run, shown: Sequence[str]) -> dict[str, Any]:
    own = {name for record in run.metrics for name in record}
    names = [name for name in shown if name in own]
    counts = class_counts(run)
    graph = topology_of(run)
    return {
        "name": run.name,
        "state": run.state,
        "lines": run.lines,
        "columns": {name: [record.get(name) for record in run.metrics] for name in names},
        "layers": [str(name) for name in run.about["layers"]],
        "agents": run.result.get(f"agent_{run.headline.name}_each"),
        "headline": {
            "key": f"agent_{run.headline.name}_each",
            "title": run.headline.title,
            "factor": run.headline.factor,
            "better": run.headline.better,
        },
        "class_counts": None if counts is None else counts.tolist(),
        "class_names": [] if counts is None else class_names(run, counts.shape[1]),
        "edges": graph_drawings.edges(graph) if graph else [],
        "sharpness": run.sharpness,
        "landscape": run.landscape,
    }


def _panels_of(runs: Sequence[Run], metrics: Sequence[str]) -> list[tuple[str, str, bool, int]]:
    """Lists the curves of these metrics: first those with a place of their own."""
    known = list(dict.fromkeys(one for run in runs for one in run.measures))
    left_out = {*_AXES, *(f"agent_{one.name}_std" for one in known)}
    curves = [name for name in metrics if name not in left_out and _is_scalar(runs, name)]
    for name in [f"agent_{one.name}_mean" for one in known]:
        if all(len(run.curve(name)[0]) < 2 for run in runs):
            curves = [curve for curve in curves if curve != name]  # the results say it
    placed = [panel for panel in panels(known) if panel[0] in curves]
    others = [(name, name, False, 1) for name in curves if name not in {panel[0] for panel in placed}]
    return [*placed, *others]


def _mean(runs: Sequence[Run], group: Sequence[Run], name: str) -> dict[str, Any] | None:
    """Returns the mean of a curve over seeds, its deviation, and where it is, on every axis; None of one.

    Seeds that diverged are not in it, nor are those that still run beside several that have ended.
    """
    having = [run for run in group if run.state != "diverged" and run.curve(name)[0]]
    ended = [run for run in having if run.state != "running"]
    members = ended if len(ended) > 1 else having
    if len(members) < 2 or not has(members, name):
        return None
    with np.errstate(all="ignore"):
        _, mean, spread = over_seeds(members, name)
    if not (np.isfinite(mean).all() and np.isfinite(spread).all()):
        return None  # each seed by itself is finite, their sum is not
    places = {axis: list(over_seeds(members, name, axis)[0]) for axis in _AXES if has(members, axis)}
    return {
        "runs": [runs.index(run) for run in members],
        "at": {axis: x for axis, x in places.items() if len(x) == len(mean)},
        "mean": mean.tolist(),
        "std": spread.tolist(),
        "interval": half_interval(len(members)),
    }


def _is_recorded(runs: Sequence[Run], name: str) -> bool:
    return any(name in record for run in runs for record in run.metrics)


def _is_scalar(runs: Sequence[Run], name: str) -> bool:
    values = [record[name] for run in runs for record in run.metrics if record.get(name) is not None]
    return bool(values) and not any(isinstance(value, list) for value in values)
