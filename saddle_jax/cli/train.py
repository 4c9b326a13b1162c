"""saddle train: trains one run, or several in one program."""

import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from saddle_jax.cli.command import next_steps
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.pictures import picture_option
from saddle_jax.cli.processes import join, process_options
from saddle_jax.cli.settings import config_options, read_for_many
from saddle_jax.cli.statuses import DIVERGED
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.runs.run_name import run_name, sweep_name
from saddle_jax.settings.config import Config
from saddle_jax.training import signals


def run(arguments: Sequence[str]) -> int:
    """Trains a run; the exit status is 0 when finished, 1 when diverged, 130 when interrupted.

    A sweep over what one program cannot vary is several runs: 2 if some of them cannot be.
    """
    options = _options()
    parse(options, arguments)
    if options.sweep and options["config.sweep"].present:
        raise UsageError("sweep must be given once: as --sweep or as --config.sweep")
    settings = read_for_many(options)
    settings["sweep"] = " ".join(options.sweep) or settings["sweep"]
    if not settings["sweep"]:
        with mistakes():
            Config(**settings)  # a mistake is told before other processes are waited for

    join(options)
    return _run(settings, options)  # not before the processes have joined: it starts JAX's backends


def _run(settings: dict[str, Any], options: flags.FlagValues) -> int:
    from saddle_jax.cli.running import run_training, tell_unused_gpu
    from saddle_jax.cli.sweep import run_sweep
    from saddle_jax.devices import hosts
    from saddle_jax.training.sweep import runs_of_sweep

    output = Output(options)
    output.is_silent |= not hosts.writes()
    folder = pathlib.Path(options.workdir or f"runs/{sweep_name(settings)}")
    with mistakes():
        found = runs_of_sweep(settings, folder)
    if list(found.runs) != [folder]:
        return run_sweep(found, folder, output, options.picture)
    if not output.is_silent:
        tell_unused_gpu()
    config = found.runs[folder]
    workdir = pathlib.Path(options.workdir or f"runs/{run_name(config)}")
    result = run_training(
        config, workdir, quiet=output.is_silent, profile=options.profile, picture=options.picture
    )
    if hosts.writes():
        output.give({"folder": str(workdir), **result})
    if result["status"] == "interrupted" and hosts.writes():
        signals.tell(f"interrupted; the same command goes on from step {result['steps']:,}")
    else:
        output.note(next_steps(workdir))
    return {"finished": 0, "diverged": DIVERGED, "interrupted": signals.STATUS}[result["status"]]


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    config_options(options)
    meaning = "Folder of the run (default: runs/NAME, named after the settings)."
    flags.DEFINE_string("workdir", None, meaning, flag_values=options)
    meaning = "Print what the loop costs around the steps, and write a trace."
    flags.DEFINE_bool("profile", False, meaning, flag_values=options)
    meaning = (
        "Values to try of a setting, or of an option of the method or estimator, as SETTING:VALUE,VALUE; "
        "repeat the option to combine several settings."
    )
    flags.DEFINE_multi_string("sweep", [], meaning, flag_values=options)
    picture_option(options)
    output_options(options)
    process_options(options)
    return options
