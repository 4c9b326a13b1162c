"""The best setting of every group of runs, with its neighbours on the grid of all that were tried."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from saddle_jax.base.checks import ArgumentError, did_you_mean
from saddle_jax.report.candidates import Candidate, Yardstick, varied, written
from saddle_jax.settings.config import Config, check_setting

# Settings that make another problem: what is best on one of them says nothing about the others.
PROBLEM = ("dataset", "subset", "partition", "alpha", "agents", "model")
_NUDGE = 1e-6  # how far beyond the edge of a grid a setting is tried, to see whether it could go on


class Line(NamedTuple):
    """The candidates that differ from the best in one number alone, next to it, and where the grid ends."""

    setting: str
    value: float
    below: tuple[float, Candidate] | None
    above: tuple[float, Candidate] | None
    edge: str  # below or above: nothing was tried there, and it could be; empty: neither


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen in one group of candidates."""

    group: Mapping[str, Any]
    candidates: Sequence[Candidate]
    best: Candidate | None  # None: all of them diverged
    tied: int  # how many others are exactly as good
    lines: Sequence[Line]

    @property
    def setting(self) -> dict[str, Any]:
        """Returns the best setting, as far as the group's candidates differ."""
        return {name: self.best.settings.get(name) for name in varied(self.candidates)} if self.best else {}


def groups_by(candidates: Sequence[Candidate], by: Sequence[str]) -> list[str]:
    """Checks the settings by which groups are made; adds those that differ and make another problem."""
    own = {name for candidate in candidates for name in candidate.settings}
    known = sorted({field.name for field in dataclasses.fields(Config)} | own)
    for name in by:
        if name not in known:
            raise ArgumentError(f"{did_you_mean(name, known)}by must name settings, got {name!r}")
        if not any(name in candidate.settings for candidate in candidates):
            raise ArgumentError(f"by must name settings that tell candidates apart, got {name!r}")
    return [*dict.fromkeys(by), *(name for name in varied(candidates) if name in PROBLEM and name not in by)]


def choose(candidates: Sequence[Candidate], names: Sequence[str], yardstick: Yardstick) -> list[Choice]:
    """Chooses the best candidate of every group; those with a seed that diverged come last."""
    groups: dict[tuple[str, ...], list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(tuple(written(candidate.settings.get(name)) for name in names), []).append(
            candidate
        )
    return [_chosen(those, names, yardstick) for those in groups.values()]


def _chosen(those: Sequence[Candidate], names: Sequence[str], yardstick: Yardstick) -> Choice:
    group = {name: those[0].settings.get(name) for name in names}

    def rank(candidate: Candidate) -> tuple[bool, float]:
        assert candidate.mean is not None
        return candidate.diverged > 0, yardstick.ranked(candidate.mean)

    ranked = sorted((one for one in those if one.values), key=rank)
    if not ranked:
        return Choice(group, those, None, 0, ())
    best = ranked[0]
    tied = sum(rank(one) == rank(best) for one in ranked) - 1
    lines = [_line(name, best, those) for name in varied(those) if _is_number(name, best.settings.get(name))]
    return Choice(group, those, best, tied, lines)


def _line(name: str, best: Candidate, those: Sequence[Candidate]) -> Line:
    value = best.settings[name]
    numbers = {one.settings[name] for one in those if _is_number(name, one.settings.get(name))}
    beside = {
        one.settings[name]: one
        for one in those
        if _is_number(name, one.settings.get(name)) and varied([one, best]) == [name]
    }
    below = max(((number, one) for number, one in beside.items() if number < value), default=None, key=_first)
    above = min(((number, one) for number, one in beside.items() if number > value), default=None, key=_first)
    edge = ""
    if len(numbers) > 1 and value in (min(numbers), max(numbers)):
        side = "below" if value == min(numbers) else "above"
        edge = side if _could_go_on(name, value, side) else ""
    return Line(name, value, below, above, edge)


def _first(pair: tuple[float, Candidate]) -> float:
    return pair[0]


def _could_go_on(name: str, value: Any, side: str) -> bool:
    """Tells whether a setting may have a value beyond this one: a momentum below zero may not be."""
    if name not in Config.__dataclass_fields__:
        return True
    size = 1 if isinstance(value, int) else _NUDGE * (abs(value) or 1.0)
    try:
        check_setting(name, value + (size if side == "above" else -size))
    except ArgumentError:
        return False
    return True


def _is_number(name: str, value: Any) -> bool:
    """Tells whether a setting's value is a number on a grid, and not one that stands for something else."""
    field = Config.__dataclass_fields__.get(name)
    special = field is not None and value == field.metadata["no_number"]
    return isinstance(value, int | float) and not isinstance(value, bool) and not special


def rows_of(choices: Sequence[Choice], yardstick: Yardstick) -> list[list[str]]:
    """Lists the choices as text: group, best setting, value, seeds, neighbours, and edges of the grid."""
    names = list(choices[0].group)
    header = [*names, "best setting", yardstick.heading, "seeds", "neighbours", "edge of the grid"]
    return [header, *([*map(written, one.group.values()), *_row(one, yardstick)] for one in choices)]


def _row(choice: Choice, yardstick: Yardstick) -> list[str]:
    if choice.best is None:
        count = sum(candidate.diverged for candidate in choice.candidates)
        return ["-", f"all {count} runs diverged", "0", "-", "-"]
    setting = ", ".join(f"{name} {written(value)}" for name, value in choice.setting.items())
    if choice.tied:
        setting += f" (tied with {choice.tied} other{'s' if choice.tied > 1 else ''})"
    neighbours = [text for line in choice.lines if (text := _beside(line, yardstick))]
    return [
        setting or "the only one",
        choice.best.text(yardstick),
        choice.best.count,
        "; ".join(neighbours) or "-",
        ", ".join(
            f"try {line.setting} {line.edge} {written(line.value)}" for line in choice.lines if line.edge
        )
        or "-",
    ]


def _beside(line: Line, yardstick: Yardstick) -> str:
    found = [
        f"{written(number)}: {one.text(yardstick)}" for number, one in filter(None, (line.below, line.above))
    ]
    return f"{line.setting} {', '.join(found)}" if found else ""


def as_json(choices: Sequence[Choice], yardstick: Yardstick, left_out: Sequence[str]) -> dict[str, Any]:
    """Returns the choices as plain values, with every candidate."""
    return {
        "metric": yardstick.name,
        "better": yardstick.better,
        "groups": [
            {
                "group": dict(one.group),
                "setting": one.setting,
                "best": one.best and _plain(one.best, {}),
                "tied": one.tied,
                "neighbours": {line.setting: _neighbours(line) for line in one.lines},
                "edges": [
                    {"setting": line.setting, "try": line.edge, "value": line.value}
                    for line in one.lines
                    if line.edge
                ],
                "candidates": [
                    _plain(each, {name: each.settings.get(name) for name in varied(one.candidates)})
                    for each in one.candidates
                ],
            }
            for one in choices
        ],
        "left_out": list(left_out),
    }


def _neighbours(line: Line) -> list[dict[str, Any]]:
    return [_plain(one, {line.setting: number}) for number, one in filter(None, (line.below, line.above))]


def _plain(candidate: Candidate, setting: Mapping[str, Any]) -> dict[str, Any]:
    named = {"setting": dict(setting)} if setting else {}
    values = {"mean": candidate.mean, "std": candidate.std, "values": list(candidate.values)}
    return {**named, **values, "seeds": len(candidate.values), "diverged": candidate.diverged}
