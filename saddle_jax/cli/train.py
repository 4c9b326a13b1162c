"""saddle train: trains one run, or several in one program."""

import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from saddle_jax.cli.settings import config_options, read_for_many
from saddle_jax.cli.statuses import DIVERGED
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.training import interruption
from saddle_jax.training.config import Config
from saddle_jax.training.run_name import run_name, sweep_name


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

    from saddle_jax.devices import joining

    with mistakes():
        joining.join(
            options.coordinator,
            options.processes,
            options.process,
            timeout=options.join_timeout,
            heartbeat_timeout=options.heartbeat_timeout,
        )
    return _run(settings, options)  # not before the processes have joined: it starts JAX's backends


def _run(settings: dict[str, Any], options: flags.FlagValues) -> int:
    from saddle_jax.cli.running import run_training, tell_unused_gpu
    from saddle_jax.cli.sweep import run_sweep
    from saddle_jax.devices import hosts
    from saddle_jax.training.sweeping import runs_of

    quiet = options.quiet or not hosts.writes()
    folder = pathlib.Path(options.workdir or f"runs/{sweep_name(settings)}")
    with mistakes():
        found = runs_of(settings, folder)
    if list(found.runs) != [folder]:
        return run_sweep(found, folder, quiet=quiet)
    if not quiet:
        tell_unused_gpu()
    config = found.runs[folder]
    workdir = pathlib.Path(options.workdir or f"runs/{run_name(config)}")
    result = run_training(config, workdir, quiet=options.quiet, profile=options.profile)
    if result["status"] == "interrupted" and hosts.writes():
        interruption.tell(f"interrupted; the same command goes on from step {result['steps']:,}")
    return {"finished": 0, "diverged": DIVERGED, "interrupted": interruption.STATUS}[result["status"]]


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    config_options(options)
    meaning = "Folder of the run (default: runs/NAME, named after the settings)."
    flags.DEFINE_string("workdir", None, meaning, flag_values=options)
    flags.DEFINE_bool("quiet", False, "Print nothing but mistakes.", flag_values=options)
    meaning = "Print what the loop costs around the steps, and write a trace."
    flags.DEFINE_bool("profile", False, meaning, flag_values=options)
    meaning = (
        "SETTING:VALUE,VALUE,...: one run per value of a setting, or of an option of the method or ascent; "
        "numbers that one program can vary are one program, the others have folders; repeat to combine."
    )
    flags.DEFINE_multi_string("sweep", [], meaning, flag_values=options)
    _host_options(options)
    return options


def _host_options(options: flags.FlagValues) -> None:
    """Defines how several processes find each other where no cluster manager says so."""
    meaning = "HOST:PORT of process 0, in a run over several processes."
    flags.DEFINE_string("coordinator", None, meaning, flag_values=options)
    meaning = "Number of processes; 1 trains alone, even under SLURM or MPI."
    flags.DEFINE_integer("processes", None, meaning, flag_values=options)
    flags.DEFINE_integer("process", None, "Number of this process, from 0.", flag_values=options)
    meaning = "Seconds to wait for the other processes."
    flags.DEFINE_integer("join_timeout", 300, meaning, lower_bound=1, flag_values=options)
    meaning = "Seconds without a sign of life after which another process counts as dead."
    flags.DEFINE_integer("heartbeat_timeout", 100, meaning, lower_bound=1, flag_values=options)
