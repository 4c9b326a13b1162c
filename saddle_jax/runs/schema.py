"""Reading result.json: how a run ended, checked so that whoever shows it need not doubt any part of it."""

import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from saddle_jax.base.errors import DamagedError, RunError
from saddle_jax.base.reading import TOO_LARGE, read_object

STATUSES = ("finished", "diverged", "interrupted")


def read_result(workdir: pathlib.Path) -> dict[str, Any] | None:
    """Reads result.json; returns None where the run has not ended.

    Raises:
      DamagedError: the file cannot be read, or does not say how a run ended.
    """
    path = workdir / "result.json"
    result = read_object(path)
    if result is not None and (fault := _fault(result)):
        raise DamagedError(
            f"{path} is not the result of a run ({fault}); remove it to continue from the newest checkpoint"
        )
    return result


def _fault(result: dict[str, Any]) -> str:
    """Says what is wrong with a result of one run or of several; nothing is if the text is empty."""
    for name in ("steps", "seconds", "bytes_sent_per_agent", "paper_bytes_sent_per_agent"):
        if not _is_count(result.get(name)):
            return f"{name} must be a number >= 0"
    if not isinstance(result["steps"], int):
        return "steps must be a whole number"
    trials = result.get("trials", [])
    if "trials" in result:
        if not isinstance(trials, list) or not trials or not all(isinstance(r, dict) for r in trials):
            return "trials must be a list of objects"
        if not isinstance(result.get("diverged"), int):
            return "diverged must be a whole number"
    for end in (result, *trials):
        if fault := _fault_of_one(end):
            return fault
    return ""


def _fault_of_one(end: dict[str, Any]) -> str:
    if end.get("status") not in STATUSES:
        return f"status must be one of {', '.join(STATUSES)}"
    if not isinstance(end.get("diverged_at_step", 0), int):
        return "diverged_at_step must be a whole number"
    for name, value in end.items():
        told, is_right = _KINDS.get(name, _LISTS if name.endswith("_each") else _NUMBER)
        if not is_right(value):
            return f"{name[:40]!r} must be {told}"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not abs(value) >= TOO_LARGE


def _is_count(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and value >= 0


def _is_score(value: Any) -> bool:
    return value is None or _is_number(value)


def _are_times(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values())) and sum(value.values()) > 0


def _is_last_finite(value: Any) -> bool:
    known = ("step", "train_loss")
    return value is None or (
        isinstance(value, dict) and (not value or all(_is_number(value.get(name)) for name in known))
    )


def _are_settings(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict) and all(type(each) in (int, float) for each in one.values()) for one in value
    )


_Kind = tuple[str, Callable[[Any], bool]]
_NUMBER: _Kind = ("a number", _is_score)
_LISTS: _Kind = (
    "a list of numbers",
    lambda value: value is None or (isinstance(value, list) and all(map(_is_score, value))),
)
_KINDS: dict[str, _Kind] = {
    "status": ("text", lambda value: isinstance(value, str)),
    "params_sha256": ("text", lambda value: value is None or isinstance(value, str)),
    "ready_seconds": ("a number >= 0", _is_count),
    "consensus_distance": _NUMBER,
    "profile": ("an object of times", _are_times),
    "last_finite": ("a step and its loss", _is_last_finite),
    "trials": ("a list of objects", lambda value: isinstance(value, list)),
    "settings": ("a list of objects of numbers", _are_settings),
    "swept": (
        "a list of names",
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    ),
}


# The metrics of a run as its config.json names them: what they are called, and how they are written.


class Measure(NamedTuple):
    """A metric of an evaluation; in metrics.jsonl and result.json it is test_NAME."""

    name: str
    better: str  # "higher" or "lower"
    title: str
    percent: bool  # whether it is a share, shown in percent

    @property
    def key(self) -> str:
        """The name of the consensus model's number in the run's files."""
        return f"test_{self.name}"

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
        return f"{100 * value:.2f} %" if self.percent else f"{value:.4g}"

    def digits(self, value: float) -> str:
        """Writes a number without its unit, such as "95.28" or "12.04"."""
        return f"{100 * value:.2f}" if self.percent else f"{value:.4g}"


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
