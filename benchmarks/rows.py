"""What a benchmark found: rows, as a table and as JSON."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from benchmarks.timing import Spread, Timing


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table of results.

    Attributes:
      case: the benchmark's name.
      what: what was measured.
      seconds: ours; None where no time was measured.
      against: what it was compared with, such as "PyTorch: loop"; empty if nothing.
      against_seconds: the time of that.
      ratio: against_seconds / seconds, round by round: above 1, ours is the faster one.
      figures: what else was measured, such as {"GFLOP/s": 60.1}; what is a dict itself is not in the table.
    """

    case: str
    what: str
    seconds: Spread | None = None
    against: str = ""
    against_seconds: Spread | None = None
    ratio: Spread | None = None
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the row as plain numbers and names."""
        content = dataclasses.asdict(self)
        for name in ("seconds", "against_seconds", "ratio"):
            value = getattr(self, name)
            content[name] = None if value is None else value._asdict()
        return content


def compared(
    case: str, what: str, timing: Timing, ours: str, other: str, name: str, figures: dict[str, Any]
) -> Row:
    """Makes the row of two functions measured together; `name` is what to call the other one."""
    return Row(
        case,
        what,
        timing.seconds(ours),
        name,
        timing.seconds(other),
        timing.ratio(other, ours),
        figures,
    )


def table(rows: Sequence[Row]) -> str:
    """Formats rows as lines of text with aligned columns."""
    cells = [["case", "what", "ours", "against", "", "ratio", ""]]
    cells += [[row.case, row.what, *_cells(row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)


def result(row: Row) -> str:
    """Formats what a row measured in one line."""
    return "  ".join(filter(None, _cells(row)))


def _cells(row: Row) -> list[str]:
    numbers = {name: value for name, value in row.figures.items() if not isinstance(value, dict)}
    figures = ", ".join(f"{name} {_figure(value)}" for name, value in numbers.items())
    return [_time(row.seconds), row.against, _time(row.against_seconds), _ratio(row.ratio), figures]


def _time(seconds: Spread | None) -> str:
    """Formats a time, such as "12.3 ms"."""
    if seconds is None:
        return ""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds.median * scale >= 1:
            return f"{seconds.median * scale:.3g} {unit}"
    return f"{seconds.median * 1e6:.3g} us"


def _ratio(ratio: Spread | None) -> str:
    """Formats a ratio with its range, such as "1.20 (1.15 to 1.31)"."""
    return "" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _figure(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
