"""Verbs that train: train, compare and settings; and running several trainings one after another."""

import dataclasses
import os
import pathlib
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping
from typing import Any

from absl import flags

from saddle_jax.base import checks, user_code
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import DIVERGED, MISTAKE, RunError
from saddle_jax.cli import process
from saddle_jax.cli.complete import names_of_setting
from saddle_jax.cli.verb import (
    PICTURE,
    Output,
    boolean,
    doing,
    integer,
    items,
    options_of,
    refuse,
    repeated,
    setting_fields,
    settings_of,
    text,
    verb,
)
from saddle_jax.training import signals

# bin/saddle replaces itself by Python, and passes its own name in this variable.
VARIABLE = "SADDLE_COMMAND"


@verb(
    "Train and compare",
    text("workdir", None, "Folder of the run (default: runs/NAME, named after the settings)."),
    boolean("profile", False, "Print what the loop costs around the steps, and write a trace."),
    boolean("plan", False, "Compile a step and tell whether the run fits the devices; train nothing."),
    text("target", "here", "Devices of --plan: here, a40x4, a100, h100x2, l4, or a TPU such as v5e:2x2."),
    PICTURE,
    text("coordinator", None, "HOST:PORT of process 0, in a run over several processes."),
    integer("processes", None, "Number of processes; 1 trains alone, even under SLURM or MPI."),
    integer("process", None, "Number of this process, from 0."),
    integer("join_timeout", 300, "Seconds to wait for the other processes.", 1),
    integer("heartbeat_timeout", 100, "Seconds of silence after which another process is dead.", 1),
    settings=True,
    example="train --method=qgm --learning_rate=0.1 --seeds=0,1,2",
)
def train(options: flags.FlagValues, out: Output) -> int:
    """Train one run, or several at once with --seeds and --sweep; --plan first checks whether it fits."""
    if options.plan:
        needless = ("workdir", "profile", "picture", "coordinator", "processes")
        refuse(options, needless, "not be given with --plan")
        return _plan(settings_of(options), options.target, out)
    refuse(options, ("target",), "be given with --plan: a run is trained on the devices that are here")
    from saddle_jax.settings.sweep import parse_axes

    varied = parse_axes(" ".join(options.sweep or []))
    config = settings_of(options, own={"sweep", *varied})  # errors are told before waiting for others

    from saddle_jax.devices import hosts

    timeouts = {"timeout": options.join_timeout, "heartbeat_timeout": options.heartbeat_timeout}
    hosts.join(options.coordinator, options.processes, options.process, **timeouts)
    return _train(config, options, out)  # after joining: it starts JAX's backends


def _train(config: Any, options: flags.FlagValues, out: Output) -> int:
    from saddle_jax.devices import hosts
    from saddle_jax.runs.run_name import run_name, sweep_name
    from saddle_jax.training.sweep import read_axes, runs_of_sweep

    out.is_silent |= not hosts.writes()
    if axes := read_axes(" ".join(options.sweep) if options["sweep"].present else config.sweep):
        config = dataclasses.replace(config, sweep="")
    folder = pathlib.Path(options.workdir or f"runs/{sweep_name(config, axes) if axes else run_name(config)}")
    fixed = options_of(options, axes)
    found = runs_of_sweep(config, axes, folder, fixed=fixed)
    if list(found.runs) != [folder]:
        return _sweep(found, folder, out, options.picture)
    config = found.runs[folder]
    workdir = folder if options.workdir or not axes else pathlib.Path(f"runs/{run_name(config)}")
    if not out.is_silent:
        _tell_unused_gpu()
    result = run_training(
        config, workdir, quiet=out.is_silent, profile=options.profile, picture=options.picture
    )
    if hosts.writes():
        out.give({"folder": str(workdir), **result})
    if result["status"] == "interrupted" and hosts.writes():
        signals.tell(f"interrupted; the same command goes on from step {result['steps']:,}")
    else:
        out.note(next_steps(workdir))
    return {"finished": 0, "diverged": DIVERGED, "interrupted": signals.STATUS}[result["status"]]


