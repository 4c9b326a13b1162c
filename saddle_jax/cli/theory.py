"""saddle theory: the convergence theorem in numbers, on the test-bed, and on a run."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from saddle_jax.analysis.theory.bound import Setting, bound, conditions, largest_eta, mixing_lambda
from saddle_jax.cli.usage import UsageError, data_dir_option, mistakes, parse
from saddle_jax.core.topology import Topology
from saddle_jax.report.tables import as_text
from saddle_jax.training.config import Config, build_topology

_PRINTED = {
    "gap": "4 (f(x0) - f*) / (eta~ T)",
    "noise_mean": "6 eta~ L / n  sigma^2",
    "noise_momentum": "18 eta~^2 L^2 C2  sigma^2",
    "noise_consensus": "768 eta~^2 L^2 C1 / lambda^2  sigma^2",
    "heterogeneity": "832 L^2 eta~^2 (1 - beta)^2 / lambda^2  delta^2",
    "perturbation_bias": "8 L^2  rho^2",
    "perturbation_mean": "12 eta~ L^3 / n  rho^2",
    "perturbation_momentum": "36 eta~^2 L^4 C2  rho^2",
    "perturbation_consensus": "3136 L^4 eta~^2 C1 / lambda^2  rho^2",
}
_OF_THE_BOUND = {
    "L": (1.0, "Smoothness of every agent's loss."),
    "sigma": (1.0, "Sampling noise of a gradient."),
    "delta": (0.5, "Spread of the agents' gradients."),
    "rho": (0.01, "SAM's radius."),
    "beta": (0.0, "Momentum."),
    "mu": (None, "Moving average of the momentum; beta else."),
    "eta": (None, "Learning rate; the largest that theorem and proof allow else."),
    "gap": (1.0, "f(x0) - f*."),
}


def run(arguments: Sequence[str]) -> None:
    """Prints the bound for given constants, or what a run keeps of the theorem."""
    options = flags.FlagValues()
    for name, (default, meaning) in _OF_THE_BOUND.items():
        flags.DEFINE_float(name, default, meaning, flag_values=options)
    flags.DEFINE_integer("agents", 8, "Number of agents, n.", flag_values=options)
    flags.DEFINE_string("topology", "ring", "The graph.", flag_values=options)
    flags.DEFINE_integer("steps", 2000, "T.", flag_values=options)
    flags.DEFINE_bool(
        "testbed",
        False,
        "Run Q-SADDLe on quadratics: the error, and how it falls with n.",
        flag_values=options,
    )
    flags.DEFINE_string("workdir", None, "Where --testbed writes theory.png.", flag_values=options)
    flags.DEFINE_integer("samples", 256, "Of DIR: samples per agent; 0: all.", flag_values=options)
    data_dir_option(options)
    flags.DEFINE_bool("json", False, "As one JSON object.", flag_values=options)
    found = parse(options, arguments, ["[DIR]"])
    of_dir, of_bound = (
        ("samples", "data_dir"),
        (*_OF_THE_BOUND, "agents", "topology", "steps", "testbed", "workdir"),
    )
    for name in of_bound if found else of_dir:
        if options[name].present:
            raise UsageError(f"{name} must {'not be given with' if found else 'be given with a run,'} DIR")
    if options.workdir and not options.testbed:
        raise UsageError("workdir must be given with --testbed, which draws theory.png")
    content = _of_run(pathlib.Path(found[0]), options) if found else _of_constants(options)
    if options.json:
        print(json.dumps(_finite(content), indent=1, allow_nan=False))


def _finite(content: Any) -> Any:
    """What JSON can say: null for what is not finite, such as the gradients of a run that diverged."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _of_constants(options: flags.FlagValues) -> dict[str, Any]:
    with mistakes():
        topology = build_topology(Config(topology=options.topology, agents=options.agents))
        setting = _setting(options, topology)
        content = _show(setting, f"Theorem 1 on {topology.name}", quiet=options.json)
        return content | (_measure(options, topology, setting) if options.testbed else {})


def _setting(options: flags.FlagValues, topology: Topology) -> Setting:
    given = {name: getattr(options, name) for name in _OF_THE_BOUND}
    given["mu"] = options.beta if options.mu is None else options.mu
    given |= {"agents": topology.size, "steps": options.steps, "lambda_": mixing_lambda(topology)}
    if options.eta is not None:
        return Setting(**given)
    setting = Setting(**{**given, "eta": 1.0})
    return dataclasses.replace(setting, eta=largest_eta(setting))


