"""saddle compare: a grid of methods, compressors and seeds, and the table of what they reached."""

import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.cli.running import run_several
from saddle_jax.cli.settings import config_options, read_options
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.report.tables import as_text, comparison, gather, write_all


def run(arguments: Sequence[str]) -> int:
    """Runs what is missing, resumes what was interrupted, and goes on past what diverges."""
    options = _options()
    parse(options, arguments)
    _check(options)
    base, folder = read_options(options), pathlib.Path(options.workdir)

    from saddle_jax.report.curves import plot_curves
    from saddle_jax.training.comparison import parse_seeds, runs_of

    with mistakes():
        seeds = parse_seeds(options.seeds)
        runs = runs_of(base, options.methods, options.compressors, seeds, folder, together=options.together)
    refused, status = run_several(runs, quiet=options.quiet)
    if status == 130:
        return status
    ended = [workdir for workdir in runs if workdir not in refused]
    if not ended:
        raise UsageError(f"no run of {folder} could be made")
    rows = comparison(gather(ended), options.methods, options.compressors)
    title = "test accuracy of the consensus model, %, mean +- standard deviation over seeds"
    print(f"\n{title}\n{as_text(rows)}")
    paths = write_all(rows, folder, "comparison")
    plot_curves(ended, folder / "comparison.png")
    print(f"written: {', '.join(path.name for path in paths)}, comparison.png in {folder}")
    return status


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    config_options(options)
    flags.DEFINE_list("methods", ["qgm", "q_saddle"], "Methods to compare.", flag_values=options)
    flags.DEFINE_list("compressors", ["none"], "Compressors; drops are from the first.", flag_values=options)
    flags.DEFINE_list("seeds", ["0", "1", "2"], "Seeds.", flag_values=options)
    flags.DEFINE_string("workdir", None, "Folder of the comparison.", flag_values=options)
    meaning = "Train a method's seeds in one program and folder, where memory suffices; false: a folder each."
    flags.DEFINE_bool("together", True, meaning, flag_values=options)
    flags.DEFINE_bool("quiet", False, "Print the table only.", flag_values=options)
    return options


def _check(options: flags.FlagValues) -> None:
    """Refuses options that contradict the grid, and an empty grid."""
    if not options.workdir:
        raise UsageError("workdir must be given: --workdir=DIR, one folder for all runs")
    for name in ("method", "compressor", "seed"):
        if options[f"config.{name}"].present:
            raise UsageError(f"config.{name} must not be given to compare: --{name}s=... lists them")
    for name in ("seeds", "sweep"):
        if options[f"config.{name}"].present:
            raise UsageError(f"config.{name} must not be given to compare, which lists --seeds")
    for name in ("methods", "compressors", "seeds"):
        if not options[name].value:
            raise UsageError(f"{name} must list at least one, got nothing")
