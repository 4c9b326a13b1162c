"""saddle sharpness: the Hessian's largest eigenvalue at the checkpoints of one run, or of several."""

import contextlib
import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.analysis.hessian import ITERATIONS
from saddle_jax.analysis.sharpness import DATA
from saddle_jax.analysis.sharpness_runs import Measurement, measure_missing, measured_stages, targets_of
from saddle_jax.base.files import check_named_output
from saddle_jax.cli.usage import UsageError, mistakes, opening_options, parse
from saddle_jax.report.sharpness import draw, stage_rows
from saddle_jax.report.tables import as_text, run_names
from saddle_jax.training.progress import Screen
from saddle_jax.training.reopen import build_again
from saddle_jax.training.run_folder import same_problem


def run(arguments: Sequence[str]) -> None:
    """Measures what is missing, prints a table, and draws it for several runs."""
    options = _options()
    workdirs = [pathlib.Path(name) for name in parse(options, arguments, ["DIR..."])]
    if options.output and pathlib.Path(options.output).suffix != ".png":
        raise UsageError(f"output must end in .png, got {options.output!r}")
    how = Measurement(options.data, options.images, options.iterations, options.probes, options.density)
    with mistakes(), contextlib.closing(Screen()) as screen:
        check_named_output(options.output)
        same_problem(workdirs)
        runs = {workdir: build_again(workdir, options.data_dir, options.code) for workdir in workdirs}
        targets = targets_of(runs, options.epochs, options.agents)
        measure_missing(runs, targets, how, screen)
        stages = measured_stages(list(runs), targets)
        named = dict(zip(run_names(list(stages)), stages.values(), strict=True))
        screen.line(as_text(stage_rows(named)))
        for path in draw(named, workdirs[0], options.output, options.density):
            screen.line(f"picture: {path}")


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    flags.DEFINE_list("epochs", ["all"], "Stages: epochs with a checkpoint, or all.", flag_values=options)
    flags.DEFINE_integer("images", 1024, "Training images to measure on.", 1, flag_values=options)
    meaning = "Agents whose own models are measured too: none, all, or numbers such as 0,3."
    flags.DEFINE_list("agents", ["none"], meaning, flag_values=options)
    meaning = "Measure agents' models on all training data, or on their own."
    flags.DEFINE_enum("data", "train", DATA, meaning, flag_values=options)
    meaning = "Iterations of Lanczos, for each probe."
    flags.DEFINE_integer("iterations", ITERATIONS, meaning, 2, flag_values=options)
    flags.DEFINE_integer("probes", 1, "Number of random start vectors.", 1, flag_values=options)
    flags.DEFINE_bool("density", False, "Measure and draw the spectral density too.", flag_values=options)
    meaning = "Picture of several runs (default: sharpness.png beside the first)."
    flags.DEFINE_string("output", None, meaning, flag_values=options)
    opening_options(options)
    return options
