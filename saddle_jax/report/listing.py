"""The runs below a folder and how far each has come."""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from saddle_jax.base.errors import RunError
from saddle_jax.report.measures import measures
from saddle_jax.runs.metrics import newest
from saddle_jax.runs.run_folder import folders_below, is_locked, read_about, read_settings
from saddle_jax.runs.schema import read_result

LETTERS = 200  # of a setting in a list of runs


class Listed(NamedTuple):
    """One run of a list; what a folder that cannot be read does not say is None."""

    run: str  # its folder, from where the list begins
    state: str  # running, finished, diverged, interrupted, or unreadable
    step: int | None = None
    metric: str | None = None  # what it is judged by, such as "accuracy"
    value: float | None = None  # the newest; a share, not a percentage; None of a sweep
    text: str = "-"  # the same as people read it
    method: str | None = None
    compressor: str | None = None
    seed: str | None = None  # or seeds, such as "0,1,2"
    reason: str | None = None  # why it is unreadable


def runs_below(folder: pathlib.Path) -> list[Listed]:
    """Reads every run below `folder`, in the order of their paths."""
    return [_listed(workdir, str(workdir.relative_to(folder)) or ".") for workdir in folders_below(folder)]


def run_rows(runs: Sequence[Listed]) -> list[list[str]]:
    """Lists runs as text, under a header."""
    rows = [["run", "state", "step", "result", "method", "compressor", "seed"]]
    for run in runs:
        told = ["" if run.step is None else str(run.step), "" if run.reason else run.text]
        rows.append(
            [run.run, run.state, *told, *(each or "" for each in (run.method, run.compressor, run.seed))]
        )
    return rows


def _listed(workdir: pathlib.Path, label: str) -> Listed:
    try:
        settings, headline = read_settings(workdir), measures(read_about(workdir), label)[0]
        result = read_result(workdir)
        step, record = _newest(workdir, headline.key)
    except RunError as error:
        return Listed(label, "unreadable", reason=str(error))
    score, text = record.get(headline.key), "-"
    if score is not None:
        text = f"{headline.title} {headline.text(score)}"
    if settings["sweep"]:  # numbers of different settings have no mean
        each = [x for x in record.get(f"{headline.key}_by_replica") or () if isinstance(x, float)]
        spread = f"{headline.digits(min(each))} to {headline.text(max(each))}" if each else "-"
        score, text = None, f"{headline.title} {spread}"
    return Listed(
        run=label,
        state="running" if is_locked(workdir) else result["status"] if result else "interrupted",
        step=step,
        metric=headline.title,
        value=score,
        text=text,
        method=settings["method"][:LETTERS],
        compressor=settings["compressor"][:LETTERS],
        seed=(settings["seeds"] or str(settings["seed"]))[:LETTERS],
    )


def _newest(workdir: pathlib.Path, key: str) -> tuple[int, dict[str, Any]]:
    """Returns the last step that was logged, 0 for none, and the newest line with a metric, if any."""
    step = next((record["step"] for record in newest(workdir)), 0)
    return step, next((line for line in newest(workdir, key) if line.get(key) is not None), {})
