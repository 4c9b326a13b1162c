"""Tables of runs that are compared: a grid of scores, what differs seed by seed, new metrics of old runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from saddle_jax.base.statistics import signed
from saddle_jax.runs.schema import Measure
from saddle_jax.runs.source_files import short
from saddle_jax.runs.table import NUMBERS, Cell, Run, cells_by, seeds_of
from saddle_jax.settings.config import value_of
from saddle_jax.settings.sweep import name_of
from saddle_jax.training import evaluation
from saddle_jax.training.build import Trial
from saddle_jax.training.sweep import DROP, Grid, number

Cells = Mapping[tuple[Any, ...], Cell]


def cells_of(runs: Iterable[Run], grid: Grid) -> dict[tuple[Any, ...], Cell]:
    """Returns the cells of a grid's runs by the settings that it varies."""
    return cells_by(runs, lambda run: tuple(short(axis, value_of(run.config, axis)) for axis in grid.axes))


def _places(grid: Grid) -> list[dict[str, Any]]:
    """Lists the settings of all cells, row by row."""
    return [{**row, **column} for row in grid.rows() for column in grid.columns()]


def comparison(cells: Cells, grid: Grid) -> list[list[str]]:
    """Lists the scores as text: a method (on a graph) a row, everything else that varies a column.

    If compressors alone vary, each has beside it how much the score drops from the first.
    """
    rows, columns = grid.rows(), grid.columns()
    only_compressors = list(columns[0]) == ["compressor"]
    header = [*rows[0]]
    for column in columns:
        with_drop = only_compressors and column is not columns[0]
        header += [_label(column, grid), "drop"] if with_drop else [_label(column, grid)]
    table = [header]
    for row in rows:
        found = [_at(cells, grid, {**row, **column}) for column in columns]
        line, base = [*row.values(), found[0].text()], found[0].mean
        for cell in found[1:]:
            drop = "-" if base is None or cell.mean is None else f"{base - cell.mean:{cell.measure.form}}"
            line += [cell.text(), drop] if only_compressors else [cell.text()]
        table.append(line)
    return table


def _label(column: Mapping[str, Any], grid: Grid) -> str:
    """Names a column; a single compressor of all is not worth a word where something else varies."""
    parts = [column["compressor"]] if len(grid.compressors) > 1 or len(column) == 1 else []
    parts += [column["gradient"]] if "gradient" in column else []
    parts += [f"drop {number(column[DROP])}"] if DROP in column else []
    return ", ".join(parts)


def intervals(cells: Cells, grid: Grid) -> list[list[str]]:
    """Lists a cell a row as text: mean, standard deviation and 95 % interval of the mean over its seeds."""
    table = [[*grid.axes, "mean", "deviation", "95 % interval", "seeds"]]
    for place in _places(grid):
        cell = _at(cells, grid, place)
        found = cell.summary
        named = [_written(axis, place[axis]) for axis in grid.axes]
        texts = [
            "-" if value is None else f"{value:{cell.measure.form}}" for value in (found.mean, found.std)
        ]
        table.append([*named, *texts, found.interval(cell.measure.form), str(found.seeds)])
    return table


def differences(cells: Cells, grid: Grid) -> list[list[str]]:
    """Lists what each setting changes against the first of its list, all others alike, as text.

    The differences are over the seeds that both have, with the 95 % interval of their mean.
    """
    places = _places(grid)
    first = {axis: places[0][axis] for axis in grid.axes}
    table = [[*grid.axes, "minus", "difference", "95 % interval", "seeds"]]
    for place in places:
        for axis in grid.axes:
            if place[axis] == first[axis]:
                continue
            cell, base = _at(cells, grid, place), _at(cells, grid, {**place, axis: first[axis]})
            found = cell.minus(base)
            difference, interval = (
                signed(found.mean, cell.measure.form),
                found.interval(f"+{cell.measure.form}"),
            )
            named = [_written(name, place[name]) for name in grid.axes]
            against = _written(axis, first[axis])
            table.append([*named, against, difference, interval, str(found.seeds)])
    return table


def numbers(cells: Cells, grid: Grid, headline: Measure) -> list[list[str]]:
    """Lists a cell a row for programs: its settings, NUMBERS of its scores, and the scores seed by seed."""
    seeds = seeds_of(cells.values())
    table = [[*grid.axes, "metric", *NUMBERS, *(f"seed {seed}" for seed in seeds)]]
    for place in _places(grid):
        named = [_written(axis, place[axis]) for axis in grid.axes]
        cell = _at(cells, grid, place)
        table.append([*named, f"test {headline.title}{headline.unit}", *cell.numbers(seeds)])
    return table


def _at(cells: Cells, grid: Grid, place: Mapping[str, Any]) -> Cell:
    return cells.get(tuple(short(axis, place[axis]) for axis in grid.axes), Cell(()))


def _written(axis: str, value: Any) -> str:
    return number(value) if axis == DROP else str(value)


def evaluation_rows(
    records: Sequence[Mapping[str, Any]], measures: Mapping[str, evaluation.Measure], trial: Trial
) -> list[list[str]]:
    """Lists a metric a row and a model a column; the numbers of a list have rows of their own."""
    table = [["metric", *map(_heading, records)]]
    for name, measure in measures.items():
        values = [record["metrics"][name] for record in records]
        if not isinstance(values[0], list):
            table.append([name, *(_text(value, measure.percent) for value in values)])
            continue
        labels = measure.labels(trial) if measure.labels else list(map(str, range(len(values[0]))))
        for place, label in enumerate(labels):
            table.append([f"{name} {label}", *(_text(value[place], measure.percent) for value in values)])
    return table


def _heading(record: Mapping[str, Any]) -> str:
    parts = [name_of(record["run"]), "" if record["whose"] == "consensus" else f"agent {record['whose']}"]
    return ", ".join([*filter(None, parts), f"epoch {record['epoch']:g}"])


def _text(value: Any, percent: bool) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if value is None:
        return "-"
    return f"{100 * value:.2f} %" if percent else f"{value:.4g}"
