"""Pictures, pages and tables that a notebook shows by itself, and that are files anywhere else."""

import contextlib
import dataclasses
import functools
import inspect
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, cast

from saddle_jax.analysis import landscape, sharpness
from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Params
from saddle_jax.core.method import Method
from saddle_jax.core.topology import Graphs
from saddle_jax.data import sources, user_data
from saddle_jax.data.dataset import Dataset
from saddle_jax.kernels.convolution import ConvImpl
from saddle_jax.models import make_model
from saddle_jax.models.functions import Functions, functions
from saddle_jax.models.layers import NORMS, Norm
from saddle_jax.report import figures, page
from saddle_jax.report.landscape import save_numbers, write_all
from saddle_jax.report.tables import as_text
from saddle_jax.runs.metrics import read_metrics
from saddle_jax.runs.run_name import run_name
from saddle_jax.runs.schema import read_result
from saddle_jax.runs.table import cell_of, headline_of, load_runs
from saddle_jax.settings import sweep
from saddle_jax.settings.config import Config
from saddle_jax.tasks.objectives import Metric, Objective, objective_of
from saddle_jax.training import loop, program, reopen
from saddle_jax.training.build import Parts, Trial
from saddle_jax.training.progress import Screen


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture in a file; a notebook shows it."""

    path: pathlib.Path

    def _repr_png_(self) -> bytes:
        return self.path.read_bytes()


@dataclasses.dataclass(frozen=True)
class Page:
    """A page in a file that opens from disk; a notebook shows it in a frame."""

    path: pathlib.Path
    height: int = 720

    def _repr_html_(self) -> str:
        content = escape(self.path.read_text(encoding="utf-8"))
        frame = f'style="width:100%;height:{self.height}px;border:0" title="report"'
        # The page brings a script of its own, whose hash it states; it may do nothing to the notebook.
        return f'<iframe srcdoc="{content}" sandbox="allow-scripts" {frame}></iframe>'


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of text under a header; a notebook shows them as a table, and print as aligned columns."""

    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        return as_text(self.rows)

    def _repr_html_(self) -> str:
        head, *body = self.rows
        top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        lines = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body
        )
        return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


# What is to be learned, from objects: data, a model, a loss, and how the data is partitioned.


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Data, a model and a loss; what each agent has of the data, and how a model is judged.

    >>> x = np.linspace(-1, 1, 80)[:, None]
    >>> line = (lambda key: {"w": jnp.zeros(1)}, lambda params, x: x @ params["w"])
    >>> problem = sj.Problem((x, 3 * x[:, 0]), (x, 3 * x[:, 0]), model=line)
    >>> problem.dataset.objective, problem.dataset.size
    ('regression', 80)

    Attributes:
      train: samples to train with: (inputs, targets), or any tree of arrays [N, ...] for a loss of your own;
        a list of these where they are divided already, one for each agent. Or the name of a dataset of ours
        or of tfds, a file .npz, a folder of images by class, a dict of Hugging Face splits, or a
        `data.Dataset`: these bring their own `test`.
      test: samples to test with, of the same kind.
      model: a flax module (linen or nnx), the class of an nnx module, a pair of functions (init, apply), or
        the name of one of ours; None is the data's own, cnn for images and mlp for other inputs.
      loss: "classification", "regression", "language"; a function (params, batch) -> loss, or (loss, aux), of
        one agent; or "auto": what the data are for.
      metrics: metrics of your own, `sj.Metric(name, better, function)`; tables show the first.
      partition: how samples are divided, as the setting of this name: "dirichlet(0.1)", "shards(2)", "iid".
      norm: normalization of a network of ours.
      name: what the data are called; the default is their own name.
      data_dir: folder of datasets that tfds prepared.
    """

    train: Any
    test: Any = None
    model: Any = None
    loss: Any = "auto"
    metrics: Sequence[Metric] = ()
    partition: str = "auto"
    norm: str = "evonorm"
    name: str | None = None
    data_dir: str | os.PathLike | None = None

    def __post_init__(self) -> None:
        checks.choice("norm", self.norm, NORMS)
        if not (callable(self.loss) or isinstance(self.loss, str | Objective)):
            raise ArgumentError(
                "loss must be the name of an objective or a function (params, batch), got "
                f"{checks.shown(self.loss)}"
            )
        if isinstance(self.metrics, Metric):
            raise ArgumentError(f"metrics must be a list of sj.Metric, got {self.metrics!r}")
        self.network("auto")  # refuses what is no model
        self.objective(self.network("auto"))  # and what is no loss

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The data, as every run sees them."""
        data = _dataset(self)
        return dataclasses.replace(data, name=self.name) if self.name else data

    @functools.cached_property
    def network(self) -> Callable[[ConvImpl], Functions]:
        """The model as functions, by the way in which it is compiled; a user's own has but one."""
        if self.model is not None and not isinstance(self.model, str):
            model = functions(self.model)
            return lambda conv_impl: model
        name, norm, outputs = (
            self.model or self.dataset.model,
            cast(Norm, self.norm),
            self.dataset.num_outputs,
        )
        return functools.cache(lambda conv_impl: make_model(name, outputs, norm, conv_impl))

    @functools.cached_property
    def objective(self) -> Callable[[Functions], Objective]:
        """The loss and metrics for a model."""
        loss = self.dataset.objective if isinstance(self.loss, str) and self.loss == "auto" else self.loss
        return functools.cache(lambda model: objective_of(loss, model, tuple(self.metrics)))

    def settings(self) -> dict[str, Any]:
        """Returns the settings of a run that the problem decides, as config.json has them."""
        by_name = isinstance(self.train, str) and not self.name
        model = self.model if isinstance(self.model, str) else None
        loss = self.loss if isinstance(self.loss, str) else shown(self.objective(self.network("auto")).name)
        return {
            "dataset": self.train if by_name else shown(self.dataset.name),
            "data_dir": str(self.data_dir or ""),
            "model": "auto" if self.model is None else model or shown(self.network("auto").name),
            "norm": self.norm,
            "objective": loss,
            "partition": self.partition,
        }

    def parts(self, topology: Graphs, method: Callable[..., Method]) -> Parts:
        """Returns the parts of runs on this problem; `method` is a function of the swept numbers."""

        def on_graph(
            config: Config, graph: Graphs, steps_per_epoch: int, numbers: Mapping[str, Any]
        ) -> Method:
            made = method(**{name.removeprefix("method."): value for name, value in numbers.items()})
            return dataclasses.replace(made, topology=graph)

        return Parts(
            self.dataset,
            self.network,
            self.objective,
            topology=lambda config: topology,
            method=on_graph,
            rate=lambda config, steps_per_epoch, numbers: None,
        )


