"""saddle landscape: the loss around the consensus models of runs, on the same grid."""

import contextlib
import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.analysis import landscape
from saddle_jax.analysis.landscape_runs import Scan, open_runs, surfaces
from saddle_jax.base.files import check_no_link
from saddle_jax.cli.usage import mistakes, opening_options, parse
from saddle_jax.report.landscape import save_numbers, write_all
from saddle_jax.report.tables import run_names
from saddle_jax.training.progress import Screen
from saddle_jax.training.run_folder import all_ended, same_problem


def run(arguments: Sequence[str]) -> None:
    """Computes the surfaces, then writes them as numbers, pictures and a page."""
    options = _options()
    workdirs = [pathlib.Path(name) for name in parse(options, arguments, ["DIR..."])]
    names = run_names(workdirs)
    folder = pathlib.Path(options.output or workdirs[0].resolve().parent / "landscape")
    with mistakes(), contextlib.closing(Screen()) as screen:
        x = landscape.grid(options.points, options.span)
        if not options.output:
            check_no_link(folder)
        same_problem(workdirs)
        all_ended(workdirs)
        runs = open_runs(workdirs, options.data_dir, screen, options.code)
        folder.mkdir(parents=True, exist_ok=True)  # before the long computation, not after it
        scan = Scan(options.directions, options.seed, options.images)
        losses = surfaces(names, runs, x, scan, screen)
        write_all(x, losses, names, folder)
        for workdir, name, loss in zip(workdirs, names, losses, strict=True):
            save_numbers(x, loss[None], [name], workdir)  # for `saddle report` of this run
        screen.line(
            f"written: landscape.npz, .png and .html, panels.png, contours.png, sections.png in {folder}"
        )


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    meaning = "Filter-normalised directions, or orthogonal ones of the model's norm."
    flags.DEFINE_enum("directions", "filter", landscape.KINDS, meaning, flag_values=options)
    meaning = "Points along each direction, an odd number."
    flags.DEFINE_integer("points", 21, meaning, flag_values=options)
    flags.DEFINE_float("span", 1.0, "How far each way, in lengths of the directions.", flag_values=options)
    flags.DEFINE_integer("images", 1024, "Training images to compute the loss on.", 1, flag_values=options)
    flags.DEFINE_integer("seed", 0, "Seed of the directions.", 0, 2**32 - 1, flag_values=options)
    meaning = "Folder to write to (default: landscape, beside the first DIR)."
    flags.DEFINE_string("output", None, meaning, flag_values=options)
    opening_options(options)
    return options
