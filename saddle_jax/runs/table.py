"""What run folders say, read once and checked: the material of pages and figures."""

import dataclasses
import functools
import json
import math
import pathlib
import statistics
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from saddle_jax.base.errors import DamagedError, RunError
from saddle_jax.base.reading import TOO_LARGE, damaged, read_arrays, read_object
from saddle_jax.base.statistics import Summary, paired, summarise
from saddle_jax.runs.downsample import Downsampled, read_thinned
from saddle_jax.runs.metrics import Record, newest, read_metrics
from saddle_jax.runs.run_folder import folders_below, is_locked, read_about, read_config, read_settings
from saddle_jax.runs.schema import CLASSIFICATION, Measure, measures, read_result, same
from saddle_jax.runs.source_files import short
from saddle_jax.settings.config import IRRELEVANT, Config, value_of
from saddle_jax.settings.sweep import name_of, of_trial, settings_of


@dataclasses.dataclass(frozen=True)
class Run:
    """All that the folder of one run holds.

    Attributes:
      name: the folder's, or its path where two have the same.
      config: the settings.
      about: what else config.json says: versions, devices, dataset, partition, ...
      state: finished, diverged, interrupted (stopped in order), running, or unfinished (it was killed).
      result: result.json; empty where the run has not ended.
      metrics: the lines of metrics.jsonl, or some of them: finite numbers, None, or lists of these.
      lines: how many lines metrics.jsonl has.
      sharpness: sharpness.json, if there is one.
      landscape: x [n], y [n] and loss [n, n] of this run, a row for each y, from its landscape.npz; of a
        large one some rows and columns, and how many `points` there are.
      paper: paper.json, the published figure that this run reproduces.
      measures: the metrics of its evaluations, the one that tables show first.
      family: the name that was given to it and to all runs of its folder; "" if none was.
    """

    name: str
    config: Config
    about: dict[str, Any]
    state: str
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    sharpness: dict[str, Any] | None = None
    landscape: dict[str, list] | None = None
    paper: dict[str, str] | None = None
    measures: tuple[Measure, ...] = CLASSIFICATION
    family: str = ""
    lines: int = 0

    @property
    def headline(self) -> Measure:
        """Returns the metric that tables show first."""
        return self.measures[0]

    def score(self) -> float | None:
        """Returns the headline's number of a run that finished; None if it has none."""
        return self.result.get(self.headline.key) if self.state == "finished" else None

    @property
    def last_step(self) -> int:
        """Returns the last step that was logged, or 0."""
        return self.metrics[-1]["step"] if self.metrics else 0

    def fact(self, *path: str) -> Any:
        """Returns what config.json says at a path beside the settings; None where it says nothing there."""
        value: Any = self.about
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def curve(self, name: str, x: str = "epoch") -> tuple[list[float], list[Any]]:
        """Returns the epochs (or steps, bytes) at which a metric was logged, and its values."""
        points = [(r[x], r[name]) for r in self.metrics if r.get(name) is not None and r.get(x) is not None]
        return [point[0] for point in points], [point[1] for point in points]


_MOST_POINTS = 120  # of a landscape along one side, as many cells as a page draws

# Lines of a kind that are read, twice as many at most, for drawings and pages.
MOST_LINES = 4096

# Reads the lines of a folder, all or some.
Reader = Callable[[pathlib.Path], Downsampled]


