"""The best settings of each group of runs, with their neighbours on the grid."""

import dataclasses
import pathlib
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from saddle_jax.base.checks import ArgumentError, suggestion
from saddle_jax.base.errors import RunError
from saddle_jax.base.registry import Spec, parse
from saddle_jax.runs.schema import Measure
from saddle_jax.runs.source_files import source_refs
from saddle_jax.runs.statistics import summarise
from saddle_jax.runs.table import Cell, Run, as_cell, cell_of, differing, grouped, load_runs
from saddle_jax.settings.settings import IRRELEVANT, Settings, build_topology, lacks, registry_of, value_of
from saddle_jax.settings.sweep import SPEC_SETTINGS, in_settings, own_option

# Settings and their results over seeds, for tables of sweeps.


BETTER = ("higher", "lower")


class Candidate(NamedTuple):
    """One combination of settings, and its results over seeds."""

    settings: Mapping[str, Any]
    cell: Cell


def load_ended(workdirs: Sequence[pathlib.Path]) -> tuple[list[Run], list[str]]:
    """Reads the runs that have ended, each once, and lists why others are left out."""
    ended: list[Run] = []
    left_out: list[str] = []
    seen: dict[Any, str] = {}
    for run in load_runs(workdirs, left_out=left_out):
        if run.state not in ("finished", "diverged"):
            left_out.append(f"{run.name}: {run.state} at step {run.last_step:,}")
        elif (first := seen.setdefault((_key(settings_of(run)), run.config.seed), run.name)) != run.name:
            left_out.append(f"{run.name}: the same run as {first}")
        else:
            ended.append(run)
    return ended, left_out


def measure_of(runs: Sequence[Run], name: str | None, better: str | None) -> Measure:
    """Returns the metric by which runs are compared, by default their headline.

    Raises:
      ArgumentError: no run has it, the runs' headlines differ, or its direction is unknown.
    """
    metrics = [run.measures for run in runs]
    headlines = list(dict.fromkeys(each[0].key for each in metrics))
    if name is None and len(headlines) > 1:
        raise ArgumentError(f"metric must be given where runs have several: {', '.join(headlines)}")
    name = name or headlines[0]
    if all(run.value(name) is None for run in runs):
        known = sorted({key for run in runs for one in (run.result, *run.metrics()) for key in one})
        known = [key for key in known if any(run.value(key) is not None for run in runs)]
        raise ArgumentError(
            f"{suggestion(name, known)}metric must be one of {', '.join(known)}, got {name!r}"
        )
    described = [metric for each in metrics for metric in each if _is_of(name, metric.name)]
    metric = (
        described[0] if described else Measure(name, "lower" if name.endswith("_loss") else "", name, False)
    )
    metric = metric._replace(better=better or metric.better, other=name)
    if metric.better not in BETTER:
        raise ArgumentError(
            f"better must be higher or lower for {name}, whose runs do not say it, got {better}"
        )
    return metric


def candidates_of(runs: Iterable[Run], measure: Measure, left_out: list[str]) -> list[Candidate]:
    """Groups runs by their settings apart from the seed; adds those without the metric to `left_out`."""
    having = []
    for run in runs:
        if run.state != "diverged" and run.value(measure.key) is None:
            left_out.append(f"{run.name}: has no {measure.key}")
        else:
            having.append(run)
    settings = _with_defaults({run: settings_of(run) for run in having})
    groups = grouped(having, lambda run: _key(settings[run])).values()
    return [Candidate(settings[group[0]], cell_of(group, measure)) for group in groups]


def settings_of(run: Run) -> dict[str, Any]:
    """Returns the settings that affect a run's results, apart from the seed.

    Options in a spec are separate entries, such as method.mu. For a run made from Python objects, "computes"
    is a hash of its step.
    """
    settings: dict[str, Any] = {}
    for name, value in run.config.to_json().items():
        if name in ("seed", "seeds", "sweep", *IRRELEVANT):
            continue
        if name in SPEC_SETTINGS:
            spec, registry = parse(name, value), registry_of(name)
            is_known = registry.is_ours(spec) and spec.name in registry
            given = registry.given(spec) if is_known else dict(spec.kwargs)
            settings[name] = str(spec._replace(args=() if is_known else spec.args, kwargs=()))
            settings |= {f"{name}.{option}": each for option, each in given.items()}
        else:
            settings[name] = value
    computes = run.fact("computes")
    return settings | ({"computes": str(computes)[:16]} if computes else {})


