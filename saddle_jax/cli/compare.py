"""saddle compare: a grid of methods, compressors and seeds, and the table of what they reached."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from saddle_jax.base.errors import RunError
from saddle_jax.cli.running import run_several
from saddle_jax.cli.train import config_options, read_options
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.report.curves import plot_curves
from saddle_jax.report.tables import as_text, comparison, gather, write_all
from saddle_jax.training.config import Config


def run(arguments: Sequence[str]) -> int:
    """Runs what is missing, resumes what was interrupted, goes on past what diverges."""
    options = flags.FlagValues()
    config_options(options)
    flags.DEFINE_list("methods", ["qgm", "q_saddle"], "Methods to compare.", flag_values=options)
    flags.DEFINE_list("compressors", ["none"], "Compressors; drops are from the first.", flag_values=options)
    flags.DEFINE_list("seeds", ["0", "1", "2"], "Seeds.", flag_values=options)
    flags.DEFINE_string("workdir", None, "Folder of the comparison.", flag_values=options)
    flags.DEFINE_bool(
        "together",
        True,
        "Train a method's seeds in one program and folder, where memory suffices; false: a folder each.",
        flag_values=options,
    )
    flags.DEFINE_bool("quiet", False, "Print the table only.", flag_values=options)
    parse(options, arguments)
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
    base, folder = read_options(options), pathlib.Path(options.workdir)
    if not all(seed.isdecimal() for seed in options.seeds):
        raise UsageError(f"seeds must be whole numbers, got {','.join(options.seeds)}")
    variants = [
        (f"{method}-{compressor}", _variant(base, method=method, compressor=compressor))
        for method in options.methods
        for compressor in options.compressors
    ]
    seeds = [str(int(seed)) for seed in dict.fromkeys(options.seeds)]
    grid = _grid(folder, variants, seeds, options.together)
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


def _grid(
    folder: pathlib.Path, variants: Sequence[tuple[str, Config]], seeds: Sequence[str], together: bool
) -> dict[pathlib.Path, Config]:
    """The runs by their folders: those that are there already stay, the other seeds are trained together."""
    joint: dict[pathlib.Path, Config] = {}
    single: dict[str, dict[pathlib.Path, Config]] = {seed: {} for seed in seeds}  # a table fills evenly
    for name, config in variants:
        left = list(seeds)
        for path in sorted(folder.glob(f"{name}-seeds*/config.json")):
            listed = path.parent.name.removeprefix(f"{name}-seeds").split(",")
            if set(listed) <= set(left):
                joint[path.parent] = _variant(config, seeds=",".join(listed))
                left = [seed for seed in left if seed not in listed]
        new = [seed for seed in left if not (folder / f"{name}-seed{seed}" / "config.json").exists()]
        if together and len(new) > 1 and _fit_together(config, ",".join(new)):
            joint[folder / f"{name}-seeds{','.join(new)}"] = _variant(config, seeds=",".join(new))
            left = [seed for seed in left if seed not in new]
        for seed in left:
            single[seed][folder / f"{name}-seed{seed}"] = _variant(config, seed=int(seed))
    return joint | {path: config for runs in single.values() for path, config in runs.items()}


def _fit_together(config: Config, seeds: str) -> bool:
    """Whether these seeds can be one program, and memory suffices for it."""
    from saddle_jax.training.memory import fits
    from saddle_jax.training.program import build

    try:
        return fits(build(dataclasses.replace(config, seeds=seeds)))
    except (ValueError, RunError, OSError):  # random graphs, unequal epochs; or told when it is run
        return False


def _variant(base: Config, **changes: Any) -> Config:
    with mistakes():
        return dataclasses.replace(base, **changes)
