"""Several runs of a sweep, one after the other, and the table of what each setting reached."""

import pathlib
import sys

from saddle_jax.cli.command import next_steps
from saddle_jax.cli.output import Output
from saddle_jax.cli.running import run_several
from saddle_jax.cli.statuses import MISTAKE
from saddle_jax.cli.usage import UsageError, mistakes
from saddle_jax.training.sweep import Runs


def run_sweep(found: Runs, folder: pathlib.Path, output: Output, picture: str) -> int:
    """Runs what is missing, resumes what was interrupted, and goes on past what diverges or cannot be.

    `picture` is the ending of the file of curves. Returns the exit status: 0, 2 if some runs cannot be, 130
    if it was interrupted.
    """
    from saddle_jax.devices import hosts
    from saddle_jax.report.best import sweep_rows
    from saddle_jax.report.figures import plot_curves
    from saddle_jax.report.tables import as_records, write_all

    if not found.runs:
        raise UsageError(found.refused[0])
    for note in found.notes:
        output.note(note)
    for line in found.refused if hosts.writes() else ():
        print(f"saddle: {line}", file=sys.stderr)
    refused, status = run_several(found.runs, quiet=output.is_silent)
    if status == 130 or not hosts.writes():
        return status
    ended = [workdir for workdir in found.runs if workdir not in refused]
    with mistakes():
        rows, metric, left_out = sweep_rows(ended)
    title = f"{metric.name}, mean +- standard deviation over seeds ({metric.better} is better)"
    output.table(rows, f"\n{title}")
    for line in left_out:
        output.note(f"left out: {line}")
    drawn = folder / f"sweep.{picture}"
    with mistakes():
        paths = write_all(rows, folder, "sweep")
        plot_curves(ended, drawn)
    output.note(f"written: {', '.join(path.name for path in [*paths, drawn])} in {folder}")
    output.note(next_steps(folder))
    output.give({"folder": str(folder), "metric": metric.name, "settings": as_records(rows)})
    return status or (MISTAKE if found.refused else 0)
