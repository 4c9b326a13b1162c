"""Schemas of the JSON files in a run's folder, as dataclasses; `read` reads and checks all of them.

A field's type is what its value may be, and a field without a default is required. Undeclared names are kept
as they are in config.json; in result.json they are metrics: numbers, or lists of numbers if the name ends in
_each. NaN is read as None if the type allows None; a number that is too large is damage.
"""

import dataclasses
import functools
import math
import pathlib
import types
from dataclasses import field
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from saddle_jax.base.errors import DamagedError
from saddle_jax.base.reading import TOO_LARGE, damaged, read_object, reading


@dataclasses.dataclass
class ConfigFile:
    """config.json: the settings and the environment of a run; it also has undeclared numbers and texts."""

    config: dict[str, Any]
    versions: dict[str, Any] = field(default_factory=dict)
    devices: list[Any] = field(default_factory=list)
    dataset: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)  # its metrics are read by `measures`
    partition: dict[str, Any] = field(default_factory=dict)
    partitions: list[Any] = field(default_factory=list)  # one for each trial
    topology: dict[str, Any] = field(default_factory=dict)
    layers: list[Any] = field(default_factory=list)  # the names of the layers in _by_layer metrics
    continued: list[Any] = field(default_factory=list)  # the earlier settings of a continued run


@dataclasses.dataclass
class LastFinite:
    """The last logged step with a finite loss of a run that diverged; empty if there is none."""

    step: int
    train_loss: float


@dataclasses.dataclass
class End:
    """How one run ended, beside the metrics of its last evaluation."""

    status: Literal["finished", "diverged", "interrupted"]
    diverged_at_step: int = 0
    last_finite: LastFinite | None = None
    params_sha256: str | None = None


@dataclasses.dataclass(kw_only=True)
class ResultFile(End):
    """result.json: how a run ended; for several trials their means, and each of them."""

    steps: int
    seconds: float
    bytes_sent_per_agent: float
    paper_bytes_sent_per_agent: float
    ready_seconds: float = 0.0
    profile: dict[str, float] = field(default_factory=dict)
    diverged: int = 0
    trials: list[End] = field(default_factory=list)
    swept: list[str] = field(default_factory=list)
    settings: list[dict[str, float]] = field(default_factory=list)  # means over the seeds of each combination


# Non-negative numbers that all trials of a folder share.
_COUNTS = ("steps", "seconds", "ready_seconds", "bytes_sent_per_agent", "paper_bytes_sent_per_agent")
OF_ALL = (*_COUNTS, "profile")


@dataclasses.dataclass
class Stage:
    """Measurements of one model's Hessian, an entry of sharpness.json."""

    step: int
    epoch: float
    whose: Literal["consensus"] | int
    density: dict[str, list[float | None]] | None = None  # of the spectrum: y at x
    lambda_max: float | None = None
    lambda_min: float | None = None
    residual: float | None = None
    trace: float | None = None
    trace_error: float | None = None


@dataclasses.dataclass
class SharpnessFile:
    """sharpness.json: measurements of Hessians, and their settings."""

    stages: list[Stage]


@dataclasses.dataclass
class PaperFile:
    """paper.json: the published figure that a run reproduces."""

    table: Any = None
    row: Any = None
    paper: Any = None
    scale: Any = None


@dataclasses.dataclass
class Evaluation:
    """Metrics of one model, computed after training."""

    run: dict[str, Any]  # seed and swept settings of a trial
    whose: Literal["consensus"] | int
    step: int
    metrics: dict[str, Any]


@dataclasses.dataclass
class EvaluationFile:
    """evaluation.json: the results of `saddle evaluate`."""

    evaluations: list[Evaluation]


def read(path: pathlib.Path, schema: type, remedy: str = "") -> dict[str, Any] | None:
    """Reads and checks a JSON file; returns None if there is no such file.

    Raises:
      DamagedError: it does not match the schema; `remedy` says what to do.
    """
    content = read_object(path)
    if content is None:
        return None
    with reading(path, remedy):
        return checked(content, schema)


def checked(content: dict[str, Any], schema: type) -> dict[str, Any]:
    """Checks an object against a schema; a ValueError says what is wrong."""
    hints, needed = _declared(schema)
    if missing := [name for name in needed if name not in content]:
        raise ValueError(f"{', '.join(missing)} must be there")
    other = [list[float | None] | None, float | None] if issubclass(schema, End) else [Any, Any]
    return {
        name: _parsed(value, hints.get(name, other[not name.endswith("_each")]), name)
        for name, value in content.items()
    }


@functools.cache
def _declared(schema: type) -> tuple[dict[str, Any], list[str]]:
    """Returns the declared types by name, and the required names."""
    empty, fields = dataclasses.MISSING, dataclasses.fields(schema)
    return get_type_hints(schema), [f.name for f in fields if f.default is f.default_factory is empty]


_WORDS = {int: "a whole number", float: "a number", str: "text", dict: "an object", list: "a list"}