def _show(setting: Setting, title: str, *, quiet: bool) -> dict[str, Any]:
    """Prints a setting, its bound and its conditions; returns them."""
    terms, held = bound(setting), conditions(setting)
    if not quiet:
        s = setting
        print(
            f"{title}\n"
            f"n {s.agents}, T {s.steps:,}, eta {s.eta:.4g}, beta {s.beta:g}, mu {s.mu:g}, rho {s.rho:g}\n"
            f"L {s.L:.4g}, sigma {s.sigma:.4g}, delta {s.delta:.4g}, lambda {s.lambda_:.4g}, "
            f"f(x0) - f* {s.gap:.4g}; eta~ {s.tilde_eta:.4g}, C1 {s.C1:.4g}, C2 {s.C2:.4g}\n"
        )
        rows = [["term of the bound", "as printed", "value", "share"]]
        for name, value in terms._asdict().items():
            share = f"{100 * value / terms.total:.1f} %" if terms.total else "-"
            rows.append([name.replace("_", ", "), _PRINTED[name], f"{value:.4g}", share])
        rows.append(["total", "", f"{terms.total:.4g}", ""])
        print(as_text(rows) + "\n")
        rows = [["condition", "of", "value", "limit", ""]]
        for c in held:
            factor = f"{c.factor:,.0f}" if c.factor >= 100 else f"{c.factor:.3g}"
            verdict = "holds" if c.holds else f"violated by a factor of {factor}"
            whose = "theorem" if c.is_printed else "proof only"
            rows.append([c.text, whose, f"{c.value:.4g}", f"{c.limit:.4g}", verdict])
        print(as_text(rows))
    return {
        "setting": dataclasses.asdict(setting),
        "bound": {**terms._asdict(), "total": terms.total},
        "conditions": [
            {
                "condition": c.text,
                "printed": c.is_printed,
                "value": c.value,
                "limit": c.limit,
                "holds": c.holds,
                "factor": c.factor,
            }
            for c in held
        ],
    }


def _measure(options: flags.FlagValues, topology: Topology, setting: Setting) -> dict[str, Any]:
    """The real method on the test-bed: at this setting, and over n for the slope."""
    from saddle_jax.analysis.theory.speedup import Point, fit_slope, sweep
    from saddle_jax.analysis.theory.testbed import measure, quadratic

    say = (lambda text: None) if options.json else lambda text: print(text, flush=True)
    folder = pathlib.Path(options.workdir) if options.workdir else None
    if folder:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"workdir must be a folder that can be written to, got {folder}") from error
    s = setting
    problem = quadratic(topology, L=s.L, sigma=s.sigma, delta=s.delta, gap=s.gap)
    found = measure(problem, eta=s.eta, beta=s.beta, mu=s.mu, rho=s.rho, steps=s.steps)
    say(
        f"\nQ-SADDLe on quadratics with these constants: {found.mean:.4g} +- {found.standard_error:.1g}, "
        f"the bound is {bound(s).total:.4g}\n\n"
        "the corollary's schedule on complete graphs (a minute or less)\n"
        f"{'n':>3}  {'eta':>9}  {'measured':>9}  {'+-':>8}  {'bound':>9}  its two leading terms"
    )

    def show(point: Point) -> None:
        mean, error = point.measured
        say(
            f"{point.setting.agents:>3}  {point.setting.eta:>9.3g}  {mean:>9.4g}  {error:>8.1g}  "
            f"{point.bound.total:>9.4g}  {100 * point.bound.leading / point.bound.total:.0f} %"
        )

    points = sweep(report=show)
    slope = fit_slope(points)
    say(
        f"slope of log(measured) over log(n): {slope.value:.3f} +- {slope.standard_error:.3f}; "
        "the corollary: -1/2"
    )
    if folder:
        from saddle_jax.report.theory import plot_speedup

        try:
            plot_speedup(points, slope, folder / "theory.png")
        except OSError as error:
            raise UsageError(f"{folder / 'theory.png'} cannot be written: {error.strerror}") from error
        say(f"picture: {folder / 'theory.png'}")
    return {
        "measured": found._asdict(),
        "speedup": [
            {"agents": p.setting.agents, "eta": p.setting.eta, "bound": p.bound.total, **p.measured._asdict()}
            for p in points
        ],
        "slope": slope._asdict(),
    }


def _of_run(workdir: pathlib.Path, options: flags.FlagValues) -> dict[str, Any]:
    """The constants at a run's consensus model, and what of the theorem the run does not keep."""
    from saddle_jax.analysis.theory.estimates import estimate, outside_the_theorem
    from saddle_jax.training.progress import Screen
    from saddle_jax.training.reopen import open_run

    screen = Screen(quiet=options.json)
    with mistakes():
        experiment, step, params = open_run(workdir, screen.warn, options.data_dir)
        steps = max(step, 1)
        screen.line("measuring L, sigma and delta at the consensus model ...")
        passes = 0

        def advance(done: int, of: int) -> None:
            nonlocal passes
            if passes == 0:
                screen.start(of, 0)
            screen.advance(done - passes)
            passes = done

        try:
            found = estimate(experiment, params, samples=options.samples, report=advance)
        finally:
            screen.stop()
        setting = found.setting(experiment.config, steps)
    title = f"{workdir} at step {step:,}, {found.samples} samples per agent"
    content = _show(setting, title, quiet=options.json)
    outside = outside_the_theorem(experiment.config)
    if not options.json:
        print(
            f"L is the largest that power iteration found; {found.L_along_sam:.4g} along SAM's direction. "
            f"sigma of the noisiest agent is {found.sigma_worst:.4g}\n"
            "all are of this one model: over all models L, sigma and delta are larger; f* is taken as 0"
        )
        for text in outside:
            print(f"outside of the theorem: {text}")
    return {"step": step, "estimates": found._asdict(), **content, "outside_the_theorem": outside}
