"""saddle sharpness: the Hessian's largest eigenvalue at the checkpoints of one run, or of several."""

import contextlib
import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.analysis.hessian import ITERATIONS
from saddle_jax.analysis.sharpness import (
    DATA,
    Measurement,
    measure_missing,
    measured_stages,
    open_runs,
    targets_of,
)
from saddle_jax.cli.opening import opening_options
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.pictures import checked, output_option
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.report.sharpness import Sharp, draw, seed_rows, sharp_runs, stage_rows
from saddle_jax.runs.run_folder import same_problem
from saddle_jax.training.progress import Screen


def run(arguments: Sequence[str]) -> None:
    """Measures what is missing, prints a table, and draws it for several runs."""
    options = _options()
    workdirs = [pathlib.Path(name) for name in parse(options, arguments, ["DIR..."])]
    path = None if options.output is None else checked(options.output, "")
    how = Measurement(options.data, options.images, options.iterations, options.probes, options.density)
    output = Output(options)
    with mistakes(), contextlib.closing(Screen(output.is_silent)) as screen:
        opening = (options.trial, options.data_dir, options.code)
        found = measure(workdirs, how, screen, *opening, epochs=options.epochs, agents=options.agents)
        output.table(stage_rows(found), spare=("+-", "trace", "lambda_min", "residual"))
        if len(over_seeds := seed_rows(found)) > 1:
            output.table(over_seeds, "\nover seeds, with 95 % intervals (Student's t)")
        for drawn in draw(found, workdirs[0], path, options.density):
            output.note(f"picture: {drawn}")
    output.give([{"run": one.name, "setting": one.setting, "stages": one.stages} for one in found])


def measure(
    workdirs: Sequence[pathlib.Path],
    how: Measurement,
    screen: Screen,
    trial: int | None = None,
    data_dir: str | None = None,
    code: Sequence[str] = (),
    *,
    epochs: Sequence[str] = ("all",),
    agents: Sequence[str] = ("none",),
) -> list[Sharp]:
    """Measures what is missing of runs, and returns what is known of each."""
    same_problem(workdirs)
    runs = open_runs(workdirs, trial, data_dir, code)
    targets = targets_of(runs, list(epochs), list(agents))
    measure_missing(runs, targets, how, screen)
    return sharp_runs(runs, measured_stages(runs, targets))


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    meaning = "Epochs whose checkpoints are measured, or all that have one."
    flags.DEFINE_list("epochs", ["all"], meaning, flag_values=options)
    flags.DEFINE_integer("images", 1024, "Training images to measure on.", 1, flag_values=options)
    meaning = "Agents whose own models are measured too: none, all, or numbers such as 0,3."
    flags.DEFINE_list("agents", ["none"], meaning, flag_values=options)
    meaning = "Measure agents' models on all training data, or on their own."
    flags.DEFINE_enum("data", "train", DATA, meaning, flag_values=options)
    meaning = "Iterations of Lanczos, for each probe."
    flags.DEFINE_integer("iterations", ITERATIONS, meaning, 2, flag_values=options)
    flags.DEFINE_integer("probes", 1, "Number of random start vectors.", 1, flag_values=options)
    flags.DEFINE_bool("density", False, "Measure and draw the spectral density too.", flag_values=options)
    meaning = "Number of one run, in folders that hold several (default: all of them)."
    flags.DEFINE_integer("trial", None, meaning, flag_values=options)
    output_option(options, "Picture of several runs", "sharpness.png beside the first DIR")
    output_options(options)
    opening_options(options)
    return options
