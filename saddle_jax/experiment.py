"""Pictures, pages and tables that a notebook shows by itself, and that are files anywhere else."""

import contextlib
import dataclasses
import functools
import inspect
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from saddle_jax.analysis import landscape, sharpness
from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Params
from saddle_jax.core.method import Method
from saddle_jax.core.topology import Graphs
from saddle_jax.data import sources, user_data
from saddle_jax.data.dataset import Dataset
from saddle_jax.kernels.convolution import ConvImpl
from saddle_jax.models.functions import Functions, functions
from saddle_jax.models.layers import NORMS
from saddle_jax.report import comparisons, figures, page
from saddle_jax.report.landscape import save_numbers, write_all
from saddle_jax.report.tables import as_latex, as_text
from saddle_jax.runs.metrics import read_metrics
from saddle_jax.runs.run_name import run_name
from saddle_jax.runs.schema import read_result
from saddle_jax.runs.table import cell_of, headline_of, load_runs
from saddle_jax.settings import sweep
from saddle_jax.settings.settings import Settings
from saddle_jax.tasks.objectives import Metric, Objective, objective_of
from saddle_jax.training import loop, program, reopen
from saddle_jax.training.build import Trial, network_of, of_settings
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

    def latex(self) -> str:
        """Returns the table in LaTeX, with booktabs rules."""
        return as_latex(self.rows)

    def _repr_html_(self) -> str:
        head, *body = self.rows
        top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        lines = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body
        )
        return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


# Settings that the objects of an experiment decide.
_OF_OBJECTS = (
    "method", "gradient", "topology", "agents", "model", "dataset", "objective", "learning_rate", "schedule",
    "warmup_epochs", "faults", "timing",
)  # fmt: skip


