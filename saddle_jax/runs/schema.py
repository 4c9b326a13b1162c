"""What the JSON files of a run's folder say: a dataclass declares each, and `read` reads and checks them all.

A declaration lists names with what may stand there; names without a default must be there. What is not
declared stays as it is in config.json. In result.json it is a metric: a number, or a list of numbers where
its name ends in _each. NaN is read as None, and a number too large to compute with is damage.
"""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Annotated, Any, NamedTuple, get_type_hints

from saddle_jax.base.errors import DamagedError, RunError
from saddle_jax.base.reading import TOO_LARGE, damaged, read_object

STATUSES = ("finished", "diverged", "interrupted")


class Kind(NamedTuple):
    """What may stand at a name, in words and as a check."""

    told: str
    holds: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and not abs(value) >= TOO_LARGE  # NaN is one, and read as None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_score(value: Any) -> bool:
    return value is None or _is_number(value)


def _all(value: Any, kind: type[list] | type[dict], holds: Callable[[Any], bool]) -> bool:
    if not isinstance(value, kind):
        return False
    return all(map(holds, value.values() if isinstance(value, dict) else value))


def _is_density(value: Any) -> bool:
    return value is None or (_all(value, dict, _is_curve) and {"x", "y"} <= value.keys())


def _is_curve(value: Any) -> bool:
    return _all(value, list, _is_score)


def _is_last_finite(value: Any) -> bool:
    if not isinstance(value, dict):
        return value is None
    return not value or all(_is_number(value.get(name)) for name in ("step", "train_loss"))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


_NUMBER = Kind("a number", _is_score)
_NUMBERS = Kind("a list of numbers", lambda value: value is None or _all(value, list, _is_score))

Text = Annotated[str, Kind("text", _is_text)]
Whole = Annotated[int, Kind("a whole number", _is_whole)]
Count = Annotated[float, Kind("a number >= 0", _is_count)]
Number = Annotated[float | None, _NUMBER]
Whose = Annotated[
    str | int, Kind("consensus or an agent", lambda value: value == "consensus" or _is_whole(value))
]
Object = Annotated[dict[str, Any], Kind("an object", _is_object)]
List = Annotated[list[Any], Kind("a list", lambda value: isinstance(value, list))]
Objects = Annotated[
    list[dict[str, Any]], Kind("a list of objects", lambda value: _all(value, list, _is_object))
]


@dataclasses.dataclass
class ConfigFile:
    """config.json: the settings, and with what they were run; it also has single numbers and texts."""

    config: Object
    versions: Object = field(default_factory=dict)
    devices: List = field(default_factory=list)
    dataset: Object = field(default_factory=dict)
    objective: Object = field(default_factory=dict)  # its metrics are read by `measures`
    partition: Object = field(default_factory=dict)
    partitions: List = field(default_factory=list)  # of each of several runs
    topology: Object = field(default_factory=dict)
    layers: List = field(default_factory=list)  # what the _by_layer metrics are of
    continued: List = field(default_factory=list)  # from which settings it went on


@dataclasses.dataclass
class End:
    """How one run ended; its last evaluation's metrics stand beside these."""

    status: Annotated[str, Kind(f"one of {', '.join(STATUSES)}", lambda value: value in STATUSES)]
    diverged_at_step: Whole = 0
    last_finite: Annotated[dict[str, float] | None, Kind("a step and its loss", _is_last_finite)] = None
    params_sha256: Annotated[str | None, Kind("text", lambda value: value is None or _is_text(value))] = None


@dataclasses.dataclass(kw_only=True)
class ResultFile(End):
    """result.json: the end of a run or, of several, the means of their ends, and each of them."""

    steps: Annotated[int, Kind("a whole number >= 0", lambda value: _is_whole(value) and _is_count(value))]
    seconds: Count
    bytes_sent_per_agent: Count
    paper_bytes_sent_per_agent: Count
    ready_seconds: Count = 0.0
    profile: Annotated[
        dict[str, float],
        Kind("an object of times", lambda value: _all(value, dict, _is_count) and sum(value.values()) > 0),
    ] = field(default_factory=dict)
    diverged: Whole = 0
    trials: Objects = field(default_factory=list)
    swept: Annotated[list[str], Kind("a list of names", lambda v: _all(v, list, _is_text))] = field(
        default_factory=list
    )
    # Means over the seeds of each combination of swept numbers.
    settings: Annotated[
        list[dict[str, float]],
        Kind(
            "a list of objects of numbers", lambda v: _all(v, list, lambda one: _all(one, dict, _is_number))
        ),
    ] = field(default_factory=list)


# What a folder of several runs says of all of them alike.
OF_ALL = (
    "steps",
    "seconds",
    "ready_seconds",
    "bytes_sent_per_agent",
    "paper_bytes_sent_per_agent",
    "profile",
)


@dataclasses.dataclass
class Stage:
    """The Hessian of one model, an entry of sharpness.json."""

    step: Whole
    epoch: Annotated[float, Kind("a number", _is_number)]
    whose: Annotated[
        str | int, Kind("consensus or an agent", lambda value: value == "consensus" or _is_whole(value))
    ]
    density: Annotated[dict[str, list[float]] | None, Kind("lists x and y", _is_density)] = None
    lambda_max: Number = None
    lambda_min: Number = None
    residual: Number = None
    trace: Number = None
    trace_error: Number = None


@dataclasses.dataclass
class SharpnessFile:
    """sharpness.json: the Hessians that were measured, and on what."""

    stages: Objects


@dataclasses.dataclass
class PaperFile:
    """paper.json: which published figure a run reproduces."""

    table: Any = "-"
    row: Any = "-"
    paper: Any = "-"
    scale: Any = "-"