def gather(
    workdirs: Sequence[pathlib.Path],
    names: Sequence[str] | None = None,
    most: int | None = None,
    read: Reader | None = None,
) -> list[Run]:
    """Reads the runs in folders, each trial a run; a folder that holds none is a RunError.

    Args:
      workdirs: the folders.
      names: of the folders, in place of their own.
      most: how many lines of a kind to read, twice as many at most; None reads all of them.
      read: reads the lines, in place of that.
    """
    read = read or (_whole if most is None else functools.partial(read_thinned, most=most))
    families = list(names or [""] * len(workdirs))
    names = list(names or [workdir.resolve().name for workdir in workdirs])
    if len(set(names)) < len(names):
        names = [str(workdir) for workdir in workdirs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RunError(f"DIR must not be given twice, got {twice}")
    runs = [_read(workdir, name, read) for workdir, name in zip(workdirs, names, strict=True)]
    return [
        dataclasses.replace(run, family=family)
        for family, several in zip(families, runs, strict=True)
        for run in several
    ]


def _whole(workdir: pathlib.Path) -> Downsampled:
    records = read_metrics(workdir)
    return Downsampled(records, len(records))


def _read(workdir: pathlib.Path, name: str, read: Reader) -> list[Run]:
    config, result = read_config(workdir), read_result(workdir)
    objects = ("versions", "dataset", "objective", "partition", "topology")
    lists = ("devices", "layers", "partitions")
    absent: dict[str, Any] = {part: {} for part in objects} | {part: [] for part in lists}
    about = absent | read_about(workdir)
    running, lines = is_locked(workdir), read(workdir)
    own = settings_of(config.seeds, config.sweep)
    ends = _ends(result, len(own), workdir / "result.json")
    runs = []
    for number, (each, setting, end) in enumerate(zip(config.each(), own, ends, strict=True)):
        ending = f"-{number}" if config.has_trials else ""
        run = Run(
            name=f"{name} ({name_of(setting)})" if config.has_trials else name,
            config=each,
            about=_about(about, number),
            state="running" if running else str(end.get("status", "unfinished")),
            result=_cleaned(end, workdir / "result.json"),
            metrics=_metrics(workdir, lines.records, end, number, about.get("passes_per_step")),
            lines=lines.lines,
            sharpness=_sharpness(workdir / f"sharpness{ending}.json"),
            landscape=_landscape(workdir / f"landscape{ending}.npz"),
            paper=_paper(workdir / "paper.json"),
            measures=measures(about, name),
        )
        class_counts(run)  # refuses what is no table of counts
        runs.append(run)
    return runs


def _about(about: dict[str, Any], number: int) -> dict[str, Any]:
    """Returns what config.json says, with the partition of one trial in place of the first one's."""
    partitions = about["partitions"]
    is_recorded = number < len(partitions) and isinstance(partitions[number], dict)
    return about | {"partition": partitions[number] if is_recorded else about["partition"]}


def _ends(result: dict[str, Any] | None, count: int, path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns how each run of a folder ended: its own part of result.json and the shared one, or nothing."""
    if result is None or "trials" not in result:
        return [result or {}] * count
    each = result["trials"]
    if not isinstance(each, list) or len(each) != count or not all(isinstance(end, dict) for end in each):
        raise damaged(path, f"trials must be a list of {count} objects")
    shared = (
        "steps",
        "seconds",
        "ready_seconds",
        "bytes_sent_per_agent",
        "paper_bytes_sent_per_agent",
        "profile",
    )
    return [{name: result[name] for name in shared if name in result} | end for end in each]


def consensus_stages(run: Run) -> list[dict[str, Any]]:
    """Lists the stages at which the sharpness of a run's consensus model was measured, in their order."""
    stages = [stage for stage in (run.sharpness or {}).get("stages", []) if stage["whose"] == "consensus"]
    return sorted(stages, key=lambda stage: stage["step"])


def class_counts(run: Run) -> np.ndarray | None:
    """Returns how many samples of each class each agent holds, int [A, C]; None where it was not recorded."""
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
    """Returns a name per class; the classes' numbers where the names were not recorded."""
    names = run.fact("dataset", "class_names")
    if isinstance(names, list) and len(names) >= classes:
        return [str(name) for name in names[:classes]]
    return [str(number) for number in range(classes)]


def _metrics(
    workdir: pathlib.Path, lines: Sequence[Record], result: dict[str, Any], number: int, passes: Any
) -> list[Record]:
    """Returns the lines, of a trial its part, with how much had been sent and computed by then.

    Lines of older versions may not say what had been sent: each step costs the same, and the last count gives
    all. So do the backward passes of a step, the mean over its agents and kinds.
    """
    path = workdir / "metrics.jsonl"
    records = [_cleaned(of_trial(record, number), path) for record in lines]
    ends = [*records, *([result] if result else [])]
    for name in ("bytes_sent_per_agent", "paper_bytes_sent_per_agent"):
        counts = [(r.get("step", r.get("steps")), r[name]) for r in ends if r.get(name) is not None]
        step, sent = counts[-1] if counts else (0, 0)
        for record in records if step else []:
            count = record["step"] * sent // step
            if math.isfinite(count):
                record.setdefault(name, count)
    if isinstance(passes, int | float) and abs(passes) < TOO_LARGE:
        records = [{**record, "backward_passes": record["step"] * passes} for record in records]
    return records


# What may be more than a number: in metrics, lists; in result.json, also texts and tables.
_LISTS = ("x", "y", "loss")
_OTHERS = ("status", "params_sha256", "profile", "last_finite")


def _cleaned(record: dict[str, Any], path: pathlib.Path) -> dict[str, Any]:
    """Checks that values are numbers, or lists where those are allowed; what is not finite becomes None."""

    def clean(name: str, value: Any) -> Any:
        if value is None or name in _OTHERS:
            return value
        if isinstance(value, list) and (name in _LISTS or name.endswith(("_by_layer", "_each"))):
            return [clean(name, one) for one in value]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise damaged(path, f"{name[:40]!r} must be a number, got {str(value)[:40]!r}")
        return value if -TOO_LARGE < value < TOO_LARGE else None

    return {str(name): clean(str(name), value) for name, value in record.items()}


def _sharpness(path: pathlib.Path) -> dict[str, Any] | None:
    content = read_object(path)
    if content is None:
        return None
    try:
        numbers = ("step", "epoch", "lambda_max", "lambda_min", "residual", "trace", "trace_error")
        stages = [
            {
                **_cleaned({name: stage.get(name) for name in numbers}, path),
                "whose": str(stage["whose"]),
                "density": stage.get("density")
                and _cleaned({axis: list(stage["density"][axis]) for axis in ("x", "y")}, path),
            }
            for stage in content["stages"]
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(path, "it has no stages of a sharpness measurement") from error
    about = {name: str(content.get(name)) for name in ("data", "images", "iterations")}
    return {**about, "stages": stages}


def _landscape(path: pathlib.Path) -> dict[str, list] | None:
    """Reads what `saddle landscape` left in the run's folder; the page wants a row of losses for each y."""
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
        **_cleaned({name: part.tolist() for name, part in shown.items()}, path),
        "points": [len(x), len(y)],
    }


def _paper(path: pathlib.Path) -> dict[str, str] | None:
    content = read_object(path)
    if content is None:
        return None
    named = {name: content.get(name) for name in ("table", "row", "paper", "scale")}
    return {name: "-" if value is None else str(value) for name, value in named.items()}


# The runs below a folder and how far each has come.


LETTERS = 200  # of a setting in a list of runs


class Listed(NamedTuple):
    """One run of a list; what a folder that cannot be read does not say is None."""

    run: str  # its folder, from where the list begins
    state: str  # running, finished, diverged, interrupted, or unreadable
    step: int | None = None
    metric: str | None = None  # what it is judged by, such as "accuracy"
    value: float | None = None  # the newest; a share, not a percentage; None of a sweep
    text: str = "-"  # the same as people read it
    method: str | None = None
    compressor: str | None = None
    seed: str | None = None  # or seeds, such as "0,1,2"
    reason: str | None = None  # why it is unreadable


def runs_below(folder: pathlib.Path) -> list[Listed]:
    """Reads every run below `folder`, in the order of their paths."""
    return [_listed(workdir, str(workdir.relative_to(folder)) or ".") for workdir in folders_below(folder)]


def run_rows(runs: Sequence[Listed]) -> list[list[str]]:
    """Lists runs as text, under a header."""
    rows = [["run", "state", "step", "result", "method", "compressor", "seed"]]
    for run in runs:
        told = ["" if run.step is None else str(run.step), "" if run.reason else run.text]
        rows.append(
            [run.run, run.state, *told, *(each or "" for each in (run.method, run.compressor, run.seed))]
        )
    return rows


def _listed(workdir: pathlib.Path, label: str) -> Listed:
    try:
        settings, headline = read_settings(workdir), measures(read_about(workdir), label)[0]
        result = read_result(workdir)
        step, record = _newest(workdir, headline.key)
    except RunError as error:
        return Listed(label, "unreadable", reason=str(error))
    score, text = record.get(headline.key), "-"
    if score is not None:
        text = f"{headline.title} {headline.text(score)}"
    if settings["sweep"]:  # numbers of different settings have no mean
        each = [x for x in record.get(f"{headline.key}_by_trial") or () if isinstance(x, float)]
        spread = f"{headline.digits(min(each))} to {headline.text(max(each))}" if each else "-"
        score, text = None, f"{headline.title} {spread}"
    return Listed(
        run=label,
        state="running" if is_locked(workdir) else result["status"] if result else "interrupted",
        step=step,
        metric=headline.title,
        value=score,
        text=text,
        method=settings["method"][:LETTERS],
        compressor=settings["compressor"][:LETTERS],
        seed=(settings["seeds"] or str(settings["seed"]))[:LETTERS],
    )


def _newest(workdir: pathlib.Path, key: str) -> tuple[int, dict[str, Any]]:
    """Returns the last step that was logged, 0 for none, and the newest line with a metric, if any."""
    step = next((record["step"] for record in newest(workdir)), 0)
    return step, next((line for line in newest(workdir, key) if line.get(key) is not None), {})


# Runs that differ in the seed alone: one line, their mean, with a band of one standard deviation.


def settings_without(run: Run, *names: str) -> str:
    """Returns a run's settings as text, without some and without those that cannot change a number."""
    left_out = {"seed", *IRRELEVANT, *names}
    settings = {name: value for name, value in run.config.to_json().items() if name not in left_out}
    # What settings do not tell of a run that is made of objects, its name and its fingerprint do.
    return json.dumps([run.family, str(run.fact("computes")), settings])


def seeds_together(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups the runs that differ in the seed alone, in the order given."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(settings_without(run), []).append(run)
    return list(groups.values())


def distinct_seeds(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups the runs as above, but each by itself where a seed was run twice: those are no two samples."""
    several = []
    for group in seeds_together(runs):
        is_once = len({run.config.seed for run in group}) == len(group)
        several += [group] if is_once else [[run] for run in group]
    return several


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean and the standard deviation, which is 0 for one value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def has(group: Sequence[Run], name: str) -> bool:
    """Tells whether there is a line to draw: epochs at which all seeds logged a metric."""
    return bool(common(group, name)[0])


def common(group: Sequence[Run], name: str) -> tuple[list[float], list[list[Any]]]:
    """Returns the epochs at which all seeds logged a metric, and its values [seeds, epochs, ...] there.

    A seed that diverged has no part in the others' mean; `labels` says so.
    """
    whole = [run for run in group if run.state != "diverged"] or group
    curves = [dict(zip(*run.curve(name), strict=True)) for run in whole]
    epochs = [epoch for epoch in curves[0] if all(epoch in curve for curve in curves)]
    return epochs, [[curve[epoch] for epoch in epochs] for curve in curves]


def over_seeds(
    group: Sequence[Run], name: str, x: str = "epoch"
) -> tuple[list[float], np.ndarray, np.ndarray]:
    """Returns epochs, mean and standard deviation over seeds; layers are summed.

    In place of epochs, `x` may name a metric that all lines have, such as "simulated_seconds": its mean.
    """
    epochs, values = common(group, name)
    table = np.asarray(values, np.float64)
    if table.ndim == 3:
        table = table.sum(axis=2)
    mean, spread = table.mean(axis=0), table.std(axis=0, ddof=min(1, len(table) - 1))
    if x == "epoch":
        return epochs, mean, spread
    logged, places = common(group, x)
    place = dict(zip(logged, np.mean(places, axis=0).tolist(), strict=True))
    kept = [number for number, epoch in enumerate(epochs) if epoch in place]
    return [place[epochs[number]] for number in kept], mean[kept], spread[kept]


def labels(groups: Sequence[Sequence[Run]], without: Sequence[str] = ()) -> list[str]:
    """Labels groups by method, by compressor if there is any, and by whatever else differs between them."""
    many = [group[0].config.to_json() for group in groups]
    differing = [name for name in many[0] if any(one[name] != many[0][name] for one in many)]
    compressed = any(one["compressor"] != "none" for one in many)
    always = ("method", "compressor") if compressed else ("method",)
    plain = [name for name in always if name not in without]
    named = [*plain, *(name for name in differing if name not in (*plain, "seed", *IRRELEVANT, *without))]
    texts = []
    for one, group in zip(many, groups, strict=True):
        alone = (*plain, "partition", "faults", "timing")  # whose text says what it is
        parts = [str(one[name]) if name in alone else f"{name} {one[name]}" for name in named]
        diverged = sum(run.state == "diverged" for run in group)
        texts.append(", ".join([*parts, *([f"{diverged} of {len(group)} diverged"] if diverged else [])]))
    return texts


def group_labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Names groups on a page: a run by its own name, several seeds by what tells them from other groups."""
    named = [
        group[0].name if len(group) == 1 else (group[0].family or text)
        for group, text in zip(groups, labels(groups), strict=True)
    ]
    return named if len(set(named)) == len(named) else [group[0].name for group in groups]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One setting's scores, accuracies in percent, one per finished seed, and how many runs diverged."""

    scores: tuple[float, ...]
    diverged: int = 0
    digits: str = ".2f"
    seeds: tuple[int, ...] = ()  # of the scores, in their order; empty: not known
    bounds: tuple[float, float] = (-math.inf, math.inf)  # between which every score lies

    @property
    def summary(self) -> Summary:
        """Returns mean, deviation and interval over seeds."""
        return summarise(self.scores).within(self.bounds)

    @property
    def mean(self) -> float | None:
        """Returns the mean score; None if no run finished."""
        return self.summary.mean

    @property
    def by_seed(self) -> dict[int, float]:
        """Returns the scores by seed; none if a seed has several."""
        once = len(set(self.seeds)) == len(self.scores)
        return dict(zip(self.seeds, self.scores, strict=True)) if once and self.seeds else {}

    def of(self, seeds: Container[int]) -> "Cell":
        """Returns the scores of these seeds alone."""
        kept = {seed: score for seed, score in self.by_seed.items() if seed in seeds}
        return dataclasses.replace(self, scores=tuple(kept.values()), seeds=tuple(kept))

    def minus(self, other: "Cell") -> Summary:
        """Returns the difference over the seeds of both; without any, that of the means, counted as 0."""
        found = paired(self.by_seed, other.by_seed)
        if not found.seeds and self.mean is not None and other.mean is not None:
            return Summary(0, self.mean - other.mean)
        return found

    def text(self, plus_minus: str = "+-") -> str:
        """Formats the cell, such as "71.20 +- 0.40"; a star marks runs that diverged, as in the paper."""
        star = "*" if self.diverged else ""
        if not self.scores:
            return f"diverged{star}" if self.diverged else "-"
        std = self.summary.std
        spread = "" if std is None else f" {plus_minus} {std:{self.digits}}"
        return f"{self.mean:{self.digits}}{spread}{star}"


def cells_by(workdirs: Sequence[pathlib.Path], axes: Sequence[str]) -> dict[tuple[Any, ...], Cell]:
    """Returns cells by the settings that tell them apart, from the runs that have ended, also of sweeps."""
    headline = headline_of(workdirs)
    ended_by_cell: dict[tuple[Any, ...], list[_Ended]] = {}
    for config, result in (ended for workdir in workdirs for ended in _ended(workdir)):
        key = tuple(short(axis, value_of(config, axis)) for axis in axes)
        ended_by_cell.setdefault(key, []).append((config, result))
    return {key: _cell(ended, headline) for key, ended in ended_by_cell.items()}


def headline_of(workdirs: Sequence[pathlib.Path]) -> Measure:
    """Returns the metric by which runs are compared; runs of different ones are a RunError."""
    return same([measures(read_about(workdir), str(workdir)) for workdir in workdirs])


def cell_of(workdirs: Sequence[pathlib.Path]) -> Cell:
    """Returns the cell of runs that differ in the seed only, one or several to a folder, if they ended."""
    ended = [one for workdir in workdirs for one in _ended(workdir)]
    return _cell(ended, headline_of(workdirs) if workdirs else CLASSIFICATION[0])


_Ended = tuple[Config, dict[str, Any]]


def _ended(workdir: pathlib.Path) -> list[_Ended]:
    """Returns settings and result of each run of a folder; of none if they have not ended."""
    result = read_result(workdir)
    if result is None:
        return []
    configs, results = read_config(workdir).each(), result.get("trials", [result])
    if len(configs) != len(results):
        raise damaged(workdir / "result.json", f"trials must be a list of {len(configs)} objects")
    return list(zip(configs, results, strict=True))


def _cell(ended: Sequence[_Ended], headline: Measure) -> Cell:
    finished = [(config, result) for config, result in ended if result["status"] == "finished"]
    return Cell(
        tuple(headline.factor * result[headline.key] for _, result in finished),
        sum(result["status"] == "diverged" for _, result in ended),
        ".2f" if headline.percent else ".4g",
        tuple(config.seed for config, _ in finished),
        headline.bounds,
    )


NUMBERS = ("n", "mean", "std", "low", "high", "diverged")


def numbers_of(cell: Cell, seeds: Sequence[int]) -> list[str]:
    """Lists a cell's NUMBERS, then the score of each of these seeds, as a CSV has them; empty: none."""
    summary, by_seed = cell.summary, cell.by_seed
    found = [summary.seeds, *summary[1:], cell.diverged, *(by_seed.get(seed) for seed in seeds)]
    return ["" if value is None else f"{value:.12g}" for value in found]


def seeds_of(cells: Iterable[Cell]) -> list[int]:
    """Lists the seeds of some cells, in order."""
    return sorted({seed for cell in cells for seed in cell.seeds})


def run_names(workdirs: Sequence[pathlib.Path]) -> list[str]:
    """Names runs in tables and pictures: by their folders, or by whole paths if two are alike."""
    names = [workdir.resolve().name for workdir in workdirs]
    return names if len(set(names)) == len(names) else [str(workdir) for workdir in workdirs]
