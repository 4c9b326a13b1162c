"""What `saddle compare` prints and writes when its runs are made: tables, numbers and a picture."""

import pathlib
from collections.abc import Sequence

from saddle_jax.cli.command import next_steps
from saddle_jax.cli.output import Output
from saddle_jax.cli.usage import mistakes
from saddle_jax.report.comparisons import comparison, differences, intervals, numbers
from saddle_jax.report.tables import as_records, write_all
from saddle_jax.runs.table import cells_by, headline_of
from saddle_jax.training.sweep import Grid

_TEXTS = ("method", "compressor", "gradient", "topology", "metric", "minus")


def show_compared(
    ended: Sequence[pathlib.Path], grid: Grid, folder: pathlib.Path, picture: str, output: Output
) -> None:
    """Prints and writes the scores of a grid, their intervals and their differences, and draws the curves."""
    from saddle_jax.report.figures import plot_curves

    with mistakes():
        cells, headline = cells_by(ended, grid.axes), headline_of(ended)
    alone, between = numbers(cells, grid, headline), differences(cells, grid)
    rows = comparison(cells, grid)
    seeds = max((len(cell.scores) for cell in cells.values()), default=0)
    title = f"test {headline.title} of the consensus model{headline.unit}"
    title += f", mean +- standard deviation over seeds (n = {seeds})"
    output.table(rows, f"\n{title}")
    paths = write_all(rows, folder, "comparison", title, numbers=alone)
    if any(len(cell.scores) > 1 for cell in cells.values()):
        spread = intervals(cells, grid)
        title = "the same with 95 % intervals of the mean (Student's t)"
        output.table(spread, f"\n{title}")
        paths += write_all(spread, folder, "comparison-intervals", title)
    if len(between) > 1:
        title = "differences over the same seeds, with 95 % intervals (Student's t)"
        output.table(between, f"\n{title}", spare=("seeds",))
        paths += write_all(between, folder, "comparison-differences", title)
    drawn = folder / f"comparison.{picture}"
    plot_curves(ended, drawn)
    output.note(f"written: {', '.join(path.name for path in [*paths, drawn])} in {folder}")
    output.note(next_steps(folder))
    tables = {"cells": as_records(alone, _TEXTS), "differences": as_records(between, _TEXTS)}
    output.give({"folder": str(folder), **tables})