class Experiment:
    """A method, data, a model and a loss: one run, or several that differ in seed and numbers, in one folder.

    The same program resumes an interrupted run, bit for bit, and leaves a finished one alone. A run whose
    method, model or loss computes something else than when it began is refused.

    Args:
      method: a Method; or, where `sweep` names numbers, a function of these numbers that makes one.
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
      name: what the data are called; the default is their own name.
      seeds: several of them, in place of `seed`: all run in one program, each as if alone.
      sweep: numbers to try, such as {"rho": [0, 0.1]}: all combinations, in one program.
      workdir: the run's folder; None is runs/NAME, named after data and method.
      settings: others of `saddle settings`, such as epochs=20, batch_size=32, partition="dirichlet(0.1)".

    >>> x = np.linspace(-1, 1, 80)[:, None]
    >>> line = (lambda key: {"w": jnp.zeros(1)}, lambda params, x: x @ params["w"])
    >>> samples = (x, 3 * x[:, 0])
    >>> sj.Experiment(sj.qgm(sj.ring(4), 0.1), samples, samples, model=line, name="line", workdir="runs/line")
    Experiment(line, qgm, workdir='runs/line')
    """

    def __init__(
        self,
        method: Method | Callable[..., Method],
        train: Any,
        test: Any = None,
        *,
        model: Any = None,
        loss: Any = "auto",
        metrics: Sequence[Metric] = (),
        name: str | None = None,
        seeds: Sequence[int] = (),
        sweep: Mapping[str, Sequence[float]] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        **settings: Any,
    ):
        free = [field.name for field in dataclasses.fields(Settings) if field.name not in _OF_OBJECTS]
        for setting in settings:
            checks.known("setting", setting, free)
        swept = {name: _numbers(name, values) for name, values in (sweep or {}).items()}
        firsts = {name: values[0] for name, values in swept.items()}
        make = functools.partial(_maker(method, swept), **firsts)  # numbers that are swept go before
        made = make()
        norm, data_dir = settings.get("norm", Settings.norm), settings.get("data_dir", Settings.data_dir)
        checks.choice("norm", norm, NORMS)
        data = _dataset(train, test, loss, name, data_dir)
        functions_of = _functions_of(model, data, norm)
        objective_of = _objective_of(loss, data, metrics)
        network = functions_of("auto")  # refuses what is no model
        learned = objective_of(network)  # and what is no loss
        self.method = made
        self.config = Settings(
            **settings,
            method=_shown(made.name),
            topology=_shown(made.topology.name),
            agents=made.topology.size,
            dataset=train if isinstance(train, str) and not name else _shown(data.name),
            model="auto" if model is None else model if isinstance(model, str) else _shown(network.name),
            objective=loss if isinstance(loss, str) else _shown(learned.name),
            seeds=",".join(str(checks.whole("seeds", one, at_least=0)) for one in _listed("seeds", seeds)),
            sweep=" ".join(f"method.{name}={','.join(map(repr, values))}" for name, values in swept.items()),
        )

        def method_on(
            config: Settings, graph: Graphs, steps_per_epoch: int, numbers: Mapping[str, Any]
        ) -> Method:
            own = {name.removeprefix("method."): value for name, value in numbers.items()}
            return dataclasses.replace(make(**own), topology=graph)

        self.trial = Trial(
            self.config,
            data,
            functions_of,
            objective_of,
            topology_of=lambda config: made.topology,
            method_of=method_on,
            rate_of=lambda config, steps_per_epoch, numbers: None,
        )
        self.workdir = pathlib.Path(workdir or f"runs/{run_name(self.config)}")

    @classmethod
    def from_settings(cls, settings: Settings, workdir: str | os.PathLike[str] | None = None) -> "Experiment":
        """Makes the experiment that settings name, as `saddle train` does.

        >>> sj.Experiment.from_settings(sj.Settings(method="qgm(beta=0.5)", epochs=2), workdir="runs/qgm")
        Experiment(digits, qgm, workdir='runs/qgm')
        """
        self = cls.__new__(cls)
        self.config, self.trial = settings, of_settings(settings)
        self.method = self.trial.each()[0].method_on(self.trial.topology)
        self.workdir = pathlib.Path(workdir or f"runs/{run_name(settings)}")
        return self

    def __repr__(self) -> str:
        return f"Experiment({self.trial.data.name}, {self.method.name}, workdir={str(self.workdir)!r})"

    def train(self, quiet: bool = False) -> dict[str, Any]:
        """Trains, or goes on training, and draws curves.png; returns what result.json says."""
        with contextlib.closing(Screen(quiet)) as screen:
            result = loop.train(
                self.config, self.workdir, screen, curvature=sharpness.metrics, trial=self.trial
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
        return program.build(dataclasses.replace(self.config, devices="1"), self.trial)

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


def _shown(name: str) -> str:
    """Returns how settings name an object of a program: <NAME>."""
    plain = "".join(letter for letter in name if letter.isprintable() and letter not in "<>")
    return f"<{plain[:80] or 'nameless'}>"


def _dataset(train: Any, test: Any, loss: Any, name: str | None, data_dir: str) -> Dataset:
    """Returns the samples as every run sees them, before a subset is chosen."""
    brings_test = isinstance(train, str | os.PathLike | Dataset) or user_data.is_huggingface(train)
    if brings_test != (test is None):
        kind = type(train).__name__
        expected = f"must not be given beside a {kind}, which brings it" if brings_test else "must be given"
        raise ArgumentError(f"test {expected}")
    if isinstance(train, str | os.PathLike):
        data = sources.load(os.fspath(train), data_dir or None)
    elif test is None:
        data = sources.dataset_of(train, name or "data")
    else:
        objective = loss if isinstance(loss, str) and loss != "auto" else None
        data = user_data.from_samples(train, test, objective=objective)
    return dataclasses.replace(data, name=name) if name else data


def _functions_of(model: Any, data: Dataset, norm: str) -> Callable[[ConvImpl], Functions]:
    """Returns the model as functions, by the way in which it is compiled; a user's own has but one."""
    if model is None or isinstance(model, str):
        return network_of(model or "auto", data, norm)
    network = functions(model)
    return lambda conv_impl: network


def _objective_of(loss: Any, data: Dataset, metrics: Sequence[Metric]) -> Callable[[Functions], Objective]:
    """Returns the loss and metrics for a model."""
    if not (callable(loss) or isinstance(loss, str | Objective)):
        raise ArgumentError(
            f"loss must be the name of an objective or a function (params, batch), got {checks.shown(loss)}"
        )
    if isinstance(metrics, Metric):
        raise ArgumentError(f"metrics must be a list of sj.Metric, got {metrics!r}")
    chosen = data.objective if isinstance(loss, str) and loss == "auto" else loss
    return functools.cache(lambda model: objective_of(chosen, model, tuple(metrics)))


# Several runs side by side: made where they are missing, then their tables, one picture, one page.


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Experiments that have ended, by the names that they are compared under.

    Attributes:
      experiments: the experiments by name.
      table: mean and standard deviation over seeds of the metric that they share.
      intervals: the same with the 95 % intervals of the means.
      differences: paired differences to the first one over common seeds, with 95 % intervals.
    """

    experiments: Mapping[str, Experiment]
    table: Table
    intervals: Table
    differences: Table

    def __str__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    def figure(self, path: str | pathlib.Path | None = None, x: str | None = None) -> Picture:
        """Draws the curves of all runs; the default place is comparison.png beside the first one's folder."""
        place = pathlib.Path(path or self._beside("comparison.png"))
        figures.plot_curves(self._folders, place, x, names=list(self.experiments))
        return Picture(place)

    def report(self, path: str | pathlib.Path | None = None) -> Page:
        """Writes one page of all runs; the default place is report.html beside the first one's folder."""
        place = pathlib.Path(path or self._beside("report.html"))
        page.write_page(self._folders, place, names=list(self.experiments))
        return Page(place)

    @property
    def _folders(self) -> list[pathlib.Path]:
        return [one.workdir for one in self.experiments.values()]

    def _beside(self, name: str) -> pathlib.Path:
        return self._folders[0].parent / name


def compare(experiments: Mapping[str, Experiment], quiet: bool = False) -> Comparison:
    """Trains experiments that have not ended, one after the other, and returns them side by side.

    Args:
      experiments: by the names that tables and pictures give them; each has a folder of its own.
      quiet: whether nothing is printed while they train.
    """
    if not experiments or not all(isinstance(one, Experiment) for one in experiments.values()):
        raise ArgumentError(f"experiments must be sj.Experiment by name, got {checks.shown(experiments)}")
    folders = [one.workdir.resolve() for one in experiments.values()]
    if len(set(folders)) < len(folders):
        raise ArgumentError(f"experiments must have folders of their own, got {', '.join(map(str, folders))}")
    for name, one in experiments.items():
        if not quiet:
            print(f"\n{name}", flush=True)
        one.train(quiet)
    found = {name: load_runs([one.workdir]) for name, one in experiments.items()}
    headline = headline_of([run for several in found.values() for run in several])
    cells, axes = {(name,): cell_of(several) for name, several in found.items()}, {"run": list(found)}
    head = ["run", f"test {headline.title}{headline.unit}", "seeds"]
    rows = [[name, cell.text(), str(len(cell.scores))] for (name,), cell in cells.items()]
    return Comparison(
        dict(experiments),
        Table([head, *rows]),
        Table(comparisons.intervals(cells, axes)),
        Table(comparisons.differences(cells, axes)),
    )
