"""saddle landscape: the loss around the consensus models of runs, on the same grid."""

import contextlib
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import flags

from saddle_jax.analysis import landscape, sharpness
from saddle_jax.base.files import check_no_link, in_one_go
from saddle_jax.base.types import Params
from saddle_jax.cli.usage import data_dir_option, mistakes, parse
from saddle_jax.devices import policy
from saddle_jax.report.landscape import plot_contours, plot_sections, plot_surfaces, write_page
from saddle_jax.report.tables import run_names
from saddle_jax.training import reopen
from saddle_jax.training.build import Problem
from saddle_jax.training.progress import Screen
from saddle_jax.training.run_folder import all_ended, same_problem


def run(arguments: Sequence[str]) -> None:
    """Computes the surfaces, then writes them as numbers, pictures and a page."""
    options = flags.FlagValues()
    flags.DEFINE_enum(
        "directions",
        "filter",
        landscape.KINDS,
        "Filter-normalised, or orthogonal of the model's norm.",
        flag_values=options,
    )
    flags.DEFINE_integer("points", 21, "Along each direction; odd.", flag_values=options)
    flags.DEFINE_float("span", 1.0, "How far each way, in lengths of the directions.", flag_values=options)
    flags.DEFINE_integer("images", 1024, "Training images to compute the loss on.", 1, flag_values=options)
    flags.DEFINE_integer("seed", 0, "Of the directions.", 0, 2**32 - 1, flag_values=options)
    flags.DEFINE_string("output", None, "Folder; landscape beside the first DIR else.", flag_values=options)
    data_dir_option(options)
    workdirs = [pathlib.Path(name) for name in parse(options, arguments, ["DIR..."])]
    folder = pathlib.Path(options.output or workdirs[0].resolve().parent / "landscape")
    with mistakes(), contextlib.closing(Screen()) as screen:
        x = landscape.grid(options.points, options.span)
        if not options.output:
            check_no_link(folder)
        same_problem(workdirs)
        all_ended(workdirs)
        opened = [reopen.open_run(workdir, screen.warn, options.data_dir) for workdir in workdirs]
        folder.mkdir(parents=True, exist_ok=True)  # before the long computation, not after it
        surfaces = _surfaces(workdirs, opened, x, options, screen)
        _write(folder, x, surfaces, run_names(workdirs))
        for workdir, name, surface in zip(workdirs, run_names(workdirs), surfaces, strict=True):
            _save(workdir, x, surface[None], [name])  # for `saddle report` of this run
        screen.line(f"written: landscape.npz, .png and .html, contours.png, sections.png in {folder}")


def _surfaces(
    workdirs: Sequence[pathlib.Path],
    opened: Sequence[tuple[Problem, int, Params]],
    x: np.ndarray,
    options: flags.FlagValues,
    screen: Screen,
) -> np.ndarray:
    """float64 [runs, n, n]; the directions of all runs come from one draw."""
    import jax

    group = policy.landscape_points()
    surfaces = []
    screen.start(len(workdirs) * len(x) ** 2, 0)
    for name, (problem, step, params) in zip(run_names(workdirs), opened, strict=True):
        model = reopen.choose(params, None)
        plane = landscape.directions(options.directions, model, jax.random.key(options.seed))
        chunks = sharpness.training_chunks(problem, options.images)
        count = sum(int(batch["mask"].sum()) for _, batch in chunks)
        screen.line(f"{name}: step {step:,}, {count:,} of its training images, not augmented")
        found = landscape.surface(
            sharpness.loss_of(problem, "fast"),
            model,
            plane,
            x,
            x,
            chunks,
            group=group,
            progress=screen.advance,
        )
        middle = len(x) // 2
        screen.line(f"{name}: loss {found[middle, middle]:.4f}, up to {np.nanmax(found):.4f} around it")
        surfaces.append(found)
    screen.stop()
    return np.stack(surfaces)


def _save(folder: pathlib.Path, x: np.ndarray, surfaces: np.ndarray, names: Sequence[str]) -> None:
    with in_one_go(folder / "landscape.npz") as partial:
        np.savez(partial, x=x, y=x, loss=surfaces, names=np.array(names))


def _write(folder: pathlib.Path, x: np.ndarray, surfaces: np.ndarray, names: Sequence[str]) -> None:
    """All files, each in one go."""
    _save(folder, x, surfaces, names)
    plots = {"landscape.png": plot_surfaces, "contours.png": plot_contours, "sections.png": plot_sections}
    for name, plot in {**plots, "landscape.html": write_page}.items():
        plot(x, x, surfaces, names, folder / name)
