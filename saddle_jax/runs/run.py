"""A run as an object: it trains, resumes and shows as the command does, in the same loop and folder."""

import contextlib
import dataclasses
import functools
import inspect
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from saddle_jax.analysis import landscape, landscape_runs, sharpness, sharpness_runs
from saddle_jax.base import brought, checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Params
from saddle_jax.core.method import Method
from saddle_jax.report import curves, page
from saddle_jax.report.landscape import save_numbers, write_all
from saddle_jax.runs.problem import Problem, shown
from saddle_jax.runs.shown import Page, Picture
from saddle_jax.training import loop, program, reopen, sweep
from saddle_jax.training.build import Replica
from saddle_jax.training.config import Config
from saddle_jax.training.ended import read_result
from saddle_jax.training.logged import read_metrics
from saddle_jax.training.parts import Parts
from saddle_jax.training.progress import Screen
from saddle_jax.training.run_name import run_name

# Settings that a run takes beside its problem and method; the others are theirs, or stand in the signature.
SETTINGS = (
    "augmentation",
    "checkpoint_every_steps",
    "devices",
    "diagnostics",
    "eval_agents",
    "eval_every_epochs",
    "group",
    "keep_checkpoints",
    "keep_every_epochs",
    "log_every_steps",
    "lowering",
    "precision",
    "sharpness_every_epochs",
    "sharpness_images",
    "steps_per_dispatch",
    "subset",
)


class Run:
    """One run of a method on a problem, or several that differ in seed and numbers, in one folder.

    The same program resumes an interrupted run, bit for bit, and leaves a finished one alone. A run whose
    method, model or loss computes something else than when it began is refused.

    Args:
      problem: what is learned.
      method: a Method; or, where `sweep` names numbers, a function of these numbers that makes one.
      epochs: how many passes over each agent's data there are.
      batch_size: samples per agent and step.
      seed: of partition, initialisation, batches and all random choices.
      seeds: several of them, in place of `seed`: all run in one program, each as if alone.
      sweep: numbers to try, such as {"learning_rate": [0.01, 0.1]}: all combinations, in one program.
      weight_decay: what the method adds to gradients, for the optimum of tasks that know it, such as convex:
        nobody but you can tell what a Method does.
      workdir: the run's folder; None is runs/NAME, named after problem and method.
      settings: others of `saddle config`, such as eval_every_epochs=1; SETTINGS lists them.

    >>> x = np.linspace(-1, 1, 80)[:, None]
    >>> line = (lambda key: {"w": jnp.zeros(1)}, lambda params, x: x @ params["w"])
    >>> problem = training.Problem((x, 3 * x[:, 0]), (x, 3 * x[:, 0]), model=line, name="line")
    >>> training.Run(problem, sj.qgm(sj.ring(4), 0.1), epochs=20, workdir="runs/line")  # .train() trains it
    Run(line, qgm, workdir='runs/line')
    """

    def __init__(
        self,
        problem: Problem,
        method: Method | Callable[..., Method],
        *,
        epochs: int,
        batch_size: int = 32,
        seed: int = 0,
        seeds: Sequence[int] = (),
        sweep: Mapping[str, Sequence[float]] | None = None,
        workdir: str | os.PathLike | None = None,
        weight_decay: float = 0.0,
        **settings: Any,
    ):
        if not isinstance(problem, Problem):
            raise ArgumentError(f"problem must be a training.Problem, got {brought.shown(problem)}")
        for name in settings:
            if name not in SETTINGS:
                raise ArgumentError(f"settings of a run must be of {', '.join(SETTINGS)}, got {name!r}")
        swept = {name: _numbers(name, values) for name, values in (sweep or {}).items()}
        firsts = {name: values[0] for name, values in swept.items()}
        make = functools.partial(_maker(method, swept), **firsts)  # numbers that are swept go before
        made = make()
        self.problem, self.method = problem, made
        self.config = Config(
            **problem.settings(),
            method=shown(made.name),
            topology=shown(made.topology.name),
            agents=made.topology.size,
            epochs=epochs,
            batch_size=batch_size,
            seed=seed,
            seeds=",".join(str(checks.whole("seeds", one, at_least=0)) for one in _listed("seeds", seeds)),
            sweep=" ".join(f"method.{name}:{','.join(map(repr, values))}" for name, values in swept.items()),
            weight_decay=weight_decay,
            **settings,
        )
        self._parts: Parts = problem.parts(made.topology, make)
        self.workdir = pathlib.Path(workdir or f"runs/{run_name(self.config)}")

    def __repr__(self) -> str:
        return f"Run({self.problem.dataset.name}, {self.method.name}, workdir={str(self.workdir)!r})"

    def train(self, quiet: bool = False) -> dict[str, Any]:
        """Trains, or goes on training, and draws curves.png; returns what result.json says."""
        with contextlib.closing(Screen(quiet)) as screen:
            result = loop.train(
                self.config, self.workdir, screen, curvature=sharpness.metrics, parts=self._parts
            )
        curves.plot_curves([self.workdir], self.workdir / "curves.png")
        return result

    def result(self) -> dict[str, Any] | None:
        """Returns what result.json says; None if the run has not ended."""
        return read_result(self.workdir)

    def records(self) -> list[dict[str, Any]]:
        """Returns the lines of metrics.jsonl; of several runs those of each, with its seed and numbers."""
        lines = read_metrics(self.workdir)
        if not self.config.has_replicas:
            return lines
        own = sweep.settings_of(self.config.seeds, self.config.sweep)
        named = [{name.removeprefix("method."): value for name, value in one.items()} for one in own]
        return [
            {**setting, **sweep.of_replica(line, number)}
            for number, setting in enumerate(named)
            for line in lines
        ]

    def metrics(self) -> Any:
        """Returns `records` as a pandas DataFrame where pandas is installed, and as they are elsewhere."""
        try:
            import pandas
        except ImportError:
            return self.records()
        return pandas.DataFrame(self.records())

    def figure(self, x: str | None = None) -> Picture:
        """Draws loss, metric and consensus distance, against epochs or another axis of `saddle figure`."""
        path = self.workdir / ("curves.png" if x is None else f"curves-{x}.png")
        curves.plot_curves([self.workdir], path, x)
        return Picture(path)

    def report(self) -> Page:
        """Writes report.html, with all that is known of the run."""
        path = self.workdir / "report.html"
        page.write_page([self.workdir], path)
        return Page(path)

    def model(self, agent: int | None = None, replica: int | None = None) -> Params:
        """Returns the consensus model of the newest checkpoint, or one agent's own."""
        _, _, params = self._open(replica)
        return reopen.choose(params, agent)

    def evaluate(self, agent: int | None = None, replica: int | None = None) -> dict[str, float]:
        """Returns the metrics of the consensus model of the newest checkpoint, or of one agent's own."""
        run, _, params = self._open(replica)
        return run.evaluate(reopen.choose(params, agent))

    def sharpness(self, epochs: Sequence[str] = ("all",), **how: Any) -> list[dict[str, Any]]:
        """Measures the Hessian of the consensus model at the checkpoints; `how` is `Measurement`'s."""
        self._alone("sharpness")
        runs = [sharpness_runs.Opened(self.workdir, self._whole)]
        targets = sharpness_runs.targets_of(runs, list(epochs), ["none"])
        with contextlib.closing(Screen()) as screen:
            sharpness_runs.measure_missing(runs, targets, sharpness_runs.Measurement(**how), screen)
        return sharpness_runs.measured_stages(runs, targets)[0]

    def landscape(
        self, points: int = 21, span: float = 1.0, images: int = 1024, directions: landscape.Kind = "filter"
    ) -> Picture:
        """Draws the loss around the consensus model, along two random directions, into the run's folder."""
        self._alone("landscape")
        x, scan = landscape.grid(points, span), landscape_runs.Scan(directions, 0, images)
        with contextlib.closing(Screen()) as screen:
            loss = landscape_runs.surfaces([self.method.name], [self._open(None)], x, scan, screen)
        folder = self.workdir / "landscape"
        folder.mkdir(exist_ok=True)
        write_all(x, loss, [self.method.name], folder)
        save_numbers(x, loss, [self.method.name], self.workdir)  # for the report
        return Picture(folder / "landscape.png")

    @functools.cached_property
    def _whole(self) -> program.Program:
        return program.build(dataclasses.replace(self.config, devices="1"), self._parts)

    def _open(self, replica: int | None) -> tuple[Replica, int, Params]:
        if replica is None and self.config.has_replicas:
            raise ArgumentError(f"replica must be given for several runs: 0 to {len(self.config.each()) - 1}")
        return reopen.open_program(self.workdir, self._whole, Screen().warn, replica)

    def _alone(self, what: str) -> None:
        if self.config.has_replicas:
            raise ArgumentError(f"{what} needs a run of one seed and without a sweep, got {self!r}")


