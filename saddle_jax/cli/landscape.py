"""saddle landscape: the loss around the consensus models of runs, on the same grid."""

import contextlib
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import flags

from saddle_jax.analysis import landscape
from saddle_jax.analysis.landscape import Scan, open_runs, surfaces, trial_in
from saddle_jax.base.files import check_no_link
from saddle_jax.cli.opening import opening_options
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.pictures import picture_option
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.report.landscape import save_numbers, write_all
from saddle_jax.runs.run_folder import all_ended, same_problem
from saddle_jax.runs.table import run_names
from saddle_jax.training.progress import Screen


def run(arguments: Sequence[str]) -> None:
    """Computes the surfaces, then writes them as numbers, pictures and a page."""
    options = _options()
    workdirs = [pathlib.Path(name) for name in parse(options, arguments, ["DIR..."])]
    output = Output(options)
    folder = pathlib.Path(options.output or workdirs[0].resolve().parent / "landscape")
    with mistakes(), contextlib.closing(Screen(output.is_silent)) as screen:
        x = landscape.grid(options.points, options.span)
        if not options.output:
            check_no_link(folder)
        if options.trial is not None and not any(trial_in(w, 0) == 0 for w in workdirs):
            raise UsageError("trial must be given for a folder that holds several runs, and none does")
        scan = Scan(options.directions, options.seed, options.images)
        opening = (options.data_dir, options.code)
        files = draw(workdirs, folder, x, scan, screen, options.trial, *opening, options.picture)
    output.note(f"written: {', '.join(path.name for path in files)} in {folder}")
    output.give({"folder": str(folder), "files": [str(path) for path in files]})


def draw(
    workdirs: Sequence[pathlib.Path],
    folder: pathlib.Path,
    x: np.ndarray,
    scan: Scan,
    screen: Screen,
    trial: int | None = None,
    data_dir: str | None = None,
    code: Sequence[str] = (),
    picture: str = "png",
) -> list[pathlib.Path]:
    """Computes the surfaces of runs at the places x along two directions; returns the files it writes."""
    names = run_names(workdirs)
    same_problem(workdirs)
    all_ended(workdirs)
    runs = open_runs(workdirs, data_dir, screen, code, trial)
    folder.mkdir(parents=True, exist_ok=True)  # before the long computation, not after it
    losses = surfaces(names, runs, x, scan, screen)
    files = write_all(x, losses, names, folder, picture)
    for workdir, name, loss in zip(workdirs, names, losses, strict=True):
        # For `saddle report` of this run.
        save_numbers(x, loss[None], [name], workdir, trial_in(workdir, trial))
    return files


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    meaning = "Filter-normalised directions, or orthogonal ones of the model's norm."
    flags.DEFINE_enum("directions", "filter", landscape.KINDS, meaning, flag_values=options)
    meaning = "Points along each direction, an odd number."
    flags.DEFINE_integer("points", 21, meaning, flag_values=options)
    flags.DEFINE_float("span", 1.0, "How far each way, in lengths of the directions.", flag_values=options)
    flags.DEFINE_integer("images", 1024, "Training images to compute the loss on.", 1, flag_values=options)
    flags.DEFINE_integer("seed", 0, "Seed of the directions.", 0, 2**32 - 1, flag_values=options)
    meaning = "Number of the run, in folders that hold several."
    flags.DEFINE_integer("trial", None, meaning, flag_values=options)
    meaning = "Folder to write to (default: landscape, beside the first DIR)."
    flags.DEFINE_string("output", None, meaning, flag_values=options)
    picture_option(options)
    output_options(options)
    opening_options(options)
    return options