def _plan(config: Any, target: str, out: Output) -> int:
    """Prints what a run needs on some devices, present or not; returns 2 if it does not fit."""
    import jax

    from saddle_jax.planning import targets

    if targets.check(target) != targets.HERE:
        # Before JAX initialises its backends, which would look for the target's devices.
        jax.config.update("jax_platforms", "cpu")

    from saddle_jax.planning.forecast import forecast, forecast_lines, forecast_rows

    with doing(f"compiling a step for {target} ..."):
        found = forecast(config, targets.target_of(target))
    above, below = forecast_lines(found)
    out.say("\n".join([*above, ""]))
    out.table(forecast_rows(found))
    out.say("\n".join(["", *below]))
    out.give(found.to_json())
    return 0 if found.fits else MISTAKE


def _sweep(found: Any, folder: pathlib.Path, out: Output, picture: str) -> int:
    """Trains the missing runs of a sweep, resumes interrupted ones, and continues after failures."""
    from saddle_jax.devices import hosts
    from saddle_jax.report.best import sweep_rows
    from saddle_jax.report.figures import plot_curves
    from saddle_jax.report.tables import as_records, write_all

    if not found.runs:
        raise ArgumentError(found.refused[0])
    ended, status = _run_found(found.runs, found.notes, found.refused if hosts.writes() else (), out)
    if status == signals.STATUS or not hosts.writes():
        return status
    rows, measure, left_out = sweep_rows(ended)
    out.table(rows, f"\n{measure.key}, mean +- standard deviation over seeds ({measure.better} is better)")
    for line in left_out:
        out.note(f"left out: {line}")
    paths = [*write_all(rows, folder, "sweep"), folder / f"sweep.{picture}"]
    plot_curves(ended, paths[-1])
    out.note(f"written: {', '.join(path.name for path in paths)} in {folder}\n{next_steps(folder)}")
    out.give({"folder": str(folder), "metric": measure.key, "settings": as_records(rows)})
    return status or (MISTAKE if found.refused else 0)


@verb(
    "Train and compare",
    repeated(
        "compare",
        ["method=qgm,q_saddle"],
        "What is compared, SETTING=VALUE,VALUE,...: method=qgm,gut(mu=0.5), method.compressor=none,sign, "
        "faults.drop=0,0.1; differences are to the first value.",
    ),
    text("seeds", "0,1,2", "Seeds of each."),
    items("labels", [], "Names of the compared lines in pictures, in their order."),
    text("workdir", None, "Folder of the comparison."),
    boolean("single_program", True, "Train seeds and numbers in one program, where memory suffices."),
    PICTURE,
    settings=True,
    without=("sweep", "seed"),
    example="compare --compare method=qgm,q_saddle --workdir=runs/two",
)
@user_code.reading_once()  # all runs use the same version of user code
def compare(options: flags.FlagValues, out: Output) -> int:
    """Train all combinations of methods, compressors, graphs and so on, and print a table of results."""
    from saddle_jax.settings.sweep import parse_seeds
    from saddle_jax.training.sweep import over_seeds, read_axes, runs_of_sweep

    if not options.workdir:
        raise ArgumentError("workdir must be given: --workdir=DIR, one folder for all runs")
    axes, seeds = read_axes(" ".join(options.compare)), parse_seeds(options.seeds)
    if not axes or not seeds:
        raise ArgumentError(f"{'seeds' if axes else 'compare'} must list at least one, got nothing")
    for name in axes:
        if name in options and options[name].present:
            raise ArgumentError(f"{name} must not be given beside --compare {name}=..., which lists them")
    settings, single_program = settings_of(options, own={"seeds", *axes}), options.single_program
    fixed = options_of(options, axes)
    folder = pathlib.Path(options.workdir)
    found = runs_of_sweep(settings, axes, folder, fixed=fixed, single_program=single_program, below=True)
    if not found.runs:
        raise ArgumentError(found.refused[0])
    lines = sum(len(config.each()) for config in found.runs.values())
    if options.labels and len(options.labels) != lines:
        raise ArgumentError(f"labels must name each of {lines} lines, got {','.join(options.labels)}")
    found = over_seeds(found, seeds, single_program=single_program)
    ended, status = _run_found(found.runs, found.notes, found.refused, out)
    if status == signals.STATUS:
        return status
    if ended:
        _show_compared(ended, axes, [*fixed], options, out)
    return status or (MISTAKE if found.refused else 0)


