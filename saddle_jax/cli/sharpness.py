"""saddle sharpness: the Hessian's largest eigenvalue at the checkpoints of one run, or of several."""

import contextlib
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from saddle_jax.analysis import sharpness as curvature
from saddle_jax.analysis.hessian import ITERATIONS
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.files import check_named_output
from saddle_jax.cli.usage import UsageError, data_dir_option, mistakes, parse
from saddle_jax.report.sharpness import plot_bars, plot_densities
from saddle_jax.report.tables import as_text, run_names
from saddle_jax.training import reopen
from saddle_jax.training.build import Problem
from saddle_jax.training.progress import Screen
from saddle_jax.training.run_folder import same_problem


def run(arguments: Sequence[str]) -> None:
    """Measures what is missing, prints a table, and draws it for several runs."""
    options = flags.FlagValues()
    flags.DEFINE_list("epochs", ["all"], "Stages: epochs with a checkpoint, or all.", flag_values=options)
    flags.DEFINE_integer("images", 1024, "Training images to measure on.", 1, flag_values=options)
    flags.DEFINE_list("agents", ["none"], "Agents' own models too: none, all, or 0,3.", flag_values=options)
    flags.DEFINE_enum(
        "data", "train", curvature.DATA, "Agents on all training data, or on their own.", flag_values=options
    )
    flags.DEFINE_integer("iterations", ITERATIONS, "Of Lanczos, for each probe.", 2, flag_values=options)
    flags.DEFINE_integer("probes", 1, "Random start vectors.", 1, flag_values=options)
    flags.DEFINE_bool("density", False, "The spectral density too.", flag_values=options)
    flags.DEFINE_string(
        "output", None, "Picture of several runs; sharpness.png beside the first else.", flag_values=options
    )
    data_dir_option(options)
    workdirs = [pathlib.Path(name) for name in parse(options, arguments, ["DIR..."])]
    if options.output and pathlib.Path(options.output).suffix != ".png":
        raise UsageError(f"output must end in .png, got {options.output!r}")
    with mistakes(), contextlib.closing(Screen()) as screen:
        check_named_output(options.output)
        same_problem(workdirs)
        runs = {workdir: reopen.build_again(workdir, options.data_dir) for workdir in workdirs}
        wanted = {
            (workdir, step): whose
            for workdir, problem in runs.items()
            for whose in [_whose(options.agents, problem.config.agents)]
            for step in _steps(options.epochs, workdir, problem)
        }
        _measure_missing(runs, wanted, options, screen)
        entries = {
            workdir: [
                entry
                for entry in curvature.read_stages(workdir)
                if entry["whose"] in wanted.get((workdir, entry["step"]), ())
            ]
            for workdir in workdirs
        }
        screen.line(as_text(_table(entries)))
        _draw(entries, options, screen)


def _steps(epochs: Sequence[str], workdir: pathlib.Path, problem: Problem) -> list[int]:
    """The steps of the checkpoints at these epochs."""
    stages = reopen.stages(workdir, problem)
    if epochs == ["all"]:
        return list(stages)
    steps = []
    for text in epochs:
        try:
            step = round(float(text) * problem.batches.steps_per_epoch)
        except (ValueError, OverflowError) as error:
            raise ArgumentError(f"epochs must be all or numbers, got {','.join(epochs)}") from error
        if step not in stages:
            there = ", ".join(f"{epoch:.6g}" for epoch in stages.values())
            raise ArgumentError(
                f"epochs must be among those with a checkpoint in {workdir}, {there}, got {text}"
            )
        steps.append(step)
    if not steps:
        raise ArgumentError("epochs must be all or numbers, got nothing")
    return steps


def _whose(agents: Sequence[str], count: int) -> list[str | int]:
    """The consensus model, and which agents'."""
    if agents in (["none"], ["all"]):
        return ["consensus", *(range(count) if agents == ["all"] else ())]
    if not agents or not all(agent.isdecimal() and int(agent) < count for agent in agents):
        raise ArgumentError(f"agents must be none, all, or of 0 to {count - 1}, got {','.join(agents)}")
    return ["consensus", *dict.fromkeys(map(int, agents))]


