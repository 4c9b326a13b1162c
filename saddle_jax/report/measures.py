"""The metrics of a run as its config.json names them: what they are called, and how they are written."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from saddle_jax.base.errors import DamagedError, RunError


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
