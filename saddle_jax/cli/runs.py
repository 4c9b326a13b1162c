"""saddle list, export and downsample, and what they share with other verbs that open runs again."""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from saddle_jax.base.errors import printable
from saddle_jax.base.files import check_named_output, in_one_go
from saddle_jax.cli.opening import opening_options
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.runs.table import run_rows, runs_below


def show_list(arguments: Sequence[str]) -> None:
    """Prints every run below a folder, and its state."""
    options = flags.FlagValues()
    output_options(options)
    (name,) = parse(options, arguments, ["DIR"])
    output = Output(options)
    folder = pathlib.Path(name)
    if not folder.is_dir():
        raise UsageError(f"DIR must be a folder, got {name!r}")
    found = runs_below(folder)
    if found:
        output.table(run_rows(found), spare=("compressor", "seed", "method"))
    else:
        output.say(f"no runs below {folder}")
    for run in found:
        if run.reason and not output.is_json:
            warn(printable(f"{run.run} is unreadable: {run.reason}"))
    output.give([run._asdict() for run in found])


def export(arguments: Sequence[str]) -> None:
    """Writes a run's model as one file of named arrays."""
    from saddle_jax import models
    from saddle_jax.runs.checkpoints import FORMATS, encode
    from saddle_jax.training.reopen import choose, open_run

    options = model_options()
    flags.DEFINE_enum("format", FORMATS[0], FORMATS, "File format.", flag_values=options)
    meaning = "File to write (default: model.FORMAT in the run's folder)."
    flags.DEFINE_string("output", None, meaning, flag_values=options)
    (name,) = parse(options, arguments, ["DIR"])
    workdir = pathlib.Path(name)
    path = pathlib.Path(options.output or workdir / f"model.{options.format}")
    with mistakes():
        check_named_output(options.output)
        trial, step, params = open_run(workdir, warn, options.data_dir, options.trial, options.code)
        model, config = choose(params, options.agent), trial.config
        about = {"model": config.model, "dataset": config.dataset, "step": str(step)}
        content = encode(model, options.format, about)
        with in_one_go(path) as partial:
            partial.write_bytes(content)
    print(f"{path}: step {step:,}, {models.count(model):,} parameters")


def show_downsample(arguments: Sequence[str]) -> None:
    """Writes small open copies of runs that have ended, each in a folder of its name."""
    from saddle_jax.runs.downsample import downsample

    options = flags.FlagValues()
    flags.DEFINE_string("output", None, "Folder below which the copies are written.", flag_values=options)
    meaning = "Number of logged lines that become one, their mean."
    flags.DEFINE_integer("every", 10, meaning, lower_bound=1, flag_values=options)
    names = parse(options, arguments, ["DIR..."])
    if not options.output:
        raise UsageError("output must be given: --output=FOLDER, below which copies are written")
    for name in names:
        with mistakes():
            print(downsample(pathlib.Path(name), pathlib.Path(options.output), options.every))


def model_options() -> flags.FlagValues:
    """Defines the options that choose one model of a run."""
    options = flags.FlagValues()
    meaning = "Number of an agent, for its own model (default: the consensus model)."
    flags.DEFINE_integer("agent", None, meaning, flag_values=options)
    meaning = "Number of a run, in a folder that holds several."
    flags.DEFINE_integer("trial", None, meaning, flag_values=options)
    opening_options(options)
    return options


def warn(text: str) -> None:
    """Prints a line about what had to be passed over."""
    print(f"saddle: {text}", file=sys.stderr)
