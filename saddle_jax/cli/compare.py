"""saddle compare: a grid of methods, compressors and seeds, and the table of what they reached."""

import dataclasses
import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.cli.running import run_training
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
    base, folder = read_options(options), pathlib.Path(options.workdir)
    if not all(seed.isdecimal() for seed in options.seeds):
        raise UsageError(f"seeds must be whole numbers, got {','.join(options.seeds)}")
    grid = {
        folder / f"{method}-{compressor}-seed{seed}": _variant(base, method, compressor, int(seed))
        for seed in options.seeds
        for method in options.methods
        for compressor in options.compressors
    }
    for number, (workdir, config) in enumerate(grid.items(), 1):
        if not options.quiet:
            print(f"\n[{number} of {len(grid)}] {workdir.name}", flush=True)
        result = run_training(config, workdir, quiet=options.quiet)
        if result["status"] == "interrupted":
            print("interrupted; the same command goes on from here")
            return 130
    rows = comparison(gather(list(grid)), options.methods, options.compressors)
    print(
        "\ntest accuracy of the consensus model, %, mean +- standard deviation over seeds\n" + as_text(rows)
    )
    paths = write_all(rows, folder, "comparison")
    plot_curves(list(grid), folder / "comparison.png")
    print(f"written: {', '.join(path.name for path in paths)}, comparison.png in {folder}")
    return 0


def _variant(base: Config, method: str, compressor: str, seed: int) -> Config:
    with mistakes():
        return dataclasses.replace(base, method=method, compressor=compressor, seed=seed)
