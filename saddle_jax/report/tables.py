"""Tables of results, read from run folders: as text, Markdown, CSV and LaTeX."""

import csv
import dataclasses
import io
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from saddle_jax.base.files import in_one_go
from saddle_jax.report.measures import CLASSIFICATION, Measure, measures, same
from saddle_jax.training.code import short
from saddle_jax.training.grid import Grid, number
from saddle_jax.training.run_folder import read_about, read_config, read_result


@dataclasses.dataclass(frozen=True)
class Cell:
    """One setting's scores, accuracies in percent, one per finished seed, and how many runs diverged."""

    scores: tuple[float, ...]
    diverged: int = 0
    digits: str = ".2f"

    @property
    def mean(self) -> float | None:
        """Returns the mean score; None if no run finished."""
        return statistics.fmean(self.scores) if self.scores else None

    def text(self, plus_minus: str = "+-") -> str:
        """Formats the cell, such as "71.20 +- 0.40"; a star marks runs that diverged, as in the paper."""
        star = "*" if self.diverged else ""
        if not self.scores:
            return f"diverged{star}" if self.diverged else "-"
        several = len(self.scores) > 1
        spread = f" {plus_minus} {statistics.stdev(self.scores):{self.digits}}" if several else ""
        return f"{self.mean:{self.digits}}{spread}{star}"


def gather(workdirs: Sequence[pathlib.Path], axes: Sequence[str]) -> dict[tuple[Any, ...], Cell]:
    """Returns cells by the settings that tell them apart, from the runs that have ended, also of sweeps."""
    headline = headline_of(workdirs)
    results_by_cell: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for workdir in workdirs:
        configs, results = read_config(workdir).each(), _results(workdir)
        for config, result in zip(configs, results, strict=True) if results else ():
            key = tuple(short(axis, getattr(config, axis)) for axis in axes)
            results_by_cell.setdefault(key, []).append(result)
    return {key: _cell(results, headline) for key, results in results_by_cell.items()}


def headline_of(workdirs: Sequence[pathlib.Path]) -> Measure:
    """Returns the metric by which runs are compared; runs of different ones are a RunError."""
    return same([measures(read_about(workdir), str(workdir)) for workdir in workdirs])


def cell_of(workdirs: Sequence[pathlib.Path]) -> Cell:
    """Returns the cell of runs that differ in the seed only, one or several to a folder, if they ended."""
    results = [result for workdir in workdirs for result in _results(workdir)]
    return _cell(results, headline_of(workdirs) if workdirs else CLASSIFICATION[0])


def _results(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the result of each run of a folder; of none if they have not ended."""
    result = read_result(workdir)
    return [] if result is None else result.get("replicas", [result])


def _cell(results: Sequence[dict[str, Any]], headline: Measure) -> Cell:
    return Cell(
        tuple(headline.factor * r[headline.key] for r in results if r["status"] == "finished"),
        sum(r["status"] == "diverged" for r in results),
        ".2f" if headline.percent else ".4g",
    )


def comparison(cells: dict[tuple[Any, ...], Cell], grid: Grid) -> list[list[str]]:
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
        found = [
            cells.get(tuple(short(axis, {**row, **column}[axis]) for axis in grid.axes), Cell(()))
            for column in columns
        ]
        line, base = [*row.values(), found[0].text()], found[0].mean
        for cell in found[1:]:
            drop = "-" if base is None or cell.mean is None else f"{base - cell.mean:{cell.digits}}"
            line += [cell.text(), drop] if only_compressors else [cell.text()]
        table.append(line)
    return table


def _label(column: Mapping[str, Any], grid: Grid) -> str:
    """Names a column; a single compressor of all is not worth a word where something else varies."""
    parts = [column["compressor"]] if len(grid.compressors) > 1 or len(column) == 1 else []
    parts += [column["ascent"]] if "ascent" in column else []
    parts += [f"drop {number(column['drop'])}"] if "drop" in column else []
    return ", ".join(parts)


def run_names(workdirs: Sequence[pathlib.Path]) -> list[str]:
    """Names runs in tables and pictures: by their folders, or by whole paths if two are alike."""
    names = [workdir.resolve().name for workdir in workdirs]
    return names if len(set(names)) == len(names) else [str(workdir) for workdir in workdirs]


def as_text(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows with aligned columns, for a terminal."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as a Markdown table."""
    head, *body = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body]) + "\n"


def as_csv(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as comma-separated values (CSV)."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def as_latex(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as a LaTeX tabular."""

    def escape(cell: str) -> str:
        return cell.replace("_", r"\_").replace("%", r"\%").replace("+-", r"$\pm$")

    head, *body = (" & ".join(map(escape, row)) + r" \\" for row in rows)
    columns = "l" * len(rows[0])
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\hline",
            head,
            r"\hline",
            *body,
            r"\hline",
            r"\end{tabular}",
            "",
        ]
    )


FORMS = ("txt", "md", "csv", "tex")


def in_form(rows: Sequence[Sequence[str]], form: str, caption: str = "") -> str:
    """Formats rows for a file of one of FORMS; only the CSV, which programs read, has no caption."""
    above = f"{caption}\n\n" if caption else ""
    if form == "csv":
        return as_csv(rows)
    if form == "md":
        return above + as_markdown(rows)
    if form == "tex":
        return (f"% {caption}\n" if caption else "") + as_latex(rows)
    return f"{above}{as_text(rows)}\n"


def write_all(
    rows: Sequence[Sequence[str]], folder: pathlib.Path, name: str, caption: str = ""
) -> list[pathlib.Path]:
    """Writes NAME.txt, .md, .csv and .tex in a folder."""
    paths = [folder / f"{name}.{form}" for form in FORMS]
    for path, form in zip(paths, FORMS, strict=True):
        with in_one_go(path) as partial:
            partial.write_text(in_form(rows, form, caption))
    return paths
