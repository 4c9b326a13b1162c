"""Tables of runs: a record for each run and seed, a line for each logged step, and means over seeds.

    runs = load_runs(["runs"])             # in a folder and below it
    runs.frame()                           # a pandas.DataFrame: settings, state and results, a row per run
    runs[0].metrics().frame()              # one run's metrics, a row per line
    cells_by(runs, lambda run: run.config.method)["qgm"].summary

config.json and result.json are read at once, all other files on demand.
"""

import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import DamagedError, RunError
from saddle_jax.base.reading import TOO_LARGE, damaged, read_arrays, reading
from saddle_jax.runs.downsample import Downsampled, read_downsampled
from saddle_jax.runs.metrics import Record, newest, read_metrics
from saddle_jax.runs.run_folder import folders_below, is_locked, read_about
from saddle_jax.runs.schema import (
    CLASSIFICATION,
    OF_ALL,
    ConfigFile,
    Measure,
    PaperFile,
    finite,
    measures,
    read,
    read_result,
    read_sharpness,
)
from saddle_jax.runs.statistics import Summary, mean_and_std, paired, summarise
from saddle_jax.settings.settings import IRRELEVANT, Settings, check_each, from_json
from saddle_jax.settings.sweep import name_of, of_trial, settings_of
from saddle_jax.settings.sweep import without as left_out

Item = TypeVar("Item")


class Records(list[dict[str, Any]]):
    """Rows of a table, as dicts by column name."""

    def frame(self) -> Any:
        """Returns a pandas.DataFrame; an ImportError without pandas."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise ImportError("frame() needs pandas: python -m pip install pandas", name="pandas") from error
        return pandas.DataFrame(list(self))


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One run, read from its folder.

    Attributes:
      name: the folder's name, or its path if two have the same name.
      config: the settings.
      about: the rest of config.json: versions, devices, dataset, partition, ...
      state: finished, diverged, interrupted (after a checkpoint), running, or unfinished (killed).
      result: result.json; empty if the run has not ended.
      measures: the evaluation metrics, the headline first.
      path: the folder.
      number: the index of the run in a folder of several.
      setting: its seed and swept numbers there; empty for a run alone.
      family: the name that the caller gave to all runs of the folder; "" without one.
      read_lines: reads metrics.jsonl, or a selection of its lines.
    """

    name: str
    config: Settings
    about: dict[str, Any] = dataclasses.field(default_factory=dict)
    state: str = "unfinished"
    result: dict[str, Any] = dataclasses.field(default_factory=dict)
    measures: tuple[Measure, ...] = CLASSIFICATION
    path: pathlib.Path = pathlib.Path()
    number: int | None = None
    setting: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    family: str = ""
    read_lines: Callable[[], Downsampled] = lambda: Downsampled([], 0)

    @property
    def headline(self) -> Measure:
        """The metric that tables show first."""
        return self.measures[0]

    def score(self) -> float | None:
        """The headline metric of a run that finished; None if there is none."""
        return self.result.get(self.headline.key) if self.state == "finished" else None

    def value(self, name: str) -> float | None:
        """Returns a number from result.json, or else the last one in metrics.jsonl."""
        found = self.result.get(name)
        if name not in self.result:
            lines = (of_trial(line, self.number or 0).get(name) for line in newest(self.path, name))
            found = next((each for each in lines if each is not None), None)
        return found if isinstance(found, int | float) else None

    @property
    def last_step(self) -> int:
        """Returns the last step that was logged, or 0."""
        return next((record["step"] for record in newest(self.path)), 0)

    @property
    def lines(self) -> int:
        """The number of lines in metrics.jsonl."""
        return self.read_lines().lines

    def fact(self, *path: str) -> Any:
        """Returns an entry of config.json beside the settings, by its path; None if there is none."""
        value: Any = self.about
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def record(self) -> dict[str, Any]:
        """Returns the run as one row: name, folder, state, settings and final metrics."""
        numbers = {name: value for name, value in self.result.items() if not isinstance(value, list | dict)}
        place = {"run": self.name, "path": str(self.path), "state": self.state}
        return place | self.config.to_json() | {n: v for n, v in numbers.items() if n != "status"}

    def metrics(self) -> Records:
        """Returns this run's part of metrics.jsonl, with the communication and passes spent so far."""
        return self._metrics

    @functools.cached_property
    def _metrics(self) -> Records:
        return _metrics(
            self.read_lines().records, self.result, self.number or 0, self.fact("passes_per_step")
        )

    def curve(self, name: str, x: str = "epoch") -> tuple[list[float], list[Any]]:
        """Returns the epochs (or steps, bytes) at which a metric was logged, and its values."""
        if (name, x) not in self._curves:
            kept = [r for r in self.metrics() if r.get(name) is not None and r.get(x) is not None]
            self._curves[name, x] = [r[x] for r in kept], [r[name] for r in kept]
        return self._curves[name, x]

    @functools.cached_property
    def _curves(self) -> dict[tuple[str, str], tuple[list[float], list[Any]]]:
        return {}

    def file(self, name: str) -> pathlib.Path:
        """Returns the path of a file of this run: name.json or, in a folder of several, name-1.json."""
        stem, dot, ending = name.partition(".")
        return self.path / (name if self.number is None else f"{stem}-{self.number}{dot}{ending}")

    @functools.cached_property
    def sharpness(self) -> dict[str, Any] | None:
        """The content of sharpness.json; None if nothing was measured."""
        content = read_sharpness(self.file("sharpness.json"))
        about = {name: str((content or {}).get(name)) for name in ("data", "images", "iterations")}
        return content and {**about, "stages": [{**s, "whose": str(s["whose"])} for s in content["stages"]]}

    @functools.cached_property
    def landscape(self) -> dict[str, list[Any]] | None:
        """x [n], y [n] and loss [n, n], one row per y; a large one is subsampled from `points`."""
        return _landscape(self.file("landscape.npz"))

    @functools.cached_property
    def paper(self) -> dict[str, str] | None:
        """The published figure that this run reproduces, from paper.json."""
        found = read(self.path / "paper.json", PaperFile)
        named = {field.name: (found or {}).get(field.name) for field in dataclasses.fields(PaperFile)}
        return found and {name: "-" if value is None else str(value) for name, value in named.items()}

    def check(self) -> None:
        """Reads all files, so that damaged ones raise an error now and not later."""
        class_counts(self)
        for part in (self.metrics(), self.sharpness, self.landscape, self.paper):
            del part