def _show_compared(ended: Any, axes: Any, fixed: list[str], options: flags.FlagValues, out: Output) -> None:
    """Prints and writes the scores of a comparison, their intervals and differences, and draws the curves."""
    from saddle_jax.report.comparisons import cells_of, comparison, differences, intervals, numbers
    from saddle_jax.report.figures import plot_curves
    from saddle_jax.report.tables import as_records, write_all
    from saddle_jax.runs.table import headline_of, load_runs

    folder, runs = pathlib.Path(options.workdir), load_runs(ended)
    cells, headline = cells_of(runs, axes, fixed), headline_of(runs)
    alone, between = numbers(cells, axes, headline), differences(cells, axes)
    seeds = max((len(cell.scores) for cell in cells.values()), default=0)
    title = (
        f"test {headline.title} of the consensus model{headline.unit}, "
        f"mean +- standard deviation over seeds (n = {seeds})"
    )
    tables = [(comparison(cells, axes), "comparison", title)]
    if any(len(cell.scores) > 1 for cell in cells.values()):
        title = "the same with 95 % intervals of the mean (Student's t)"
        tables.append((intervals(cells, axes), "comparison-intervals", title))
    if len(between) > 1:
        title = "differences over the same seeds, with 95 % intervals (Student's t)"
        tables.append((between, "comparison-differences", title))
    paths: list[pathlib.Path] = []
    for rows, name, title in tables:
        out.table(rows, f"\n{textwrap.fill(title, 80)}", spare=("seeds",) if rows is between else ())
        paths += write_all(rows, folder, name, title, numbers=alone if name == "comparison" else None)
    paths.append(folder / f"comparison.{options.picture}")
    plot_curves(ended, paths[-1], lines=options.labels)
    out.note(f"written: {', '.join(path.name for path in paths)} in {folder}\n{next_steps(folder)}")
    texts = (*axes, "metric", "minus")
    tables_of = {"cells": as_records(alone, texts), "differences": as_records(between, texts)}
    out.give({"folder": str(folder), **tables_of})


@verb("Train and compare", "[NAME]", settings=True, example="settings topology")
def settings(options: flags.FlagValues, out: Output, name: str = "") -> None:
    """Show every setting with its value and meaning, or explain one."""
    found = settings_of(options).to_json()
    fields = {field.name: field for field in setting_fields()}
    if not name:
        rows = [[each, repr(found[each]), field.metadata["meaning"]] for each, field in fields.items()]
        out.table([["setting", "value", "meaning"], *rows])
        names = [*fields]
    else:
        checks.known("NAME", name, fields)
        field, known = fields[name], names_of_setting(name)
        kind = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        out.say(f"--{name}={found[name]}  ({kind[type(field.default)]}; default {field.default!r})\n")
        out.say(textwrap.fill(field.metadata["meaning"], 80))
        if known:
            out.say("\n" + textwrap.fill(f"names: {', '.join(known)}", 80))
        names = [name]
    meanings = {each: fields[each].metadata["meaning"] for each in names}
    out.give([{"setting": each, "value": found[each], "meaning": meanings[each]} for each in names])


