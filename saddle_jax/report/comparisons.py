"""Tables of comparisons: scores on a grid, paired differences over seeds, and later evaluations."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from saddle_jax.runs.schema import Measure
from saddle_jax.runs.source_files import short
from saddle_jax.runs.statistics import signed
from saddle_jax.runs.table import NUMBERS, Cell, Run, cells_by, seeds_of
from saddle_jax.settings.settings import lacks, value_of
from saddle_jax.settings.sweep import name_of, without
from saddle_jax.training import evaluation
from saddle_jax.training.build import Trial

Axes = Mapping[str, Sequence[Any]]  # what is compared: values of settings and options, by name
Cells = Mapping[tuple[Any, ...], Cell]
_LACKS = object()  # the value of an option that a method does not have
_ROWS = ("method", "topology")  # what the rows of a table stand for, if they are compared


def cells_of(runs: Iterable[Run], axes: Axes, fixed: Collection[str] = ()) -> dict[tuple[Any, ...], Cell]:
    """Returns the cells of runs by the values that are compared.

    Options such as "method.rho" that are compared, or `fixed` for all, are no part of a method's name.
    """

    def key(run: Run) -> tuple[Any, ...]:
        named = without(run.config.to_json(), {name for name in (*axes, *fixed) if "." in name})
        return tuple(
            _LACKS
            if lacks(run.config, name)
            else _text(short(name, named[name] if name in named else value_of(run.config, name)))
            for name in axes
        )

    return cells_by(runs, key)


def _places(axes: Axes) -> list[dict[str, Any]]:
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def comparison(cells: Cells, axes: Axes) -> list[list[str]]:
    """Returns the table of scores: methods and graphs as rows, else the first axis, and the rest as columns.

    If only compressors vary, a column beside each shows the drop of the score from the first.
    """
    heads = [name for name in axes if name in _ROWS] or [next(iter(axes))]
    rows = _places({name: axes[name] for name in heads})
    columns = _places({name: axes[name] for name in axes if name not in heads})
    with_drop = list(columns[0]) == ["method.compressor"]
    header = [*heads]
    for column in columns:
        header.append(", ".join(_label(name, value) for name, value in column.items()) or "score")
        header += ["drop"] if with_drop and column is not columns[0] else []
    table = [header]
    for row in rows:
        found = [_at(cells, axes, {**row, **column}) for column in columns]
        line, base = [*map(_text, row.values()), found[0].text()], found[0].mean
        for cell in found[1:]:
            drop = "-" if base is None or cell.mean is None else f"{base - cell.mean:{cell.measure.form}}"
            line += [cell.text(), drop] if with_drop else [cell.text()]
        table.append(line)
    return table


def _label(name: str, value: Any) -> str:
    """Returns a column's label; a text such as quantize(8) says what it is, a number does not."""
    is_plain = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{name.rpartition('.')[2]} {_text(value)}" if is_plain or value is None else _text(value)


def intervals(cells: Cells, axes: Axes) -> list[list[str]]:
    """Returns a table with one cell per row: mean, standard deviation and 95 % interval over seeds."""
    table = [[*axes, "mean", "deviation", "95 % interval", "seeds"]]
    for place in _places(axes):
        cell = _at(cells, axes, place)
        found = cell.summary
        texts = [
            "-" if value is None else f"{value:{cell.measure.form}}" for value in (found.mean, found.std)
        ]
        named = map(_text, place.values())
        table.append([*named, *texts, found.interval(cell.measure.form), str(found.seeds)])
    return table


def differences(cells: Cells, axes: Axes) -> list[list[str]]:
    """Returns the table of differences between each value and the first of its axis, all others equal.

    The differences are over common seeds, with the 95 % interval of their mean.
    """
    table = [[*axes, "minus", "difference", "95 % interval", "seeds"]]
    for place in _places(axes):
        for name, values in axes.items():
            if place[name] == values[0]:
                continue
            cell, base = _at(cells, axes, place), _at(cells, axes, {**place, name: values[0]})
            found = cell.minus(base)
            difference, interval = (
                signed(found.mean, cell.measure.form),
                found.interval(f"+{cell.measure.form}"),
            )
            named = map(_text, place.values())
            table.append([*named, _text(values[0]), difference, interval, str(found.seeds)])
    return table


def numbers(cells: Cells, axes: Axes, headline: Measure) -> list[list[str]]:
    """Returns the CSV table with one cell per row: settings, NUMBERS of the scores, and each seed's score."""
    seeds = seeds_of(cells.values())
    table = [[*axes, "metric", *NUMBERS, *(f"seed {seed}" for seed in seeds)]]
    for place in _places(axes):
        cell = _at(cells, axes, place)
        title = f"test {headline.title}{headline.unit}"
        table.append([*map(_text, place.values()), title, *cell.numbers(seeds)])
    return table


def _at(cells: Cells, axes: Axes, place: Mapping[str, Any]) -> Cell:
    """Returns the cell at a place; a method without an option has the same one for all of its values."""
    key = [_text(short(name, place[name])) for name in axes]
    for found, cell in cells.items():
        if all(mine is _LACKS or mine == value for mine, value in zip(found, key, strict=True)):
            return cell
    return Cell(())


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def evaluation_rows(
    records: Sequence[Mapping[str, Any]], measures: Mapping[str, evaluation.Measure], trial: Trial
) -> list[list[str]]:
    """Returns a table with a row per metric and a column per model; each entry of a list has its own row."""
    table = [["metric", *map(_heading, records)]]
    for name, measure in measures.items():
        values = [record["metrics"][name] for record in records]
        if not isinstance(values[0], list):
            table.append([name, *(_number(value, measure.percent) for value in values)])
            continue
        labels = measure.labels(trial) if measure.labels else list(map(str, range(len(values[0]))))
        for place, label in enumerate(labels):
            table.append([f"{name} {label}", *(_number(value[place], measure.percent) for value in values)])
    return table


def _heading(record: Mapping[str, Any]) -> str:
    parts = [name_of(record["run"]), "" if record["whose"] == "consensus" else f"agent {record['whose']}"]
    return ", ".join([*filter(None, parts), f"epoch {record['epoch']:g}"])


def _number(value: Any, percent: bool) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if value is None:
        return "-"
    return f"{100 * value:.2f} %" if percent else f"{value:.4g}"
