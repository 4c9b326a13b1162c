"""saddle theory: the convergence theorem in numbers, on the test-bed, and on a run."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from saddle_jax.cli.opening import opening_options
from saddle_jax.cli.output import Output, output_options, width
from saddle_jax.cli.theory_measured import on_testbed, show_corollary
from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.papers.saddle.theory import bound, measured, texts
from saddle_jax.settings.config import Config, build_topology
from saddle_jax.training.progress import Screen

_CONSTANTS = {
    "L": (1.0, "Smoothness of every agent's loss."),
    "sigma": (1.0, "Sampling noise of a gradient."),
    "delta": (0.5, "Spread of the agents' gradients."),
    "rho": (0.01, "SAM's radius."),
    "beta": (0.0, "Momentum."),
    "mu": (None, "Moving average of the momentum (default: beta)."),
    "eta": (None, "Learning rate (default: the largest that theorem and proof allow)."),
    "gap": (1.0, "Loss at the start above the least loss, f(x0) - f*."),
}


def run(arguments: Sequence[str]) -> None:
    """Prints the bound for given constants, or how the theorem applies to a run."""
    options = _options()
    folders = parse(options, arguments, ["[DIR]"])
    of_constants = [*_CONSTANTS, "agents", "topology", "steps", "testbed", "corollary", "workdir"]
    for name in of_constants if folders else ["samples", "trial", "data_dir", "code"]:
        if options[name].present:
            raise UsageError(f"{name} must {'not be given with' if folders else 'be given with a run,'} DIR")
    if options.workdir and not (options.testbed or options.corollary):
        raise UsageError("workdir must be given with --testbed or --corollary, which draw pictures")
    for name in (*_CONSTANTS, "agents", "topology", "steps", "testbed") if options.corollary else ():
        if options[name].present:
            raise UsageError(f"{name} must not be given with --corollary, which has constants of its own")
    output = Output(options)
    if options.corollary:
        content = show_corollary(options.workdir, output)
    elif folders:
        content = _of_run(pathlib.Path(folders[0]), options, output.say)
    else:
        content = _of_constants(options, output.say)
    output.give(content)


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
    flags.DEFINE_integer("trial", None, "Which run of a folder with several.", flag_values=options)
    opening_options(options)
    output_options(options)
    return options


def _of_constants(options: flags.FlagValues, tell: Callable[[str], None]) -> dict[str, Any]:
    with mistakes():
        topology = build_topology(Config(topology=options.topology, agents=options.agents))
        constants: dict[str, Any] = {name: options[name].value for name in (*_CONSTANTS, "steps")}
        setting = bound.on_graph(topology, **constants)
        tell(texts.describe_setting(setting, f"Theorem 1 on {topology.name}", width()))
        content = texts.setting_record(setting)
        return content | (on_testbed(options.workdir, topology, setting, tell) if options.testbed else {})


def _of_run(workdir: pathlib.Path, options: flags.FlagValues, tell: Callable[[str], None]) -> dict[str, Any]:
    with mistakes():
        screen = Screen(quiet=options.json or options.quiet)
        given = (options.samples, options.data_dir, screen, options.code, options.trial)
        run = measured.measure_run(workdir, *given)
    tell(texts.describe_run(run, str(workdir), width()))
    return texts.run_record(run)