def _measure_missing(
    runs: dict[pathlib.Path, Problem],
    wanted: dict[tuple[pathlib.Path, int], list[str | int]],
    options: flags.FlagValues,
    screen: Screen,
) -> None:
    """Adds to every run's sharpness.json what is asked for and not there yet, stage by stage."""
    settings, known = {}, {}
    for workdir, problem in runs.items():
        held = int(problem.partition.sizes.sum())
        settings[workdir] = {
            "data": options.data,
            "images": min(options.images, held),
            "iterations": options.iterations,
            "probes": options.probes,
        }
        known[workdir] = curvature.read_stages(workdir, settings[workdir])
        if not known[workdir] and curvature.read_stages(workdir):
            screen.line(f"{workdir / curvature.FILE} was measured with other settings: it is replaced")

    def is_known(workdir: pathlib.Path, step: int, whose: str | int) -> bool:
        return any(
            (entry["step"], entry["whose"]) == (step, whose) and (entry["density"] or not options.density)
            for entry in known[workdir]
        )

    missing = [
        (workdir, step, whose)
        for (workdir, step), everyone in wanted.items()
        for whose in everyone
        if not is_known(workdir, step, whose)
    ]
    if not missing:
        return
    for workdir, chosen in settings.items():
        source = "each agent's own data" if options.data == "own" else "the agents' training data together"
        screen.line(f"{workdir}: {chosen['images']:,} images of {source}, not augmented")
    screen.start(len(missing) * options.iterations * options.probes, 0)
    opened: tuple[Any, Any] = (None, None)
    for number, (workdir, step, whose) in enumerate(missing, 1):
        problem = runs[workdir]
        if opened[0] != (workdir, step):
            opened = (workdir, step), reopen.open_stage(workdir, problem, step)
        agent = None if whose == "consensus" else int(whose)
        found = curvature.measure(
            problem,
            reopen.choose(opened[1], agent),
            options.images,
            agent if options.data == "own" else None,
            iterations=options.iterations,
            probes=options.probes,
            progress=lambda: screen.advance(1),
        )
        epoch = step / problem.batches.steps_per_epoch
        others = [e for e in known[workdir] if (e["step"], e["whose"]) != (step, whose)]
        known[workdir] = [*others, curvature.stage(step, epoch, whose, found, options.density)]
        curvature.write_stages(workdir, settings[workdir], known[workdir])
        screen.line(
            f"[{number} of {len(missing)}] {workdir.name} epoch {epoch:g}, {_name(whose)}: "
            f"lambda_max {found.lambda_max:.4g}"
        )
    screen.stop()


def _name(whose: str | int) -> str:
    return "consensus" if whose == "consensus" else f"agent {whose}"


def _table(entries: dict[pathlib.Path, list[dict[str, Any]]]) -> list[list[str]]:
    def number(value: float | None) -> str:
        return "not finite" if value is None else f"{value:.4g}"

    rows = [["run", "epoch", "whose", "lambda_max", "residual", "lambda_min", "trace", "+-"]]
    for name, found in zip(run_names(list(entries)), entries.values(), strict=True):
        for entry in found:
            numbers = ("lambda_max", "residual", "lambda_min", "trace", "trace_error")
            texts = [number(entry[key]) for key in numbers]
            rows.append([name, f"{entry['epoch']:g}", _name(entry["whose"]), *texts])
    return rows


def _draw(
    entries: dict[pathlib.Path, list[dict[str, Any]]], options: flags.FlagValues, screen: Screen
) -> None:
    """Bars for several runs, or where a file was named; densities where they were asked for."""
    first = next(iter(entries))
    several = len(entries) > 1
    bars = pathlib.Path(options.output or first.resolve().parent / "sharpness.png")
    consensus = {
        name: [entry for entry in found if entry["whose"] == "consensus"]
        for name, found in zip(run_names(list(entries)), entries.values(), strict=True)
    }
    if several or options.output:
        plot_bars(consensus, bars)
        screen.line(f"picture: {bars}")
    if options.density:
        path = (bars.parent if several or options.output else first) / "density.png"
        plot_densities(consensus, path)
        screen.line(f"picture: {path}")