def _with_defaults(settings: dict[Run, dict[str, Any]]) -> dict[Run, dict[str, Any]]:
    """Adds the options that only some of the runs name to the others that have them: their defaults."""
    named = {name: None for own in settings.values() for name in own if own_option(name)}
    return {
        run: own
        | {
            name: value_of(run.config, name)
            for name in named
            if name not in own and not source_refs(run.config) and not lacks(run.config, name)
        }
        for run, own in settings.items()
    }


def varied(candidates: Sequence[Candidate]) -> list[str]:
    """Lists the settings in which candidates differ."""
    return differing([one.settings for one in candidates])


def _heading(measure: Measure) -> str:
    return f"{measure.key}{measure.unit}"


def sweep_rows(workdirs: Sequence[pathlib.Path]) -> tuple[list[list[str]], Measure, list[str]]:
    """Returns the table of a sweep's results, its metric, and a line for each run left out."""
    runs, left_out = load_ended(workdirs)
    if not runs:
        raise RunError(f"no run of the sweep has ended: {'; '.join(left_out) or 'there is none'}")
    measure = measure_of(runs, None, None)
    candidates = candidates_of(runs, measure, left_out)
    names = varied(candidates)
    rows = [[*names, _heading(measure), "seeds"]]
    for candidate in candidates:
        given = [as_cell(candidate.settings.get(name)) for name in names]
        rows.append([*given, candidate.cell.text(), candidate.cell.count])
    return rows, measure, left_out


def _is_of(name: str, metric: str) -> bool:
    """Returns whether a number is a metric: on test or training data, or as the agents' mean."""
    return name in (f"test_{metric}", f"train_{metric}", f"agent_{metric}_mean")


def _key(settings: Mapping[str, Any]) -> Hashable:
    return tuple((k, str(v) if isinstance(v, list | Spec) else v) for k, v in settings.items())


# Settings that make another problem: what is best on one of them says nothing about the others.
PROBLEM = ("dataset", "subset", "partition", "partition.alpha", "agents", "model")


_NUDGE = 1e-6  # relative step beyond the edge of a grid, to see whether larger or smaller values are valid


class Line(NamedTuple):
    """Neighbours of the best candidate along one numeric setting, and whether it is at the grid's edge."""

    setting: str
    value: float
    neighbours: Sequence[tuple[float, Candidate]]  # the next smaller and the next larger value
    edge: str  # below or above: values there are valid and were not tried; empty: neither


@dataclasses.dataclass(frozen=True)
class Choice:
    """The best candidate of one group."""

    group: Mapping[str, Any]
    candidates: Sequence[Candidate]
    best: Candidate | None  # None: all of them diverged
    tied: int  # the number of others that are exactly as good
    lines: Sequence[Line]

    @property
    def setting(self) -> dict[str, Any]:
        """The settings of the best candidate that vary within the group."""
        return {name: self.best.settings.get(name) for name in varied(self.candidates)} if self.best else {}


def groups_by(candidates: Sequence[Candidate], by: Sequence[str]) -> list[str]:
    """Checks the settings to group by, and adds those that differ and define the problem."""
    own = {name for candidate in candidates for name in candidate.settings}
    known = sorted({field.name for field in dataclasses.fields(Settings)} | own)
    for name in by:
        if name not in known:
            raise ArgumentError(f"{suggestion(name, known)}by must name settings, got {name!r}")
        if not any(name in candidate.settings for candidate in candidates):
            raise ArgumentError(f"by must name settings that tell candidates apart, got {name!r}")
    return [*dict.fromkeys(by), *(name for name in varied(candidates) if name in PROBLEM and name not in by)]


def choose(candidates: Sequence[Candidate], names: Sequence[str], measure: Measure) -> list[Choice]:
    """Chooses the best candidate of every group; candidates with diverged seeds rank last."""
    groups = grouped(candidates, lambda one: tuple(as_cell(one.settings.get(name)) for name in names))
    return [_chosen(those, names, measure) for those in groups.values()]


def _chosen(those: Sequence[Candidate], names: Sequence[str], measure: Measure) -> Choice:
    group = {name: those[0].settings.get(name) for name in names}
    ranks = {
        number: (one.cell.diverged > 0, measure.ranked(statistics.fmean(one.cell.values)))
        for number, one in enumerate(those)
        if one.cell.values
    }
    if not ranks:
        return Choice(group, those, None, 0, ())
    number = min(ranks, key=ranks.__getitem__)
    best, tied = those[number], [*ranks.values()].count(ranks[number]) - 1
    lines = [_line(name, best, those) for name in varied(those) if _is_number(best.settings.get(name))]
    return Choice(group, those, best, tied, lines)