def _parsed(value: Any, hint: Any, name: str) -> Any:
    """Checks a value against a type; NaN becomes None if the type allows it."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind is Any or (kind is Literal and value in inner):
        return value
    if kind in (types.UnionType, Union):
        if value is None or (type(None) in inner and value != value):
            return None
        hint = next((one for one in inner if get_origin(one) is Literal and value in get_args(one)), None)
        return _parsed(value, hint or next(one for one in reversed(inner) if one is not type(None)), name)
    if kind is dict and isinstance(value, dict):
        return {key: _parsed(one, inner[1], key) for key, one in value.items()}
    if kind is list and isinstance(value, list):
        return [_parsed(one, inner[0], name) for one in value]
    if dataclasses.is_dataclass(hint) and isinstance(value, dict) and isinstance(hint, type):
        return checked(value, hint) if value or hint is not LastFinite else {}
    numbers = (int, float) if kind is float else (kind,)
    if type(value) in numbers and (kind is str or abs(value) < TOO_LARGE):
        return value
    allowed = f"one of {', '.join(inner)}" if kind is Literal else _WORDS.get(kind, "an object")
    raise ValueError(f"{str(name)[:40]} must be {allowed}, got {str(value)[:40]!r}")


def finite(value: Any) -> Any:
    """Replaces infinite, NaN and huge numbers by None, also in lists."""
    if isinstance(value, list):
        return [finite(one) for one in value]
    return value if value is None or -TOO_LARGE < value < TOO_LARGE else None


def read_result(workdir: pathlib.Path) -> dict[str, Any] | None:
    """Reads result.json, for one or several trials; returns None if the run has not ended."""
    path, remedy = workdir / "result.json", "remove it to continue from the newest checkpoint"
    result = read(path, ResultFile, remedy)
    if result is None:
        return None
    with reading(path, remedy):
        if wrong := [name for name in _COUNTS if not result.get(name, 0) >= 0]:
            raise ValueError(f"{wrong[0]} must be a number >= 0, got {result[wrong[0]]}")
        if "profile" in result and not sum(result["profile"].values()) > 0:
            raise ValueError("profile must have times")
        if "trials" in result and not (result["trials"] and "diverged" in result):
            raise ValueError("trials must be a list of objects, with how many diverged")
    return result


def read_sharpness(path: pathlib.Path) -> dict[str, Any] | None:
    """Reads sharpness.json; what was not measured is None."""
    remedy = "remove it to measure again"
    content = read(path, SharpnessFile, remedy)
    if content is None:
        return None
    absent = dict.fromkeys(field.name for field in dataclasses.fields(Stage))
    if not all({"x", "y"} <= {*(stage.get("density") or "xy")} for stage in content["stages"]):
        raise damaged(path, "the density of a stage must have x and y", remedy)
    return {**content, "stages": [absent | stage for stage in content["stages"]]}


def read_evaluations(path: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the evaluations in evaluation.json; none if there is no file."""
    found = read(path, EvaluationFile, "remove it to write a new one") or {"evaluations": []}
    evaluations: list[dict[str, Any]] = found["evaluations"]
    return evaluations


# The metrics of a run as recorded in its config.json: their names and formats.


class Measure(NamedTuple):
    """An evaluation metric, or another number by which runs are compared."""

    name: str
    better: str  # "higher" or "lower"
    title: str
    percent: bool  # whether it is a fraction, shown in percent
    other: str = ""  # the number's name in the run's files; empty: test_NAME, of the consensus model

    @property
    def key(self) -> str:
        """The name of the number in metrics.jsonl and result.json."""
        return self.other or f"test_{self.name}"

    @property
    def form(self) -> str:
        """The format of the number, without its unit."""
        return ".2f" if self.percent else ".4g"

    def ranked(self, value: float) -> float:
        """Returns a sort key that puts better values first."""
        return -value if self.better == "higher" else value

    @property
    def factor(self) -> int:
        """The factor for display: 100 for percentages."""
        return 100 if self.percent else 1

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of displayed values: 0 to 100 for percentages."""
        return (0.0, 100.0) if self.percent else (-math.inf, math.inf)

    @property
    def unit(self) -> str:
        """The unit in headings, for numbers without a percent sign."""
        return ", %" if self.percent else ""

    def text(self, value: float) -> str:
        """Formats a value with its unit, such as "95.28 %" or "12.04"."""
        return f"{self.digits(value)} %" if self.percent else self.digits(value)

    def digits(self, value: float) -> str:
        """Formats a value without its unit, such as "95.28" or "12.04"."""
        return f"{self.factor * value:{self.form}}"


_MOST = 100  # metrics of a run
# The objective of runs whose config.json does not record it.
CLASSIFICATION = (
    Measure("accuracy", "higher", "accuracy", True),
    Measure("loss", "lower", "loss", False),
)


def measures(about: dict[str, Any], where: str) -> tuple[Measure, ...]:
    """Returns the metrics that config.json records, headline first; `where` names the run in an error."""
    objective = about.get("objective")
    if not objective:
        return CLASSIFICATION
    listed = objective.get("metrics") if isinstance(objective, dict) else None
    try:
        found = tuple(
            Measure(str(one["name"])[:60], str(one["better"]), str(one["title"])[:60], one["percent"] is True)
            for one in listed or ()
        )
    except (TypeError, KeyError) as error:
        raise DamagedError(f"{where}: objective of config.json must list metrics") from error
    if any(one.better not in ("higher", "lower", "") for one in found):
        raise DamagedError(f"{where}: objective of config.json must say higher or lower of metrics")
    if len(found) > _MOST:
        raise DamagedError(f"{where}: objective of config.json must list at most {_MOST} metrics")
    if not found or len({one.name for one in found}) < len(found):
        raise DamagedError(f"{where}: objective of config.json must list metrics with different names")
    return found
