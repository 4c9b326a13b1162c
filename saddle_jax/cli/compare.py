"""saddle compare: a grid of methods, compressors and seeds, and the table of what they reached."""

import dataclasses
import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.cli.running import run_several
from saddle_jax.cli.train import config_options, read_options
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.config import Config
from saddle_jax.report.curves import plot_curves
from saddle_jax.report.tables import as_text, comparison, gather, write_all


def run(arguments: Sequence[str]) -> int:
    """Runs what is missing, resumes what was interrupted, goes on past what diverges."""
    options = flags.FlagValues()
    config_options(options)
    flags.DEFINE_list("methods", ["qgm", "q_saddle"], "Methods to compare.", flag_values=options)
    flags.DEFINE_list("compressors", ["none"], "Compressors; drops are from the first.", flag_values=options)
    flags.DEFINE_list("seeds", ["0", "1", "2"], "Seeds.", flag_values=options)
    flags.DEFINE_string("workdir", None, "Folder of the comparison.", flag_values=options)
    flags.DEFINE_bool("quiet", False, "Print the table only.", flag_values=options)
    parse(options, arguments)
    if not options.workdir:
        raise UsageError("workdir must be given: --workdir=DIR, one folder for all runs")
    for name in ("method", "compressor", "seed"):
        if options[f"config.{name}"].present:
            raise UsageError(f"config.{name} must not be given to compare: --{name}s=... lists them")
    for name in ("methods", "compressors", "seeds"):
        if not options[name].value:
            raise UsageError(f"{name} must list at least one, got nothing")
    base, folder = read_options(options), pathlib.Path(options.workdir)
    if not all(seed.isdecimal() for seed in options.seeds):
        raise UsageError(f"seeds must be whole numbers, got {','.join(options.seeds)}")
    grid = {
        folder / f"{method}-{compressor}-seed{seed}": _variant(base, method, compressor, int(seed))
        for seed in options.seeds
        for method in options.methods
        for compressor in options.compressors
    }
    refused, status = run_several(grid, quiet=options.quiet)
    if status == 130:
        return status
    ended = [workdir for workdir in grid if workdir not in refused]
    if not ended:
        raise UsageError(f"no run of {folder} could be made")
    rows = comparison(gather(ended), options.methods, options.compressors)
    print(
        "\ntest accuracy of the consensus model, %, mean +- standard deviation over seeds\n" + as_text(rows)
    )
    paths = write_all(rows, folder, "comparison")
    plot_curves(ended, folder / "comparison.png")
    print(f"written: {', '.join(path.name for path in paths)}, comparison.png in {folder}")
    return status


def _variant(base: Config, method: str, compressor: str, seed: int) -> Config:
    with mistakes():
        return dataclasses.replace(base, method=method, compressor=compressor, seed=seed)
