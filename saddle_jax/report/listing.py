"""The runs below a folder and how far each has come, as rows of text."""

import pathlib

from saddle_jax.base.errors import RunError
from saddle_jax.report.measures import measures
from saddle_jax.training.run_folder import (
    folders_below,
    is_locked,
    read_about,
    read_config,
    read_metrics,
    read_result,
)

_HEADER = ["run", "state", "step", "result", "method", "compressor", "seed"]


def run_rows(folder: pathlib.Path) -> list[list[str]]:
    """Lists every run below `folder`, in the order of their paths, under a header."""
    names = [(workdir, str(workdir.relative_to(folder)) or ".") for workdir in folders_below(folder)]
    return [_HEADER, *(_row(workdir, name) for workdir, name in names)]


def _row(workdir: pathlib.Path, label: str) -> list[str]:
    try:
        config, result = read_config(workdir), read_result(workdir)
        headline = measures(read_about(workdir), label)[0]
    except RunError as error:
        return [label, f"unreadable: {error}", *[""] * (len(_HEADER) - 2)]
    metrics = read_metrics(workdir)
    state = "running" if is_locked(workdir) else result["status"] if result else "interrupted"
    scores = [r[headline.key] for r in metrics if isinstance(r.get(headline.key), int | float)]
    return [
        label,
        state,
        str(metrics[-1]["step"] if metrics else 0),
        f"{headline.title} {headline.text(scores[-1])}" if scores else "-",
        config.method,
        config.compressor,
        config.seeds or str(config.seed),
    ]
