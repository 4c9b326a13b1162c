"""Verbs that measure the loss around models: sharpness and landscape."""

import contextlib
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.files import check_no_link
from saddle_jax.cli.verb import (
    OPENING,
    PICTURE,
    Output,
    boolean,
    choice,
    integer,
    items,
    number,
    picture_file,
    picture_option,
    text,
    verb,
)


@verb(
    "Look at runs",
    "DIR...",
    items("epochs", ["all"], "Epochs whose checkpoints are measured, or all that have one."),
    integer("images", 1024, "Training images to measure on.", 1),
    items("agents", ["none"], "Agents whose own models are measured too: none, all, or numbers such as 0,3."),
    choice("data", "train", ("train", "own"), "Measure agents' models on all the data, or on their own."),
    integer("iterations", 30, "Iterations of Lanczos, for each probe.", 2),
    integer("probes", 1, "Number of random start vectors.", 1),
    boolean("density", False, "Measure and draw the spectral density too."),
    integer("trial", None, "Number of one run, in folders that hold several (default: all of them)."),
    picture_option("Picture of several runs", "sharpness.png beside the first DIR"),
    *OPENING,
)
def sharpness(options: flags.FlagValues, out: Output, *names: str) -> None:
    """Measure the largest eigenvalue of the Hessian at a run's checkpoints."""
    from saddle_jax.analysis.sharpness import Measurement
    from saddle_jax.report.sharpness import draw, seed_rows, stage_rows
    from saddle_jax.training.progress import Screen

    workdirs = [pathlib.Path(name) for name in names]
    path = None if options.output is None else picture_file(options.output, "")
    how = Measurement(options.data, options.images, options.iterations, options.probes, options.density)
    with contextlib.closing(Screen(out.is_silent)) as screen:
        opening = (options.trial, options.data_dir, options.code)
        stages = measure(workdirs, how, screen, *opening, epochs=options.epochs, agents=options.agents)
        out.table(stage_rows(stages), spare=("+-", "trace", "lambda_min", "residual"))
        if len(over_seeds := seed_rows(stages)) > 1:
            out.table(over_seeds, "\nover seeds, with 95 % intervals (Student's t)")
        for drawn in draw(stages, workdirs[0], path, options.density):
            out.note(f"picture: {drawn}")
    out.give([{"run": r.name, "setting": r.setting, "stages": found} for r, found in stages.items()])


def measure(
    workdirs: Sequence[pathlib.Path],
    how: Any,
    screen: Any,
    trial: int | None = None,
    data_dir: str | None = None,
    code: Sequence[str] = (),
    *,
    epochs: Sequence[str] = ("all",),
    agents: Sequence[str] = ("none",),
) -> dict[Any, list[dict[str, Any]]]:
    """Measures the sharpness of runs where it is missing; returns the measurements of each run."""
    from saddle_jax.analysis.sharpness import measure_missing, measured_stages, open_runs, targets_of
    from saddle_jax.runs.run_folder import same_problem
    from saddle_jax.runs.table import load_runs, run_names

    same_problem(workdirs)
    opened = open_runs(workdirs, trial, data_dir, code)
    targets = targets_of(opened, list(epochs), list(agents))
    measure_missing(opened, targets, how, screen)
    runs = {run.file("sharpness.json"): run for run in load_runs(workdirs, run_names(workdirs))}
    measured = zip(opened, measured_stages(opened, targets), strict=True)
    return {runs[one.file]: stages for one, stages in measured}


@verb(
    "Look at runs",
    "DIR...",
    choice(
        "directions",
        "filter",
        ("filter", "orthogonal"),
        "How directions are normalised.",
    ),
    integer("points", 21, "Points along each direction, an odd number."),
    number("span", 1.0, "How far each way, in lengths of the directions."),
    integer("images", 1024, "Training images to compute the loss on.", 1),
    integer("seed", 0, "Seed of the directions.", 0, 2**32 - 1),
    integer("trial", None, "Number of the run, in folders that hold several."),
    text("output", None, "Folder to write to (default: landscape, beside the first DIR)."),
    PICTURE,
    *OPENING,
)
def landscape(options: flags.FlagValues, out: Output, *names: str) -> None:
    """Draw the loss around the models of runs, as pictures and a page to turn."""
    from saddle_jax.analysis.landscape import Scan, grid, trial_in
    from saddle_jax.training.progress import Screen

    workdirs = [pathlib.Path(name) for name in names]
    folder = pathlib.Path(options.output or workdirs[0].resolve().parent / "landscape")
    with contextlib.closing(Screen(out.is_silent)) as screen:
        x = grid(options.points, options.span)
        if not options.output:
            check_no_link(folder)
        if options.trial is not None and not any(trial_in(w, 0) == 0 for w in workdirs):
            raise ArgumentError("trial must be given for a folder that holds several runs, and none does")
        scan = Scan(options.directions, options.seed, options.images)
        opening = (options.data_dir, options.code)
        files = draw_landscape(workdirs, folder, x, scan, screen, options.trial, *opening, options.picture)
    out.note(f"written: {', '.join(path.name for path in files)} in {folder}")
    out.give({"folder": str(folder), "files": [str(path) for path in files]})


def draw_landscape(
    workdirs: Sequence[pathlib.Path],
    folder: pathlib.Path,
    x: Any,
    scan: Any,
    screen: Any,
    trial: int | None = None,
    data_dir: str | None = None,
    code: Sequence[str] = (),
    picture: str = "png",
) -> list[pathlib.Path]:
    """Computes the losses of runs at coordinates x along two directions; returns the files written."""
    from saddle_jax.analysis.landscape import open_runs, surfaces, trial_in
    from saddle_jax.report.landscape import save_numbers, write_all
    from saddle_jax.runs.run_folder import all_ended, same_problem
    from saddle_jax.runs.table import run_names

    names = run_names(workdirs)
    same_problem(workdirs)
    all_ended(workdirs)
    runs = open_runs(workdirs, data_dir, screen, code, trial)
    folder.mkdir(parents=True, exist_ok=True)  # fails before the long computation, not after it
    losses = surfaces(names, runs, x, scan, screen)
    files = write_all(x, losses, names, folder, picture)
    for workdir, name, loss in zip(workdirs, names, losses, strict=True):
        # For `saddle report` of this run.
        save_numbers(x, loss[None], [name], workdir, trial_in(workdir, trial))
    return files
