"""The runs below a folder and how far each has come, as rows of text."""

import pathlib

from saddle_jax.base.errors import RunError
from saddle_jax.report.measures import measures
from saddle_jax.training.ended import read_result
from saddle_jax.training.lock import is_locked
from saddle_jax.training.logged import newest
from saddle_jax.training.run_folder import folders_below, read_about, read_settings

_HEADER = ["run", "state", "step", "result", "method", "compressor", "seed"]


def run_rows(folder: pathlib.Path) -> list[list[str]]:
    """Lists every run below `folder`, in the order of their paths, under a header."""
    names = [(workdir, str(workdir.relative_to(folder)) or ".") for workdir in folders_below(folder)]
    return [_HEADER, *(_row(workdir, name) for workdir, name in names)]


def _row(workdir: pathlib.Path, label: str) -> list[str]:
    try:
        settings, result = read_settings(workdir), read_result(workdir)
        headline = measures(read_about(workdir), label)[0]
        step, score = _newest(workdir, headline.key)
    except RunError as error:
        return [label, f"unreadable: {error}", *[""] * (len(_HEADER) - 2)]
    return [
        label,
        "running" if is_locked(workdir) else result["status"] if result else "interrupted",
        str(step),
        "-" if score is None else f"{headline.title} {headline.text(score)}",
        settings["method"],
        settings["compressor"],
        settings["seeds"] or str(settings["seed"]),
    ]


def _newest(workdir: pathlib.Path, key: str) -> tuple[int, float | None]:
    """Returns the last step that was logged, 0 for none, and the newest value of a metric, if it has any."""
    step = next((record["step"] for record in newest(workdir)), 0)
    values = (record.get(key) for record in newest(workdir, key))
    return step, next((value for value in values if value is not None), None)