def _listed(name: str, values: Any) -> list[Any]:
    """Returns the values of a list; a number alone is none."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise ArgumentError(f"{name} must be a list, such as [0, 1], got {brought.shown(values)}")
    return list(values)


def _numbers(name: str, values: Any) -> list[float]:
    """Checks the numbers that are swept, of which there is at least one."""
    numbers = [checks.real(f"sweep of {name}", value) for value in _listed(f"sweep of {name}", values)]
    if not numbers:
        raise ArgumentError(f"sweep of {name} must list at least one number, got an empty list")
    return numbers


def _maker(method: Any, swept: Mapping[str, Sequence[float]]) -> Callable[..., Method]:
    """Returns a function of the swept numbers that makes the method."""
    if isinstance(method, Method):
        if swept:
            raise ArgumentError(
                f"method must be a function of {', '.join(swept)} to be swept, got {method.name}"
            )
        return lambda: method
    if not callable(method):
        raise ArgumentError(
            f"method must be a Method, or a function that makes one, got {brought.shown(method)}"
        )
    for name in swept:
        if name not in inspect.signature(method).parameters:
            raise ArgumentError(f"sweep must name parameters of the method's function, got {name!r}")

    def make(**numbers: Any) -> Method:
        try:
            inspect.signature(method).bind(**numbers)
        except TypeError as error:
            raise ArgumentError(f"method must be a function of what is swept alone: {error}") from error
        made = method(**numbers)
        if not isinstance(made, Method):
            raise ArgumentError(
                f"method must be a function that makes a Method, got {brought.shown(made)} from it"
            )
        return made

    return make
