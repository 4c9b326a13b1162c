"""Runs of the paper's experiments for a verb: planned, shown, made where they are missing."""

import dataclasses
import pathlib
import textwrap
from collections.abc import Sequence
from typing import Any

from absl import flags

from saddle_jax.cli.output import Output
from saddle_jax.cli.running import run_several
from saddle_jax.cli.settings import given_options
from saddle_jax.cli.streams import doing
from saddle_jax.cli.usage import UsageError, mistakes
from saddle_jax.papers import runs as plan
from saddle_jax.papers.common import SCALES, Entry, Scale
from saddle_jax.papers.runs import HOW, duration, plan_rows, written
from saddle_jax.papers.saddle.experiments import EXPERIMENTS, PAPER


def place(options: flags.FlagValues) -> tuple[Scale, pathlib.Path]:
    """Returns the scale and the folder that the options name; a plan alone may be one of nothing made yet."""
    if options.scale not in SCALES:
        raise UsageError(f"scale must be one of {', '.join(SCALES)}, got {options.scale!r}")
    if not options.workdir and not options.plan:
        raise UsageError("workdir must be given: --workdir=DIR, one folder for all runs")
    return SCALES[options.scale], pathlib.Path(options.workdir or "DIR")


def interpretations_of(options: flags.FlagValues) -> dict[str, Any]:
    """Returns how the options read what the paper leaves open."""
    biased = {} if options.biased is None else {"biased": options.biased}
    return given_options(options) | biased


def make_runs(
    options: flags.FlagValues, table: str, entries: Sequence[Entry], seeds: int
) -> tuple[list[plan.Planned], int]:
    """Plans and, without --plan, runs what is missing; returns the runs, and the exit status so far."""
    scale, folder = place(options)
    output = Output(options)
    tell = output.note
    with mistakes():
        otherwise = interpretations_of(options)
        runs = plan.plan(entries, scale, seeds, folder, options.data_dir, otherwise)
        missing = [run for run in runs if run.is_missing]
        tell(f"table {table}: {EXPERIMENTS[table].title}\nscale {scale.name}: {scale.meaning}")
        if otherwise:
            tell(f"read otherwise, where it means something: {', '.join(written(otherwise))}")
        if options.plan or (missing and not output.is_silent):
            _show_plan(output, missing, options.plan)
    tell(f"{len(runs)} runs, {len(runs) - len(missing)} of them made already")
    if options.plan:
        return runs, 0
    refused, status = run_several({run.workdir: run.config for run in missing}, quiet=output.is_silent)
    if status == 130:
        return [], status
    made = [run for run in runs if run.workdir not in refused]
    with mistakes():
        for planned in made:
            planned.note_paper(table, scale)
    return made, status


def _show_plan(output: Output, missing: Sequence[plan.Planned], alone: bool) -> None:
    """Prints what is left to run and about how long it takes; as JSON only where the plan stands alone."""
    with doing("counting what the runs compute and send ..."):
        remaining = plan.remaining(missing, at_once=not alone)
    total = sum(row.seconds for row in remaining)
    if remaining:
        output.note()
        output.table(plan_rows(remaining), spare=("sends per agent",))
        output.say(f"\nabout {duration(total)} on this machine, compilation apart")
        output.say(textwrap.fill(HOW, 80) + "\n")
    if alone:
        rows = [
            {"row": row.name, "runs": row.runs, "seconds": row.seconds, **dataclasses.asdict(row.size)}
            for row in remaining
        ]
        output.give({"estimate": HOW, "seconds": total, "rows": rows})


def base_runs(
    options: flags.FlagValues, table: str, entries: Sequence[Entry], seeds: int
) -> list[plan.Planned]:
    """Plans the runs of other tables that these entries are compared with, those that have ended or not."""
    scale, folder = place(options)
    bases = PAPER.compared_with(table, entries)
    return plan.plan(bases, scale, seeds, folder, options.data_dir, interpretations_of(options))