class Runs(list[Run]):
    """Runs in the order of their folders."""

    def records(self) -> Records:
        """Returns one row for each run, see `Run.record`."""
        return Records(run.record() for run in self)

    def frame(self) -> Any:
        """Returns one row for each run as a pandas.DataFrame."""
        return self.records().frame()


_MOST_POINTS = 120  # of a landscape along one side, as many as a page draws

# Lines of a kind to read for plots and pages, at most twice as many.
MOST_LINES = 4096

# Reads the lines of a folder, or a selection.
Reader = Callable[[pathlib.Path], Downsampled]


def load_runs(
    folders: Iterable[str | pathlib.Path],
    names: Sequence[str] | None = None,
    most: int | None = None,
    read: Reader | None = None,
    left_out: list[str] | None = None,
) -> Runs:
    """Reads the runs in folders and below them, one for each seed and swept setting.

    Args:
      folders: folders of runs, or folders with runs below; a RunError if there are none.
      names: names for the runs' folders, instead of their own.
      most: the number of lines of a kind to select, at most twice as many; None reads all lines.
      read: a function that reads the lines, instead of `most`.
      left_out: where the reasons are listed why folders cannot be read; None raises the first one.
    """
    workdirs = workdirs_of(folders)
    read = read or (_whole if most is None else functools.partial(read_downsampled, most=most))
    families = names or [""] * len(workdirs)
    texts = list(names or run_names(workdirs))
    if len(set(texts)) < len(texts):
        twice = next(name for name in texts if texts.count(name) > 1)
        raise RunError(f"DIR must not be given twice, got {twice}")
    runs = Runs()
    for workdir, name, family in zip(workdirs, texts, families, strict=True):
        try:
            runs += [dataclasses.replace(run, family=family) for run in _runs(workdir, name, read)]
        except (RunError, ArgumentError) as error:
            if left_out is None:
                raise
            left_out.append(str(error))
    return runs


def workdirs_of(folders: Iterable[str | pathlib.Path]) -> list[pathlib.Path]:
    """Lists the run folders among these and below them; folders without runs are kept, to fail when read."""
    found: list[pathlib.Path] = []
    for folder in map(pathlib.Path, folders):
        is_run = (folder / "config.json").exists()
        found += [folder] if is_run else folders_below(folder) or [folder]
    return found


