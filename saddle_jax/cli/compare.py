"""saddle compare: a grid of methods, graphs, compressors and so on, and the table of what they reached."""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from saddle_jax.base import sources
from saddle_jax.cli.command import next_steps
from saddle_jax.cli.grids import grid_options, read_grid
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.pictures import picture_option
from saddle_jax.cli.running import run_several
from saddle_jax.cli.settings import config_options, read_for_many
from saddle_jax.cli.statuses import MISTAKE
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.report.comparisons import comparison, differences, intervals, numbers
from saddle_jax.report.tables import as_records, gather, headline_of, write_all


@sources.reading_once()  # all runs have the same code
def run(arguments: Sequence[str]) -> int:
    """Runs what is missing, resumes what was interrupted, and goes on past what diverges or cannot be."""
    options = _options()
    parse(options, arguments)
    grid = read_grid(options)
    settings, folder = read_for_many(options), pathlib.Path(options.workdir)

    from saddle_jax.report.curves import plot_curves
    from saddle_jax.training.comparison import runs_of

    with mistakes():
        runs, notes, impossible = runs_of(settings, grid, folder, together=options.together)
    if not runs:
        raise UsageError(impossible[0])
    output = Output(options)
    for note in notes:
        output.note(note)
    for line in impossible:
        print(f"saddle: {line}", file=sys.stderr)
    refused, status = run_several(runs, quiet=output.is_silent)
    if status == 130:
        return status
    ended = [workdir for workdir in runs if workdir not in refused]
    if not ended:
        raise UsageError(f"no run of {folder} could be made", status)
    with mistakes():
        cells, headline = gather(ended, grid.axes), headline_of(ended)
    rows, between = comparison(cells, grid), differences(cells, grid)
    title = f"test {headline.title} of the consensus model{headline.unit}, mean +- deviation over seeds"
    output.table(rows, f"\n{title}")
    alone = numbers(cells, grid, headline)
    paths = write_all(rows, folder, "comparison", numbers=alone)
    if any(len(cell.scores) > 1 for cell in cells.values()):
        spread = intervals(cells, grid)
        title = "the same with 95 % intervals of the mean (Student's t)"
        output.table(spread, f"\n{title}")
        paths += write_all(spread, folder, "comparison-intervals", title)
    if len(between) > 1:
        title = "differences over the same seeds, with 95 % intervals (Student's t)"
        output.table(between, f"\n{title}", spare=("seeds",))
        paths += write_all(between, folder, "comparison-differences", title)
    picture = folder / f"comparison.{options.picture}"
    plot_curves(ended, picture)
    output.note(f"written: {', '.join(path.name for path in [*paths, picture])} in {folder}")
    output.note(next_steps(folder))
    texts = ("method", "compressor", "ascent", "topology", "metric")
    tables = {"cells": as_records(alone, texts), "differences": as_records(between, (*texts, "minus"))}
    output.give({"folder": str(folder), **tables})
    return status or (MISTAKE if impossible else 0)


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    config_options(options)
    grid_options(options)
    flags.DEFINE_string("workdir", None, "Folder of the comparison.", flag_values=options)
    meaning = (
        "Train a cell's seeds, and shares of lost messages, in one program and folder, where memory "
        "suffices; false: a folder each."
    )
    flags.DEFINE_bool("together", True, meaning, flag_values=options)
    picture_option(options)
    output_options(options)
    return options
