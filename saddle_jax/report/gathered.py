"""What run folders say, read once and checked: the material of pages and figures."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from saddle_jax.base.errors import DamagedError, RunError
from saddle_jax.base.reading import TOO_LARGE, damaged, read_arrays, read_object
from saddle_jax.report.measures import CLASSIFICATION, Measure, measures
from saddle_jax.runs.downsample import Thinned, read_thinned
from saddle_jax.runs.metrics import Record, read_metrics
from saddle_jax.runs.run_folder import is_locked, read_about, read_config
from saddle_jax.runs.schema import read_result
from saddle_jax.settings.config import Config
from saddle_jax.settings.sweep import name_of, of_replica, settings_of


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
Reader = Callable[[pathlib.Path], Thinned]


def gather(
    workdirs: Sequence[pathlib.Path],
    names: Sequence[str] | None = None,
    most: int | None = None,
    read: Reader | None = None,
) -> list[Run]:
    """Reads the runs in folders, each replica a run; a folder that holds none is a RunError.

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


def _whole(workdir: pathlib.Path) -> Thinned:
    records = read_metrics(workdir)
    return Thinned(records, len(records))


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
        ending = f"-{number}" if config.has_replicas else ""
        run = Run(
            name=f"{name} ({name_of(setting)})" if config.has_replicas else name,
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
    """Returns what config.json says, with the partition of one replica in place of the first one's."""
    partitions = about["partitions"]
    is_recorded = number < len(partitions) and isinstance(partitions[number], dict)
    return about | {"partition": partitions[number] if is_recorded else about["partition"]}


def _ends(result: dict[str, Any] | None, count: int, path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns how each run of a folder ended: its own part of result.json and the shared one, or nothing."""
    if result is None or "replicas" not in result:
        return [result or {}] * count
    each = result["replicas"]
    if not isinstance(each, list) or len(each) != count or not all(isinstance(end, dict) for end in each):
        raise damaged(path, f"replicas must be a list of {count} objects")
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
    """Returns the lines, of a replica its part, with how much had been sent and computed by then.

    Lines of older versions may not say what had been sent: each step costs the same, and the last count gives
    all. So do the backward passes of a step, the mean over its agents and kinds.
    """
    path = workdir / "metrics.jsonl"
    records = [_cleaned(of_replica(record, number), path) for record in lines]
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