def _whole(workdir: pathlib.Path) -> Downsampled:
    records = read_metrics(workdir)
    return Downsampled(records, len(records))


def _runs(workdir: pathlib.Path, name: str, read: Reader) -> Iterator[Run]:
    """Yields the runs of one folder, several if it has several trials."""
    about = read_about(workdir)
    with reading(workdir / "config.json"):
        config = from_json(about["config"])
    about = dataclasses.asdict(ConfigFile({})) | about
    result, running = read_result(workdir), is_locked(workdir)
    own = settings_of(config.seeds, config.sweep)
    ends = _ends(result, len(own), workdir / "result.json")
    found, lines = measures(about, name), functools.cache(lambda: read(workdir))
    for number, (each, setting, end) in enumerate(zip(config.each(), own, ends, strict=True)):
        yield Run(
            name=f"{name} ({name_of(setting)})" if config.has_trials else name,
            config=each,
            about=about | {"partition": _partition(about, number)},
            state="running" if running else str(end.get("status", "unfinished")),
            result=end,
            measures=found,
            path=workdir,
            number=number if config.has_trials else None,
            setting=setting,
            read_lines=lines,
        )


def _partition(about: dict[str, Any], number: int) -> dict[str, Any]:
    """Returns the partition of a trial; the first trial's if it has none of its own."""
    own = about["partitions"][number : number + 1]
    found: dict[str, Any] = own[0] if own and isinstance(own[0], dict) else about["partition"]
    return found