def _line(name: str, best: Candidate, those: Sequence[Candidate]) -> Line:
    value = best.settings[name]
    tried = [one for one in those if _is_number(one.settings.get(name))]
    numbers = {one.settings[name] for one in tried}
    beside = {one.settings[name]: one for one in tried if varied([one, best]) == [name]}
    smaller, larger = [n for n in beside if n < value], [n for n in beside if n > value]
    near = [*([max(smaller)] if smaller else []), *([min(larger)] if larger else [])]
    side = "below" if value == min(numbers) else "above" if value == max(numbers) else ""
    is_edge = len(numbers) > 1 and side and _could_go_on(best.settings, name, side)
    return Line(name, value, [(number, beside[number]) for number in near], side if is_edge else "")


def _could_go_on(settings: Mapping[str, Any], name: str, side: str) -> bool:
    """Returns whether values of a setting beyond this one are valid; a momentum below zero is not."""
    value = settings[name]
    size = 1 if isinstance(value, int) else _NUDGE * (abs(value) or 1.0)
    beyond = {**settings, name: value + (size if side == "above" else -size)}
    return not _is_valid(settings) or _is_valid(beyond)


def _is_valid(settings: Mapping[str, Any]) -> bool:
    """Returns whether there can be a run of these settings, none of which names a user's code or file."""
    import optax

    from saddle_jax.training.build import build_method

    fields = {name: value for name, value in settings.items() if name in Settings.__dataclass_fields__}
    options = {name: value for name, value in settings.items() if own_option(name)}
    try:
        config = Settings(**{**fields, **in_settings({**vars(Settings()), **fields}, options)})
        if source_refs(config):
            return False
        build_method(config, build_topology(config), optax.constant_schedule(config.learning_rate))
    except ArgumentError:
        return False
    return True


def _is_number(value: Any) -> bool:
    """Tells whether a setting's value is a number on a grid."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def rows_of(choices: Sequence[Choice], measure: Measure) -> list[list[str]]:
    """Returns the table of choices: group, best settings, value, seeds, neighbours, and edges of the grid."""
    names = list(choices[0].group)
    header = [*names, "best setting", _heading(measure), "seeds", "neighbours", "edge of the grid"]
    return [header, *([*map(as_cell, one.group.values()), *_row(one)] for one in choices)]


def _row(choice: Choice) -> list[str]:
    if choice.best is None:
        count = sum(candidate.cell.diverged for candidate in choice.candidates)
        return ["-", f"all {count} runs diverged", "0", "-", "-"]
    setting = ", ".join(f"{name} {as_cell(value)}" for name, value in choice.setting.items())
    if choice.tied:
        setting += f" (tied with {choice.tied} other{'s' if choice.tied > 1 else ''})"
    beside = [_beside(line) for line in choice.lines if line.neighbours]
    edges = [f"try {line.setting} {line.edge} {as_cell(line.value)}" for line in choice.lines if line.edge]
    best = choice.best.cell
    return [
        setting or "the only one", best.text(), best.count, "; ".join(beside) or "-", ", ".join(edges) or "-",
    ]  # fmt: skip


def _beside(line: Line) -> str:
    scores = [f"{as_cell(number)}: {one.cell.text()}" for number, one in line.neighbours]
    return f"{line.setting} {', '.join(scores)}"


def as_json(choices: Sequence[Choice], measure: Measure, left_out: Sequence[str]) -> dict[str, Any]:
    """Returns the choices and all candidates as a JSON object."""
    groups = [
        {
            "group": dict(one.group),
            "setting": one.setting,
            "best": one.best and _scores(one.best),
            "tied": one.tied,
            "neighbours": {
                line.setting: [
                    {"setting": {line.setting: number}, **_scores(each)} for number, each in line.neighbours
                ]
                for line in one.lines
            },
            "edges": [
                {"setting": line.setting, "try": line.edge, "value": line.value}
                for line in one.lines
                if line.edge
            ],
            "candidates": [
                {
                    "setting": {name: each.settings.get(name) for name in varied(one.candidates)},
                    **_scores(each),
                }
                for each in one.candidates
            ],
        }
        for one in choices
    ]
    return {"metric": measure.key, "better": measure.better, "groups": groups, "left_out": list(left_out)}


def _scores(candidate: Candidate) -> dict[str, Any]:
    cell = candidate.cell
    found = summarise(cell.values)
    values = {"mean": found.mean, "std": found.std, "values": list(cell.values)}
    return {**values, "seeds": len(cell.values), "diverged": cell.diverged}
