"""Several runs of a sweep, one after the other, and the table of what each setting reached."""

import pathlib
import sys

from saddle_jax.cli.running import run_several
from saddle_jax.cli.statuses import MISTAKE
from saddle_jax.cli.usage import UsageError, mistakes
from saddle_jax.training.comparison import Runs


def run_sweep(found: Runs, folder: pathlib.Path, *, quiet: bool) -> int:
    """Runs what is missing, resumes what was interrupted, and goes on past what diverges or cannot be.

    Returns the exit status: 0, 2 if some runs cannot be, 130 if it was interrupted.
    """
    from saddle_jax.devices import hosts
    from saddle_jax.report.candidates import sweep_rows
    from saddle_jax.report.curves import plot_curves
    from saddle_jax.report.tables import as_text, write_all

    if not found.runs:
        raise UsageError(found.refused[0])
    for note in found.notes if not quiet else ():
        print(note)
    for line in found.refused if hosts.writes() else ():
        print(f"saddle: {line}", file=sys.stderr)
    refused, status = run_several(found.runs, quiet=quiet)
    if status == 130 or not hosts.writes():
        return status
    ended = [workdir for workdir in found.runs if workdir not in refused]
    with mistakes():
        rows, yardstick, left_out = sweep_rows(ended)
    title = f"{yardstick.name}, mean +- standard deviation over seeds ({yardstick.better} is better)"
    print(f"\n{title}\n{as_text(rows)}")
    for line in left_out:
        print(f"left out: {line}")
    with mistakes():
        paths = write_all(rows, folder, "sweep")
        plot_curves(ended, folder / "sweep.png")
    print(f"written: {', '.join(path.name for path in paths)}, sweep.png in {folder}")
    return status or (MISTAKE if found.refused else 0)