def _ends(result: dict[str, Any] | None, count: int, path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the results of each run in a folder, including the shared ones; empty if it has not ended."""
    if result is None or "trials" not in result:
        return [result or {}] * count
    if len(result["trials"]) != count:
        raise damaged(path, f"trials must be a list of {count} objects")
    shared = {name: result[name] for name in OF_ALL if name in result}
    return [shared | end for end in result["trials"]]


def consensus_stages(run: Run) -> list[dict[str, Any]]:
    """Lists a run's sharpness measurements of the consensus model, by step."""
    stages = [stage for stage in (run.sharpness or {}).get("stages", []) if stage["whose"] == "consensus"]
    return sorted(stages, key=lambda stage: stage["step"])


def lambda_over_seeds(stages: Iterable[Mapping[str, Any]]) -> dict[float, Summary]:
    """Summarises the finite values of lambda_max among some runs' stages, by epoch."""
    finite = [stage for stage in stages if stage["lambda_max"] is not None]
    by_epoch = grouped(finite, lambda stage: stage["epoch"])
    return {epoch: summarise([one["lambda_max"] for one in found]) for epoch, found in by_epoch.items()}


def class_counts(run: Run) -> np.ndarray | None:
    """Returns the number of samples of each agent and class, int [A, C]; None if it was not recorded."""
    counts = run.fact("partition", "class_counts")
    if counts is None:
        return None
    try:
        table = np.array(counts, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        table = np.zeros(0, dtype=np.int64)
    if table.ndim != 2 or len(table) != run.config.agents or not table.size or table.min() < 0:
        raise DamagedError(
            f"{run.name}: partition.class_counts of config.json must be counts [agents, classes]"
        )
    return table


def class_names(run: Run, classes: int) -> list[str]:
    """Returns the class names, or the class numbers if names were not recorded."""
    names = run.fact("dataset", "class_names")
    if isinstance(names, list) and len(names) >= classes:
        return [str(name) for name in names[:classes]]
    return [str(number) for number in range(classes)]


def _metrics(lines: Sequence[Record], result: Mapping[str, Any], number: int, passes: Any) -> Records:
    """Returns one run's part of the lines, with the bytes sent and backward passes so far.

    Lines of earlier versions may lack the bytes sent: they are interpolated from the last count, since each
    step costs the same. Backward passes follow from their number per step, a mean over agents and kinds.
    """
    records = Records(of_trial(record, number) for record in lines)
    ends = [*records, *([result] if result else [])]
    for name in ("bytes_sent_per_agent", "paper_bytes_sent_per_agent"):
        counts = [(r.get("step", r.get("steps")), r[name]) for r in ends if r.get(name) is not None]
        step, sent = counts[-1] if counts else (0, 0)
        for record in records if step else []:
            count = record["step"] * sent // step
            if math.isfinite(count):
                record.setdefault(name, count)
    if isinstance(passes, int | float) and abs(passes) < TOO_LARGE:
        for record in records:
            record["backward_passes"] = record["step"] * passes
    return records


def _landscape(path: pathlib.Path) -> dict[str, list[Any]] | None:
    """Reads landscape.npz of `saddle landscape`, transposed to one row of losses per y."""
    arrays = read_arrays(path, ("x", "y", "loss"))
    if arrays is None:
        return None
    x, y, loss = arrays
    if x.ndim != 1 or y.ndim != 1 or loss.shape != (1, len(x), len(y)) or loss.size == 0:
        raise damaged(path, "loss must be [1, n, n] over x [n] and y [n]")
    rows, columns = (
        np.linspace(0, len(axis) - 1, min(len(axis), _MOST_POINTS)).round().astype(int) for axis in (y, x)
    )
    shown = {"x": x[columns], "y": y[rows], "loss": loss[0].T[np.ix_(rows, columns)]}
    return {
        **{name: finite(part.tolist()) for name, part in shown.items()},
        "points": [len(x), len(y)],
    }


# The runs below a folder and their progress.


_LETTERS = 200  # of a setting's text in a list of runs


class Listed(NamedTuple):
    """One folder in a list of runs; unknown fields of an unreadable one are None."""

    run: str  # its folder, relative to the list's root
    state: str  # running, finished, diverged, interrupted, or unreadable
    step: int | None = None
    metric: str | None = None  # the headline metric, such as "accuracy"
    value: float | None = None  # its newest value, as a fraction; None for a sweep
    text: str = "-"  # the value as text
    method: str | None = None
    seed: str | None = None  # or seeds, such as "0,1,2"
    reason: str | None = None  # why it is unreadable


def runs_below(folder: pathlib.Path) -> list[Listed]:
    """Lists every run below `folder`, sorted by path; an unreadable one has a reason."""
    found = []
    for workdir in folders_below(folder):
        label = str(workdir.relative_to(folder)) or "."
        try:
            found.append(listed(workdir, label)[0])
        except RunError as error:
            found.append(Listed(label, "unreadable", reason=str(error)))
    return found


def listed(workdir: pathlib.Path, label: str) -> tuple[Listed, int]:
    """Returns the row of one folder, and its total number of steps, 0 if that is not recorded."""
    about = read_about(workdir)
    with reading(workdir / "config.json"):
        settings = check_each(about["config"])
    headline, steps = measures(about, label)[0], about.get("steps")
    del about  # free the memory: result.json may be large, too
    result, key = read_result(workdir), headline.key
    step = next((record["step"] for record in newest(workdir)), 0)
    last: Mapping[str, Any] = result or {}
    if last.get(key) is None:
        last = next((line for line in newest(workdir, key) if line.get(key) is not None), {})
    score, text = last.get(key), "-"
    if score is not None:
        text = f"{headline.title} {headline.text(score)}"
    if settings["sweep"]:  # a mean over different settings means nothing
        each = [end.get(key) for end in last["trials"]] if "trials" in last else last.get(f"{key}_by_trial")
        numbers = [value for value in each or () if isinstance(value, float)]
        spread = f"{headline.digits(min(numbers))} to {headline.text(max(numbers))}" if numbers else "-"
        score, text = None, f"{headline.title} {spread}"
    row = Listed(
        run=label,
        state="running" if is_locked(workdir) else result["status"] if result else "interrupted",
        step=step or (result or {}).get("steps", 0),
        metric=headline.title,
        value=score,
        text=text,
        method=settings["method"][:_LETTERS],
        seed=(settings["seeds"] or str(settings["seed"]))[:_LETTERS],
    )
    return row, steps if isinstance(steps, int) else 0


def run_rows(runs: Sequence[Listed]) -> list[list[str]]:
    """Lists runs as text, under a header."""
    rows = [["run", "state", "step", "result", "method", "seed"]]
    for run in runs:
        status = ["" if run.step is None else str(run.step), "" if run.reason else run.text]
        rows.append([run.run, run.state, *status, *(each or "" for each in (run.method, run.seed))])
    return rows


# Groups of runs that differ only in the seed: one curve of their mean, with a band of one standard deviation.


def grouped(items: Iterable[Item], key: Callable[[Item], Hashable]) -> dict[Any, list[Item]]:
    """Groups items by a key; groups and their members keep the items' order."""
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def settings_without(run: Run, *names: str) -> str:
    """Returns a run's settings as text, without `names` and those that cannot affect the results."""
    settings = left_out(run.config.to_json(), {"seed", *IRRELEVANT, *names})
    # Runs made from Python objects differ in their name and in the fingerprint of their step.
    return json.dumps([run.family, str(run.fact("computes")), settings])


def seeds_together(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups the runs that differ only in the seed, in their order."""
    return list(grouped(runs, settings_without).values())


def distinct_seeds(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups runs as `seeds_together`, but separates repeated seeds, which are not independent samples."""
    several = []
    for group in seeds_together(runs):
        is_once = len({run.config.seed for run in group}) == len(group)
        several += [group] if is_once else [[run] for run in group]
    return several


def has(group: Sequence[Run], name: str) -> bool:
    """Returns whether there are epochs at which all seeds logged a metric."""
    return bool(common(group, name)[0])


def common(group: Sequence[Run], name: str) -> tuple[list[float], list[list[Any]]]:
    """Returns the epochs at which all seeds logged a metric, and its values [seeds, epochs, ...] there.

    Seeds that diverged are left out of the mean; `labels` says so.
    """
    whole = [run for run in group if run.state != "diverged"] or group
    curves = [dict(zip(*run.curve(name), strict=True)) for run in whole]
    shared = set.intersection(*map(set, curves))
    epochs = [epoch for epoch in curves[0] if epoch in shared]
    return epochs, [[curve[epoch] for epoch in epochs] for curve in curves]


def over_seeds(
    group: Sequence[Run], name: str, x: str = "epoch"
) -> tuple[list[float], np.ndarray, np.ndarray]:
    """Returns epochs, mean and standard deviation over seeds; layers are summed.

    Instead of epochs, `x` may name a metric that all lines have, such as "simulated_seconds", averaged over
    seeds.
    """
    epochs, values = common(group, name)
    table = np.asarray(values, np.float64)
    if table.ndim == 3:
        table = table.sum(axis=2)
    mean, spread = mean_and_std(table)
    if x == "epoch":
        return epochs, mean, spread
    logged, places = common(group, x)
    place = dict(zip(logged, mean_and_std(np.asarray(places))[0].tolist(), strict=True))
    kept = [number for number, epoch in enumerate(epochs) if epoch in place]
    return [place[epochs[number]] for number in kept], mean[kept], spread[kept]


def as_cell(value: Any) -> str:
    """Formats a value for a table: a number with at most 12 digits, a missing one as "-"."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, bool | list | dict):
        return json.dumps(
            json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.12g}"))
        )
    return "-" if value is None else str(value)


def differing(many: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lists the keys whose values differ or are missing in some of the mappings."""
    names, absent = dict.fromkeys(name for one in many for name in one), object()
    return [name for name in names if any(one.get(name, absent) != many[0].get(name, absent) for one in many)]


def labels(groups: Sequence[Sequence[Run]], without: Sequence[str] = ()) -> list[str]:
    """Labels groups by method and the other settings that differ; `without` are options of methods, too."""
    many = [left_out(group[0].config.to_json(), without) for group in groups]
    plain = [] if "method" in without else ["method"]
    named = [
        *plain,
        *(name for name in differing(many) if name not in (*plain, "seed", *IRRELEVANT)),
    ]
    texts = []
    for one, group in zip(many, groups, strict=True):
        alone = (*plain, "partition", "faults", "timing")  # whose text says what it is
        parts = [("" if name in alone else f"{name} ") + as_cell(one[name]) for name in named]
        diverged = sum(run.state == "diverged" for run in group)
        texts.append(", ".join([*parts, *([f"{diverged} of {len(group)} diverged"] if diverged else [])]))
    return texts


def group_labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Labels groups on a page: a single run by its name, others by how they differ from each other."""
    named = [
        group[0].name if len(group) == 1 else (group[0].family or text)
        for group, text in zip(groups, labels(groups), strict=True)
    ]
    return named if len(set(named)) == len(named) else [group[0].name for group in groups]


@dataclasses.dataclass(frozen=True)
class Cell:
    """Results of runs that differ only in the seed: one value for each seed that did not diverge."""

    values: tuple[float, ...]
    diverged: int = 0
    measure: Measure = CLASSIFICATION[0]
    seeds: tuple[int, ...] = ()  # one for each value; empty: unknown

    @property
    def scores(self) -> tuple[float, ...]:
        """The values as displayed: fractions in percent."""
        return tuple(self.measure.factor * value for value in self.values)

    @property
    def summary(self) -> Summary:
        """Summary statistics of the scores."""
        return summarise(self.scores).within(self.measure.bounds)

    @property
    def mean(self) -> float | None:
        """The mean score; None if there is none."""
        return self.summary.mean

    @property
    def by_seed(self) -> dict[int, float]:
        """The scores by seed; empty if a seed occurs twice."""
        once = len(set(self.seeds)) == len(self.values)
        return dict(zip(self.seeds, self.scores, strict=True)) if once and self.seeds else {}

    def of(self, seeds: Container[int]) -> "Cell":
        """Returns the cell restricted to these seeds."""
        once = len(set(self.seeds)) == len(self.values)
        kept = [pair for pair in zip(self.seeds, self.values, strict=True) if once and pair[0] in seeds]
        return dataclasses.replace(
            self, values=tuple(value for _, value in kept), seeds=tuple(seed for seed, _ in kept)
        )

    def minus(self, other: "Cell") -> Summary:
        """Summarises differences over common seeds; without any, the difference of means, with 0 seeds."""
        found = paired(self.by_seed, other.by_seed)
        if not found.seeds and self.mean is not None and other.mean is not None:
            return Summary(0, self.mean - other.mean)
        return found

    def text(self) -> str:
        """Formats the cell, such as "71.20 +- 0.40"; a star marks runs that diverged, as in the paper."""
        star = "*" if self.diverged else ""
        if not self.values:
            return f"diverged{star}" if self.diverged else "-"
        std = self.summary.std
        spread = "" if std is None else f" +- {std:{self.measure.form}}"
        return f"{self.mean:{self.measure.form}}{spread}{star}"

    @property
    def count(self) -> str:
        """Formats the numbers of seeds and of those that diverged."""
        return f"{len(self.values)}" + (f", {self.diverged} diverged" if self.diverged else "")

    def numbers(self, seeds: Sequence[int]) -> list[str]:
        """Returns a CSV row: NUMBERS, then the score of each of these seeds, empty if missing."""
        summary, by_seed = self.summary, self.by_seed
        found = [summary.seeds, *summary[1:], self.diverged, *(by_seed.get(seed) for seed in seeds)]
        return ["" if value is None else f"{value:.12g}" for value in found]


NUMBERS = ("n", "mean", "std", "low", "high", "diverged")


def cell_of(runs: Iterable[Run], measure: Measure | None = None) -> Cell:
    """Returns the cell of runs that differ only in the seed, for their headline or another number."""
    runs = list(runs)
    measure = measure or (headline_of(runs) if runs else CLASSIFICATION[0])
    values = {run: run.value(measure.key) for run in runs if run.state == "finished"}
    known = {run: value for run, value in values.items() if value is not None}
    diverged = sum(run.state == "diverged" for run in runs)
    return Cell(tuple(known.values()), diverged, measure, tuple(run.config.seed for run in known))


def cells_by(
    runs: Iterable[Run], key: Callable[[Run], Hashable], measure: Measure | None = None
) -> dict[Any, Cell]:
    """Groups runs by a key, in their order, and returns the cell of each group."""
    runs = list(runs)
    measure = measure or (headline_of(runs) if runs else None)
    return {key: cell_of(group, measure) for key, group in grouped(runs, key).items()}


def headline_of(runs: Iterable[Run]) -> Measure:
    """Returns the headline metric that runs share; a RunError if they differ."""
    headlines = {run.headline for run in runs}
    if len(headlines) > 1:
        names = ", ".join(sorted(one.title for one in headlines))
        raise RunError(f"runs must be compared by the same metric, got {names}")
    return headlines.pop()


def seeds_of(cells: Iterable[Cell]) -> list[int]:
    """Lists the seeds of some cells, in order."""
    return sorted({seed for cell in cells for seed in cell.seeds})


def run_names(workdirs: Sequence[pathlib.Path]) -> list[str]:
    """Names runs by their folders, or by their paths if two folders have the same name."""
    names = [workdir.resolve().name for workdir in workdirs]
    return names if len(set(names)) == len(names) else [str(workdir) for workdir in workdirs]