def run_training(
    config: Any,
    workdir: pathlib.Path,
    *,
    quiet: bool,
    profile: bool = False,
    since: float | None = None,
    picture: str = "png",
    lines: bool = True,
) -> dict[str, Any]:
    """Trains a run in `workdir` and draws its curves.

    `since` is the starting time by time.perf_counter(); None stands for the start of the command. `picture`
    is the format of the curves. Without `lines` only a progress bar is shown.
    """
    process.require("matplotlib", "orbax.checkpoint", "tensorboardX", "tqdm")
    from saddle_jax.analysis import sharpness
    from saddle_jax.devices import hosts
    from saddle_jax.report.figures import plot_curves
    from saddle_jax.training import loop
    from saddle_jax.training.progress import Screen

    screen = Screen(quiet or not hosts.writes(), lines)
    with hosts.exit_together():
        began = process.began if since is None else since
        result = loop.train(config, workdir, screen, profile, began, sharpness.metrics)
        if hosts.writes():
            plot_curves([workdir], workdir / f"curves.{picture}")
    screen.line(f"picture: {workdir / f'curves.{picture}'}")
    return result


def run_several(
    runs: Mapping[pathlib.Path, Any], *, quiet: bool, lines: bool = True
) -> tuple[list[pathlib.Path], int]:
    """Trains runs one after another; returns the folders that could not be used, and the exit status.

    The status is 0, 2 if some could not be used, 3 if that is due to damaged files, 130 after an interrupt.
    Runs that diverge or fail do not stop the others. Without `lines` only progress bars are shown.
    """
    refused, status = [], 0
    if not quiet:
        _tell_unused_gpu()
    for number, (workdir, config) in enumerate(runs.items(), 1):
        if lines and not quiet:
            print(f"\n[{number} of {len(runs)}] {workdir.name}", flush=True)
        since = None if number == 1 else time.perf_counter()
        try:
            result = run_training(config, workdir, quiet=quiet, since=since, lines=lines)
        except BrokenPipeError:
            raise
        except (RunError, ArgumentError, OSError) as error:
            refused.append(workdir)
            status = max(status, process.tell(error))
            continue
        if result["status"] == "interrupted" or signals.is_heard():
            signals.tell("interrupted; the same command goes on from here")
            return refused, signals.STATUS
    return refused, status


def _run_found(runs: Any, notes: Any, impossible: Any, out: Output) -> tuple[list[pathlib.Path], int]:
    """Trains runs and prints failures; returns the runs that ended, and the exit status."""
    for note in notes:
        out.note(note)
    for line in impossible:
        print(f"saddle: {line}", file=sys.stderr)
    refused, status = run_several(runs, quiet=out.is_silent)
    return [workdir for workdir in runs if workdir not in refused], status


def _tell_unused_gpu() -> None:
    """Prints one line if the machine has a GPU that JAX does not use, with the remedy."""
    from saddle_jax.devices import machine, policy

    if policy.is_cpu() and not machine.hides_gpus() and machine.has_gpu():
        remedy = f"{machine.gpu_remedy()}; JAX_PLATFORMS=cpu if it is meant"
        print(f"saddle: JAX uses the CPU, and an NVIDIA GPU is here: {remedy}", file=sys.stderr)


def typed() -> str:
    """Returns the command as it was called, such as bin/saddle, so that printed commands work."""
    if named := os.environ.get(VARIABLE):
        return shlex.quote(named)
    program = pathlib.Path(sys.argv[0])
    if program.stem != "saddle":  # such as __main__.py, or another program
        return f"{shlex.quote(sys.executable)} -m saddle_jax.cli"
    found = shutil.which(program.name)
    is_found = found is not None and os.path.realpath(found) == os.path.realpath(program)
    return shlex.quote(program.name if is_found else str(program))


def next_steps(folder: pathlib.Path) -> str:
    """Returns the commands that show the runs, as a page or live."""
    lines = [f"{typed()} {verb} {shlex.quote(str(folder))}" for verb in ("report", "serve")]
    return "next: " + "\n  or: ".join(lines)