@dataclasses.dataclass
class Evaluation:
    """Metrics of one model, computed later."""

    run: Object  # seed and swept numbers, of one of several runs
    whose: Annotated[
        str | int, Kind("consensus or an agent", lambda value: value == "consensus" or _is_whole(value))
    ]
    step: Whole
    metrics: Object


@dataclasses.dataclass
class EvaluationFile:
    """evaluation.json: what `saddle evaluate` has computed."""

    evaluations: Objects


def read(path: pathlib.Path, schema: type, remedy: str = "") -> dict[str, Any] | None:
    """Reads a JSON file as it is declared; returns None if there is no such file.

    Raises:
      DamagedError: it says something else; `remedy` is what to do then.
    """
    content = read_object(path)
    return None if content is None else checked(content, schema, path, remedy)


def checked(content: dict[str, Any], schema: type, path: pathlib.Path, remedy: str = "") -> dict[str, Any]:
    """Returns an object as it is declared, with None in place of NaN."""
    kinds, needed = _declared(schema)
    if missing := sorted(needed - content.keys()):
        raise damaged(path, f"{', '.join(missing)} must be there", remedy)
    found = {}
    for name, value in content.items():
        metric = _NUMBERS if name.endswith("_each") else _NUMBER
        kind = kinds.get(name, metric if issubclass(schema, End) else None)
        if kind and not kind.holds(value):
            raise damaged(path, f"{name[:40]} must be {kind.told}, got {str(value)[:40]!r}", remedy)
        found[name] = finite(value) if kind in (_NUMBER, _NUMBERS) else value
    return found


@functools.cache
def _declared(schema: type) -> tuple[dict[str, Kind], set[str]]:
    """Returns the kind of each name that is declared, and the names that must be there."""
    hints = get_type_hints(schema, include_extras=True)
    kinds = {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}
    empty = dataclasses.MISSING
    return kinds, {f.name for f in dataclasses.fields(schema) if f.default is f.default_factory is empty}


def finite(value: Any) -> Any:
    """Returns numbers, in lists too, with None in place of those that nothing can be computed with."""
    if isinstance(value, list):
        return [finite(one) for one in value]
    return value if value is None or -TOO_LARGE < value < TOO_LARGE else None


def read_result(workdir: pathlib.Path) -> dict[str, Any] | None:
    """Reads result.json, the ends of several runs too; returns None where the run has not ended."""
    path, remedy = workdir / "result.json", "remove it to continue from the newest checkpoint"
    result = read(path, ResultFile, remedy)
    if result is not None and "trials" in result:
        if not result["trials"] or "diverged" not in result:
            raise damaged(path, "trials must be a list of objects, with how many diverged", remedy)
        result["trials"] = [checked(end, End, path, remedy) for end in result["trials"]]
    return result


def read_sharpness(path: pathlib.Path) -> dict[str, Any] | None:
    """Reads a file of Hessians, the numbers of each stage that were not measured as None."""
    remedy = "remove it to measure again"
    content = read(path, SharpnessFile, remedy)
    if content is None:
        return None
    absent = dict.fromkeys(name for name in _declared(Stage)[0])
    stages = [absent | checked(stage, Stage, path, remedy) for stage in content["stages"]]
    for stage in stages:
        if density := stage["density"]:
            stage["density"] = {axis: finite(density[axis]) for axis in ("x", "y")}
    return {**content, "stages": stages}


def read_evaluations(path: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the evaluations that a folder keeps; there may be none."""
    remedy = "remove it to write a new one"
    found = (read(path, EvaluationFile, remedy) or {"evaluations": []})["evaluations"]
    return [checked(each, Evaluation, path, remedy) for each in found]


# The metrics of a run as its config.json names them: what they are called, and how they are written.


class Measure(NamedTuple):
    """A metric of an evaluation, or another number by which runs are compared."""

    name: str
    better: str  # "higher" or "lower"
    title: str
    percent: bool  # whether it is a share, shown in percent
    other: str = ""  # the number's name in the run's files; empty: test_NAME, the consensus model's

    @property
    def key(self) -> str:
        """The name of the number in metrics.jsonl and result.json."""
        return self.other or f"test_{self.name}"

    @property
    def form(self) -> str:
        """How a shown number is formatted, without its unit."""
        return ".2f" if self.percent else ".4g"

    def ranked(self, value: float) -> float:
        """Returns a number that is the smaller, the better the value is."""
        return -value if self.better == "higher" else value

    @property
    def factor(self) -> int:
        """By what a number is multiplied to be shown."""
        return 100 if self.percent else 1

    @property
    def bounds(self) -> tuple[float, float]:
        """Between what a shown number always lies: a share between 0 and 100 %."""
        return (0.0, 100.0) if self.percent else (-math.inf, math.inf)

    @property
    def unit(self) -> str:
        """What stands behind the name where numbers follow without a sign."""
        return ", %" if self.percent else ""

    def text(self, value: float) -> str:
        """Writes a number as people read it, such as "95.28 %" or "12.04"."""
        return f"{self.digits(value)} %" if self.percent else self.digits(value)

    def digits(self, value: float) -> str:
        """Writes a number without its unit, such as "95.28" or "12.04"."""
        return f"{self.factor * value:{self.form}}"


_MOST = 100  # metrics of a run
# What runs are about whose config.json does not say it.
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


def same(many: Sequence[tuple[Measure, ...]]) -> Measure:
    """Returns the headline of runs that are compared by one number; others are a RunError."""
    headlines = {one[0] for one in many}
    if len(headlines) > 1:
        names = ", ".join(sorted(one.title for one in headlines))
        raise RunError(f"runs must be compared by the same metric, got {names}")
    return headlines.pop()