def shown(name: str) -> str:
    """Returns how settings name an object of a program: <NAME>."""
    plain = "".join(letter for letter in name if letter.isprintable() and letter not in "<>")
    return f"<{plain[:80] or 'nameless'}>"


def _dataset(problem: Problem) -> Dataset:
    train, test = problem.train, problem.test
    brings_test = isinstance(train, str | os.PathLike | Dataset) or user_data.is_huggingface(train)
    if brings_test != (test is None):
        kind = type(train).__name__
        expected = f"must not be given beside a {kind}, which brings it" if brings_test else "must be given"
        raise ArgumentError(f"test {expected}")
    if isinstance(train, str | os.PathLike):
        return sources.load(os.fspath(train), problem.data_dir)
    if test is None:
        return sources.dataset_of(train, problem.name or "data")
    objective = problem.loss if isinstance(problem.loss, str) and problem.loss != "auto" else None
    return user_data.from_samples(train, test, objective=objective)


# A run as an object: it trains, resumes and shows as the command does, in the same loop and folder.


# Settings that a run takes beside its problem and method; the others are theirs, or stand in the signature.
SETTINGS = (
    "augmentation",
    "checkpoint_every_steps",
    "devices",
    "diagnostics",
    "eval_agents",
    "eval_every_epochs",
    "agents_per_call",
    "keep_checkpoints",
    "keep_every_epochs",
    "log_every_steps",
    "conv_impl",
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
      settings: others of `saddle settings`, such as eval_every_epochs=1; SETTINGS lists them.

    >>> x = np.linspace(-1, 1, 80)[:, None]
    >>> line = (lambda key: {"w": jnp.zeros(1)}, lambda params, x: x @ params["w"])
    >>> problem = sj.Problem((x, 3 * x[:, 0]), (x, 3 * x[:, 0]), model=line, name="line")
    >>> sj.Run(problem, sj.qgm(sj.ring(4), 0.1), epochs=20, workdir="runs/line")  # .train() trains it
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
            raise ArgumentError(f"problem must be a sj.Problem, got {checks.shown(problem)}")
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
        figures.plot_curves([self.workdir], self.workdir / "curves.png")
        return result

    def result(self) -> dict[str, Any] | None:
        """Returns what result.json says; None if the run has not ended."""
        return read_result(self.workdir)

    def records(self) -> list[dict[str, Any]]:
        """Returns the lines of metrics.jsonl; of several runs those of each, with its seed and numbers."""
        lines = read_metrics(self.workdir)
        if not self.config.has_trials:
            return lines
        own = sweep.settings_of(self.config.seeds, self.config.sweep)
        named = [{name.removeprefix("method."): value for name, value in one.items()} for one in own]
        return [
            {**setting, **sweep.of_trial(line, number)}
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
        figures.plot_curves([self.workdir], path, x)
        return Picture(path)

    def report(self) -> Page:
        """Writes report.html, with all that is known of the run."""
        path = self.workdir / "report.html"
        page.write_page([self.workdir], path)
        return Page(path)

    def model(self, agent: int | None = None, trial: int | None = None) -> Params:
        """Returns the consensus model of the newest checkpoint, or one agent's own."""
        _, _, params = self._open(trial)
        return reopen.choose(params, agent)

    def evaluate(self, agent: int | None = None, trial: int | None = None) -> dict[str, float]:
        """Returns the metrics of the consensus model of the newest checkpoint, or of one agent's own."""
        run, _, params = self._open(trial)
        return run.evaluate(reopen.choose(params, agent))

    def sharpness(self, epochs: Sequence[str] = ("all",), **how: Any) -> list[dict[str, Any]]:
        """Measures the Hessian of the consensus model at the checkpoints; `how` is `Measurement`'s."""
        self._alone("sharpness")
        runs = [sharpness.Opened(self.workdir, self._whole)]
        targets = sharpness.targets_of(runs, list(epochs), ["none"])
        with contextlib.closing(Screen()) as screen:
            sharpness.measure_missing(runs, targets, sharpness.Measurement(**how), screen)
        return sharpness.measured_stages(runs, targets)[0]

    def landscape(
        self, points: int = 21, span: float = 1.0, images: int = 1024, directions: landscape.Kind = "filter"
    ) -> Picture:
        """Draws the loss around the consensus model, along two random directions, into the run's folder."""
        self._alone("landscape")
        x, scan = landscape.grid(points, span), landscape.Scan(directions, 0, images)
        with contextlib.closing(Screen()) as screen:
            loss = landscape.surfaces([self.method.name], [self._open(None)], x, scan, screen)
        folder = self.workdir / "landscape"
        folder.mkdir(exist_ok=True)
        write_all(x, loss, [self.method.name], folder)
        save_numbers(x, loss, [self.method.name], self.workdir)  # for the report
        return Picture(folder / "landscape.png")

    @functools.cached_property
    def _whole(self) -> program.Program:
        return program.build(dataclasses.replace(self.config, devices="1"), self._parts)

    def _open(self, trial: int | None) -> tuple[Trial, int, Params]:
        if trial is None and self.config.has_trials:
            raise ArgumentError(f"trial must be given for several runs: 0 to {len(self.config.each()) - 1}")
        return reopen.open_program(self.workdir, self._whole, Screen().warn, trial)

    def _alone(self, what: str) -> None:
        if self.config.has_trials:
            raise ArgumentError(f"{what} needs a run of one seed and without a sweep, got {self!r}")


def _listed(name: str, values: Any) -> list[Any]:
    """Returns the values of a list; a number alone is none."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise ArgumentError(f"{name} must be a list, such as [0, 1], got {checks.shown(values)}")
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
            f"method must be a Method, or a function that makes one, got {checks.shown(method)}"
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
                f"method must be a function that makes a Method, got {checks.shown(made)} from it"
            )
        return made

    return make


# Several runs side by side: made where they are missing, then one table, one picture, one page.


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Runs that have ended, by the names that they are compared under.

    Attributes:
      runs: the runs by name.
      table: mean and standard deviation over seeds of the metric that they share.
    """

    runs: Mapping[str, Run]
    table: Table

    def __str__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    def figure(self, path: str | pathlib.Path | None = None, x: str | None = None) -> Picture:
        """Draws the curves of all runs; the default place is comparison.png beside the first one's folder."""
        place = pathlib.Path(path or self._beside("comparison.png"))
        figures.plot_curves(self._folders, place, x, names=list(self.runs))
        return Picture(place)

    def report(self, path: str | pathlib.Path | None = None) -> Page:
        """Writes one page of all runs; the default place is report.html beside the first one's folder."""
        place = pathlib.Path(path or self._beside("report.html"))
        page.write_page(self._folders, place, names=list(self.runs))
        return Page(place)

    @property
    def _folders(self) -> list[pathlib.Path]:
        return [run.workdir for run in self.runs.values()]

    def _beside(self, name: str) -> pathlib.Path:
        return self._folders[0].parent / name


def compare(runs: Mapping[str, Run], quiet: bool = False) -> Comparison:
    """Trains runs that have not ended, one after the other, and returns them side by side.

    Args:
      runs: the runs by the names that tables and pictures give them; each has a folder of its own.
      quiet: whether nothing is printed while they train.
    """
    if not runs or not all(isinstance(run, Run) for run in runs.values()):
        raise ArgumentError(f"runs must be sj.Run by name, got {checks.shown(runs)}")
    folders = [run.workdir.resolve() for run in runs.values()]
    if len(set(folders)) < len(folders):
        raise ArgumentError(f"runs must have folders of their own, got {', '.join(map(str, folders))}")
    for name, run in runs.items():
        if not quiet:
            print(f"\n{name}", flush=True)
        run.train(quiet)
    found = {name: load_runs([run.workdir]) for name, run in runs.items()}
    headline = headline_of([run for several in found.values() for run in several])
    rows = [["run", f"test {headline.title}{headline.unit}", "seeds"]]
    for name, several in found.items():
        cell = cell_of(several)
        rows.append([name, cell.text(), str(len(cell.scores))])
    return Comparison(dict(runs), Table(rows))
