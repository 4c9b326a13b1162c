"""saddle theory: the convergence theorem in numbers, on the test-bed, and on a run."""

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from saddle_jax.analysis.theory import bound, corollary, runs, speedup, summary, testbed
from saddle_jax.cli.usage import UsageError, mistakes, opening_options, parse
from saddle_jax.core.mixing import Graphs
from saddle_jax.report import theory
from saddle_jax.report.tables import as_text
from saddle_jax.training.config import Config, build_topology
from saddle_jax.training.progress import Screen

_CONSTANTS = {
    "L": (1.0, "Smoothness of every agent's loss."),
    "sigma": (1.0, "Sampling noise of a gradient."),
    "delta": (0.5, "Spread of the agents' gradients."),
    "rho": (0.01, "SAM's radius."),
    "beta": (0.0, "Momentum."),
    "mu": (None, "Moving average of the momentum (default: beta)."),
    "eta": (None, "Learning rate (default: the largest that theorem and proof allow)."),
    "gap": (1.0, "f(x0) - f*."),
}


def run(arguments: Sequence[str]) -> None:
    """Prints the bound for given constants, or how the theorem applies to a run."""
    options = _options()
    folders = parse(options, arguments, ["[DIR]"])
    of_constants = [*_CONSTANTS, "agents", "topology", "steps", "testbed", "corollary", "workdir"]
    for name in of_constants if folders else ["samples", "data_dir", "code"]:
        if options[name].present:
            raise UsageError(f"{name} must {'not be given with' if folders else 'be given with a run,'} DIR")
    if options.workdir and not (options.testbed or options.corollary):
        raise UsageError("workdir must be given with --testbed or --corollary, which draw pictures")
    for name in (*_CONSTANTS, "agents", "topology", "steps", "testbed") if options.corollary else ():
        if options[name].present:
            raise UsageError(f"{name} must not be given with --corollary, which has constants of its own")
    tell = (lambda text: None) if options.json else lambda text: print(text, flush=True)
    if options.corollary:
        content = _corollary(_made(options.workdir), tell)
    else:
        content = (
            _of_run(pathlib.Path(folders[0]), options, tell) if folders else _of_constants(options, tell)
        )
    if options.json:
        print(json.dumps(summary.finite(content), indent=1, allow_nan=False))


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    for name, (default, meaning) in _CONSTANTS.items():
        flags.DEFINE_float(name, default, meaning, flag_values=options)
    flags.DEFINE_integer("agents", 8, "Number of agents, n.", flag_values=options)
    flags.DEFINE_string("topology", "ring", "The graph.", flag_values=options)
    flags.DEFINE_integer("steps", 2000, "Number of steps, T.", flag_values=options)
    meaning = "Run Q-SADDLe on quadratics: the error, and how it falls with n."
    flags.DEFINE_bool("testbed", False, meaning, flag_values=options)
    meaning = "Run it on several graphs, with momentum, over n and T: the corollary's slopes (minutes)."
    flags.DEFINE_bool("corollary", False, meaning, flag_values=options)
    meaning = "Folder in which --testbed writes theory.png, and --corollary corollary.png."
    flags.DEFINE_string("workdir", None, meaning, flag_values=options)
    meaning = "Samples per agent to measure a run with; 0: all of them."
    flags.DEFINE_integer("samples", 256, meaning, flag_values=options)
    opening_options(options)
    flags.DEFINE_bool("json", False, "Print one JSON object.", flag_values=options)
    return options


def _of_constants(options: flags.FlagValues, tell: Callable[[str], None]) -> dict[str, Any]:
    with mistakes():
        topology = build_topology(Config(topology=options.topology, agents=options.agents))
        constants: dict[str, Any] = {name: options[name].value for name in (*_CONSTANTS, "steps")}
        setting = bound.on_graph(topology, **constants)
        tell(theory.describe_setting(setting, f"Theorem 1 on {topology.name}"))
        content = summary.of_setting(setting)
        return content | (_on_testbed(options.workdir, topology, setting, tell) if options.testbed else {})


def _on_testbed(
    workdir: str | None, topology: Graphs, setting: bound.Setting, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Runs the real method on the test-bed: at this setting, and over n for the slope."""
    folder = _made(workdir)
    measured = testbed.measure_setting(topology, setting)
    tell(theory.describe_measured(measured, setting))
    points = speedup.sweep(report=lambda point: tell(theory.describe_point(point)))
    slope = speedup.fit_slope(points)
    tell(theory.describe_slope(slope))
    if folder:
        theory.plot_speedup(points, slope, folder / "theory.png")
        tell(f"picture: {folder / 'theory.png'}")
    return summary.of_testbed(measured, points, slope)


def _made(workdir: str | None) -> pathlib.Path | None:
    """Makes the folder that an option names, if it names one."""
    folder = pathlib.Path(workdir) if workdir else None
    if folder:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"workdir must be a folder that can be written to, got {folder}") from error
    return folder


def _corollary(folder: pathlib.Path | None, tell: Callable[[str], None]) -> dict[str, Any]:
    """Measures the corollary's slopes by graph and momentum, and draws them."""
    tell("Q-SADDLe on quadratics under the corollary's schedule: its slopes in log(T) and log(n) are -1/2")
    with mistakes():
        cases = corollary.measure_cases(
            report=lambda case: tell(f"measured: {case.graph}, beta {case.beta:g}")
        )
        tell(f"\n{as_text(theory.case_rows(cases))}")
        if folder:
            theory.plot_cases(cases, folder / "corollary.png")
            tell(f"picture: {folder / 'corollary.png'}")
    return summary.of_corollary(cases)


def _of_run(workdir: pathlib.Path, options: flags.FlagValues, tell: Callable[[str], None]) -> dict[str, Any]:
    with mistakes():
        run = runs.measure_run(
            workdir, options.samples, options.data_dir, Screen(quiet=options.json), options.code
        )
    tell(theory.describe_run(run, str(workdir)))
    return summary.of_run(run)
