"""Tables of results, read from run folders: as text, Markdown, CSV and LaTeX."""

import csv
import dataclasses
import io
import math
import pathlib
import re
from collections.abc import Container, Iterable, Sequence
from typing import Any

from saddle_jax.base.errors import printable
from saddle_jax.base.files import in_one_go
from saddle_jax.base.reading import damaged
from saddle_jax.report.fitting import fit
from saddle_jax.report.measures import CLASSIFICATION, Measure, measures, same
from saddle_jax.report.statistics import Summary, paired, summarise
from saddle_jax.runs.run_folder import read_about, read_config
from saddle_jax.runs.schema import read_result
from saddle_jax.runs.source_files import short
from saddle_jax.settings.config import Config

# Methods as papers write them.
NAMES = {
    "dpsgd": "DPSGD",
    "d_saddle": "D-SADDLe",
    "qgm": "QGM",
    "q_saddle": "Q-SADDLe",
    "ngm": "NGM",
    "n_saddle": "N-SADDLe",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One setting's scores, accuracies in percent, one per finished seed, and how many runs diverged."""

    scores: tuple[float, ...]
    diverged: int = 0
    digits: str = ".2f"
    seeds: tuple[int, ...] = ()  # of the scores, in their order; empty: not known
    bounds: tuple[float, float] = (-math.inf, math.inf)  # between which every score lies

    @property
    def summary(self) -> Summary:
        """Returns mean, deviation and interval over seeds."""
        return summarise(self.scores).within(self.bounds)

    @property
    def mean(self) -> float | None:
        """Returns the mean score; None if no run finished."""
        return self.summary.mean

    @property
    def by_seed(self) -> dict[int, float]:
        """Returns the scores by seed; none if a seed has several."""
        once = len(set(self.seeds)) == len(self.scores)
        return dict(zip(self.seeds, self.scores, strict=True)) if once and self.seeds else {}

    def of(self, seeds: Container[int]) -> "Cell":
        """Returns the scores of these seeds alone."""
        kept = {seed: score for seed, score in self.by_seed.items() if seed in seeds}
        return dataclasses.replace(self, scores=tuple(kept.values()), seeds=tuple(kept))

    def minus(self, other: "Cell") -> Summary:
        """Returns the difference over the seeds of both; without any, that of the means, counted as 0."""
        found = paired(self.by_seed, other.by_seed)
        if not found.seeds and self.mean is not None and other.mean is not None:
            return Summary(0, self.mean - other.mean)
        return found

    def text(self, plus_minus: str = "+-") -> str:
        """Formats the cell, such as "71.20 +- 0.40"; a star marks runs that diverged, as in the paper."""
        star = "*" if self.diverged else ""
        if not self.scores:
            return f"diverged{star}" if self.diverged else "-"
        std = self.summary.std
        spread = "" if std is None else f" {plus_minus} {std:{self.digits}}"
        return f"{self.mean:{self.digits}}{spread}{star}"


def gather(workdirs: Sequence[pathlib.Path], axes: Sequence[str]) -> dict[tuple[Any, ...], Cell]:
    """Returns cells by the settings that tell them apart, from the runs that have ended, also of sweeps."""
    headline = headline_of(workdirs)
    ended_by_cell: dict[tuple[Any, ...], list[_Ended]] = {}
    for config, result in (ended for workdir in workdirs for ended in _ended(workdir)):
        key = tuple(short(axis, getattr(config, axis)) for axis in axes)
        ended_by_cell.setdefault(key, []).append((config, result))
    return {key: _cell(ended, headline) for key, ended in ended_by_cell.items()}


def headline_of(workdirs: Sequence[pathlib.Path]) -> Measure:
    """Returns the metric by which runs are compared; runs of different ones are a RunError."""
    return same([measures(read_about(workdir), str(workdir)) for workdir in workdirs])


def cell_of(workdirs: Sequence[pathlib.Path]) -> Cell:
    """Returns the cell of runs that differ in the seed only, one or several to a folder, if they ended."""
    ended = [one for workdir in workdirs for one in _ended(workdir)]
    return _cell(ended, headline_of(workdirs) if workdirs else CLASSIFICATION[0])


_Ended = tuple[Config, dict[str, Any]]


def _ended(workdir: pathlib.Path) -> list[_Ended]:
    """Returns settings and result of each run of a folder; of none if they have not ended."""
    result = read_result(workdir)
    if result is None:
        return []
    configs, results = read_config(workdir).each(), result.get("replicas", [result])
    if len(configs) != len(results):
        raise damaged(workdir / "result.json", f"replicas must be a list of {len(configs)} objects")
    return list(zip(configs, results, strict=True))


def _cell(ended: Sequence[_Ended], headline: Measure) -> Cell:
    finished = [(config, result) for config, result in ended if result["status"] == "finished"]
    return Cell(
        tuple(headline.factor * result[headline.key] for _, result in finished),
        sum(result["status"] == "diverged" for _, result in ended),
        ".2f" if headline.percent else ".4g",
        tuple(config.seed for config, _ in finished),
        headline.bounds,
    )


def run_names(workdirs: Sequence[pathlib.Path]) -> list[str]:
    """Names runs in tables and pictures: by their folders, or by whole paths if two are alike."""
    names = [workdir.resolve().name for workdir in workdirs]
    return names if len(set(names)) == len(names) else [str(workdir) for workdir in workdirs]


def as_text(rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Formats rows with aligned columns; control characters of names are spelt out.

    Cells are wrapped where the table would be wider than `width`.
    """
    return "\n".join(fit([[printable(cell) for cell in row] for row in rows], width).lines)


_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")


def as_records(rows: Sequence[Sequence[str]], texts: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Turns rows into one dict each, by their heading: numbers are numbers, and what is not there is None.

    `texts` are columns that stay text, whatever they look like.
    """

    def plain(name: str, cell: str) -> Any:
        if cell in ("", "-"):
            return None
        if name in texts or not _NUMBER.fullmatch(cell):
            return cell
        return float(cell) if set(cell) & set(".e") else int(cell)

    head, *body = rows
    return [{name: plain(name, cell) for name, cell in zip(head, row, strict=True)} for row in body]


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as a Markdown table."""
    head, *body = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body]) + "\n"


def as_csv(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as comma-separated values (CSV)."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "_%&#$" + "{}"},
}


def as_latex(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as a LaTeX tabular with the rules of booktabs, methods by the names of the paper."""

    def written(cell: str) -> str:
        method, space, rest = cell.partition(" ")
        named = NAMES.get(method, method) + space + rest
        return "".join(_LATEX.get(sign, sign) for sign in named).replace("+-", r"$\pm$")

    head, *body = (" & ".join(map(written, row)) + r" \\" for row in rows)
    columns = "l" * len(rows[0])
    top = [r"% needs \usepackage{booktabs}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    return "\n".join([*top, head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", ""])


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
    rows: Sequence[Sequence[str]],
    folder: pathlib.Path,
    name: str,
    caption: str = "",
    numbers: Sequence[Sequence[str]] | None = None,
) -> list[pathlib.Path]:
    """Writes NAME.txt, .md, .csv and .tex in a folder; `numbers` are what the CSV has instead of the rows."""
    paths = [folder / f"{name}.{form}" for form in FORMS]
    for path, form in zip(paths, FORMS, strict=True):
        content = numbers if form == "csv" and numbers else rows
        with in_one_go(path) as partial:
            partial.write_text(in_form(content, form, caption))
    return paths


NUMBERS = ("n", "mean", "std", "low", "high", "diverged")


def numbers_of(cell: Cell, seeds: Sequence[int]) -> list[str]:
    """Lists a cell's NUMBERS, then the score of each of these seeds, as a CSV has them; empty: none."""
    summary, by_seed = cell.summary, cell.by_seed
    found = [summary.seeds, *summary[1:], cell.diverged, *(by_seed.get(seed) for seed in seeds)]
    return ["" if value is None else f"{value:.12g}" for value in found]


def seeds_of(cells: Iterable[Cell]) -> list[int]:
    """Lists the seeds of some cells, in order."""
    return sorted({seed for cell in cells for seed in cell.seeds})
