"""The runs below a folder and how far each has come, as rows of text."""

import pathlib

from saddle_jax.base.errors import RunError
from saddle_jax.training.run_folder import is_locked, read_config, read_metrics, read_result

_HEADER = ["run", "state", "step", "accuracy %", "method", "compressor", "seed"]


def run_rows(folder: pathlib.Path) -> list[list[str]]:
    """Lists every run below `folder`, in the order of their paths, under a header."""
    workdirs = sorted(path.parent for path in folder.rglob("config.json"))
    return [_HEADER, *(_row(workdir, str(workdir.relative_to(folder)) or ".") for workdir in workdirs)]


def _row(workdir: pathlib.Path, label: str) -> list[str]:
    try:
        config, result = read_config(workdir), read_result(workdir)
    except RunError as error:
        return [label, f"unreadable: {error}", *[""] * (len(_HEADER) - 2)]
    metrics = read_metrics(workdir)
    state = "running" if is_locked(workdir) else result["status"] if result else "interrupted"
    accuracies = [r["test_accuracy"] for r in metrics if r.get("test_accuracy") is not None]
    return [
        label,
        state,
        str(metrics[-1]["step"] if metrics else 0),
        f"{100 * accuracies[-1]:.2f}" if accuracies else "-",
        config.method,
        config.compressor,
        config.seeds or str(config.seed),
    ]
