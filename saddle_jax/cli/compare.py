"""saddle compare: a grid of methods, graphs, compressors and so on, and the table of what they reached."""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from saddle_jax.base import sources
from saddle_jax.cli.running import run_several
from saddle_jax.cli.settings import config_options, read_for_many
from saddle_jax.cli.statuses import MISTAKE
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.report.comparisons import comparison, differences, intervals, numbers
from saddle_jax.report.tables import as_text, gather, headline_of, write_all
from saddle_jax.training.grid import parse_grid

# The lists of the grid: the setting that each varies, its default, its meaning.
_LISTS = {
    "methods": ("method", "qgm,q_saddle", "Methods to compare, with or without options: qgm,gut(mu=0.5)."),
    "compressors": ("compressor", "none", "Compressors; drops of accuracy are from the first."),
    "seeds": ("seed", "0,1,2", "Seeds."),
    "ascents": ("ascent", "", "How gradients are taken, such as none,sam,looksam(every=10) (default: auto)."),
    "topologies": ("topology", "", "Graphs, such as ring,torus (default: that of the settings)."),
    "drops": ("drop", "", "Shares of lost messages, such as 0,0.01,0.1 (default: that of the settings)."),
}


@sources.reading_once()  # all runs have the same code
def run(arguments: Sequence[str]) -> int:
    """Runs what is missing, resumes what was interrupted, and goes on past what diverges or cannot be."""
    options = _options()
    parse(options, arguments)
    _check(options)
    with mistakes():
        grid = parse_grid(**{name: options[name].value or "" for name in _LISTS})
    settings, folder = read_for_many(options), pathlib.Path(options.workdir)

    from saddle_jax.report.curves import plot_curves
    from saddle_jax.training.comparison import runs_of

    with mistakes():
        runs, notes, impossible = runs_of(settings, grid, folder, together=options.together)
    if not runs:
        raise UsageError(impossible[0])
    for note in notes if not options.quiet else ():
        print(note)
    for line in impossible:
        print(f"saddle: {line}", file=sys.stderr)
    refused, status = run_several(runs, quiet=options.quiet)
    if status == 130:
        return status
    ended = [workdir for workdir in runs if workdir not in refused]
    if not ended:
        raise UsageError(f"no run of {folder} could be made", status)
    with mistakes():
        cells, headline = gather(ended, grid.axes), headline_of(ended)
    rows, between = comparison(cells, grid), differences(cells, grid)
    title = (
        f"test {headline.title} of the consensus model{headline.unit}, mean +- standard deviation over seeds"
    )
    print(f"\n{title}\n{as_text(rows)}")
    paths = write_all(rows, folder, "comparison", numbers=numbers(cells, grid, headline))
    if any(len(cell.scores) > 1 for cell in cells.values()):
        spread = intervals(cells, grid)
        title = "the same with 95 % intervals of the mean (Student's t)"
        print(f"\n{title}\n{as_text(spread)}")
        paths += write_all(spread, folder, "comparison-intervals", title)
    if len(between) > 1:
        title = "differences over the same seeds, with 95 % intervals (Student's t)"
        print(f"\n{title}\n{as_text(between)}")
        paths += write_all(between, folder, "comparison-differences", title)
    plot_curves(ended, folder / "comparison.png")
    print(f"written: {', '.join(path.name for path in paths)}, comparison.png in {folder}")
    return status or (MISTAKE if impossible else 0)


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    config_options(options)
    for name, (_, default, meaning) in _LISTS.items():
        flags.DEFINE_string(name, default, meaning, flag_values=options)
    flags.DEFINE_string("workdir", None, "Folder of the comparison.", flag_values=options)
    meaning = (
        "Train a cell's seeds, and shares of lost messages, in one program and folder, where memory "
        "suffices; false: a folder each."
    )
    flags.DEFINE_bool("together", True, meaning, flag_values=options)
    flags.DEFINE_bool("quiet", False, "Print the table only.", flag_values=options)
    return options


def _check(options: flags.FlagValues) -> None:
    """Refuses options that contradict the grid."""
    if not options.workdir:
        raise UsageError("workdir must be given: --workdir=DIR, one folder for all runs")
    for name, (setting, default, _) in _LISTS.items():
        if options[f"config.{setting}"].present and (default or options[name].value):
            raise UsageError(f"config.{setting} must not be given to compare: --{name}=... lists them")
    for name in ("seeds", "sweep"):
        if options[f"config.{name}"].present:
            raise UsageError(f"config.{name} must not be given to compare, which lists --seeds")
