"""The paper's experiments in text: what there is to run, and its results beside ours, with a picture."""

import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from saddle_jax.base.statistics import signed
from saddle_jax.core.ledger import readable
from saddle_jax.papers.saddle import experiments, figures
from saddle_jax.papers.saddle.experiments import EXPERIMENTS, Entry
from saddle_jax.papers.saddle.figures import FIGURES
from saddle_jax.papers.saddle.pairs import BASES
from saddle_jax.papers.saddle.plan import Planned, Remaining
from saddle_jax.papers.saddle.scales import SCALES, Scale
from saddle_jax.report.plots import new_figure, save
from saddle_jax.report.tables import write_all
from saddle_jax.runs.run_name import safe
from saddle_jax.runs.table import NUMBERS, Cell, cell_of, numbers_of, seeds_of

_NO_RESULT = "smoke test, not a result"


def table_rows() -> list[list[str]]:
    """Lists all tables as text, each with its number in the paper."""
    numbers = {name: number for number, name in experiments.NUMBERED.items()}
    tables = [["table", "number", "entries", "what"]]
    for name, found in EXPERIMENTS.items():
        number = numbers.get(name, name if name.isdecimal() else "-")
        tables.append([name, number, str(len(found.entries)), found.title])
    return tables


def figure_rows() -> list[list[str]]:
    """Lists all figures as text, each with its number in the paper."""
    listed = [["figure", "number", "runs of", "what"]]
    for name, figure in FIGURES.items():
        number = " and ".join(key for key, value in figures.NUMBERED.items() if value == name)
        listed.append(
            [name, number or "-", f"table {figure.table}" if figure.table else "none", figure.title]
        )
    return listed


def scale_rows() -> list[list[str]]:
    """Lists the sizes at which experiments can be run, as text."""
    return [["scale", "what it means"], *([scale.name, scale.meaning] for scale in SCALES.values())]


def plan_rows(remaining: Sequence[Remaining]) -> list[list[str]]:
    """Lists what will run as text, and about how long each row will take."""
    rows = [["row", "seeds to run", "steps", "sends per agent", "about"]]
    for name, runs, size, seconds in remaining:
        sends = readable(size.bytes_sent)
        rows.append([name, str(runs), f"{size.steps:,}", sends, duration(seconds)])
    return rows


def duration(seconds: float) -> str:
    """Writes about how long something takes."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Results(NamedTuple):
    """A table of the paper beside ours.

    Attributes:
      caption: what the table shows, and at which scale.
      rows: an entry a row, as text.
      numbers: the same for programs.
      differences: what methods gain and compression costs, as text; empty where that means nothing.
      hint: what would have to be run to compare with; empty if nothing.
      files: what was written.
    """

    caption: str
    rows: list[list[str]]
    numbers: list[list[str]]
    differences: list[list[str]]
    hint: str
    files: list[pathlib.Path]


def write_results(
    table: str,
    seeds: int,
    runs: Sequence[Planned],
    bases: Sequence[Planned],
    scale: Scale,
    folder: pathlib.Path,
    otherwise: Sequence[str] = (),
) -> Results:
    """Writes a table of the paper beside ours, the differences and a picture.

    `bases` are runs of other tables that these are compared with, if they were made; `otherwise` is how the
    runs read what the paper leaves open, such as "order=paper".
    """
    cells, others = cells_of(runs), cells_of(bases)
    title = EXPERIMENTS[table].title
    marked = "" if scale.is_comparable else f"{_NO_RESULT.capitalize()}. "
    caption = f"{marked}Table {table}: {title}. {seeds} seeds. Scale {scale.name}: {scale.meaning}"
    caption += f". Read otherwise, where it means something: {', '.join(otherwise)}" if otherwise else ""
    rows, differences = beside_the_paper(cells, scale, others), contrasts(cells, others)
    name = "-".join([f"table-{table}-{scale.name}", *map(safe, otherwise)])
    alone = numbers(cells, scale)
    paths = write_all(rows, folder, name, caption, numbers=alone)
    differences = differences if len(differences) > 1 and scale.is_comparable else []
    if differences:
        paths += write_all(differences, folder, f"{name}-differences", caption)
    hint = ""
    if others and not any(cell.scores for cell in others.values()):
        base = EXPERIMENTS[table].base
        hint = f"what these are compared with is in table {base}: saddle reproduce --table={base} runs it"
    shown = ", ".join([f"{marked}Table {table}, scale {scale.name}", *otherwise])
    plot_beside_the_paper(cells, shown, folder / f"{name}.png")
    return Results(caption, rows, alone, differences, hint, [*paths, folder / f"{name}.png"])


def cells_of(runs: Sequence[Planned]) -> dict[Entry, Cell]:
    """Returns the scores of each entry's runs, of those that have ended."""
    return {
        entry: cell_of([run.workdir for run in runs if run.entry == entry and not run.is_missing])
        for entry in dict.fromkeys(run.entry for run in runs)
    }


def beside_the_paper(
    cells: Mapping[Entry, Cell], scale: Scale, others: Mapping[Entry, Cell] | None = None
) -> list[list[str]]:
    """Lists an entry a row, "paper | ours | difference" in percentage points, as text.

    Where the paper prints drops they follow, ours from the uncompressed runs in `others`.
    """
    rows = [["dataset", "alpha", "graph", "method", "compressor", "scale", "paper", "ours", "95 % interval"]]
    rows[0].append("difference")
    if not scale.is_comparable:
        return _not_compared(cells, scale)
    has_drops = any(entry.drop is not None for entry in cells)
    rows[0] += ["paper's drop", "our drop"] if has_drops else []
    for entry, cell in cells.items():
        difference = "-"
        if cell.mean is not None and entry.printed is not None:
            difference = f"{cell.mean - entry.printed.mean:+.2f}"
        row = [*entry.problem, entry.variant, entry.compressor, scale.name]
        row += ["-" if entry.printed is None else str(entry.printed), cell.text()]
        row += [cell.summary.interval(cell.digits), difference]
        if has_drops:
            found = (base for one, base in (others or {}).items() if _is_uncompressed(entry, one))
            drop = next(found, Cell(())).minus(cell).mean
            row += [f"{entry.drop:.2f}", "-" if drop is None else f"{drop:.2f}"]
        rows.append(row)
    return rows


def _not_compared(cells: Mapping[Entry, Cell], scale: Scale) -> list[list[str]]:
    """Lists what runs gave that only show that everything runs: without the paper's numbers, and marked."""
    rows = [["dataset", "alpha", "graph", "method", "compressor", "scale", _NO_RESULT]]
    for entry, cell in cells.items():
        rows.append([*entry.problem, entry.variant, entry.compressor, scale.name, f"({cell.text()})"])
    return rows


def numbers(cells: Mapping[Entry, Cell], scale: Scale) -> list[list[str]]:
    """Lists an entry a row for programs: the paper's numbers, ours, and ours seed by seed."""
    seeds = seeds_of(cells.values())
    rows = [["dataset", "alpha", "graph", "method", "compressor", "ascent_every", "rho", "scale"]]
    rows[0] += [] if scale.is_comparable else ["note"]
    rows[0] += ["paper_mean", "paper_std", "paper_drop", *NUMBERS, *(f"seed {seed}" for seed in seeds)]
    for entry, cell in cells.items():
        printed = entry.printed if scale.is_comparable else None
        paper = (None, None) if printed is None else (printed.mean, printed.std)
        drop = entry.drop if scale.is_comparable else None
        radius = "" if entry.rho is None else f"{entry.rho:g}"  # none: the dataset's
        row = [*entry.problem, entry.method, entry.compressor, str(entry.ascent_every), radius, scale.name]
        row += [] if scale.is_comparable else [_NO_RESULT]
        row += ["" if value is None else f"{value:g}" for value in (*paper, drop)]
        rows.append([*row, *numbers_of(cell, seeds)])
    return rows


def contrasts(cells: Mapping[Entry, Cell], others: Mapping[Entry, Cell] | None = None) -> list[list[str]]:
    """Lists what SADDLe gains on its base method, and what compression costs, in the paper and here.

    Differences between methods survive a change of scale better than accuracies do. `others` are entries of
    other tables that these may be compared with.
    """
    rows = [["dataset", "alpha", "graph", "contrast", "paper", "ours", "95 % interval", "seeds"]]
    every = {**(others or {}), **cells}
    for one, other in itertools.product(cells, every):
        what = _contrast(one, other)
        if what is None or one.problem != other.problem or one.schedule != other.schedule:
            continue
        paper = one.printed.mean - other.printed.mean if one.printed and other.printed else None
        ours = cells[one].minus(every[other])
        row = [*one.problem, what, signed(paper), signed(ours.mean)]
        rows.append([*row, ours.interval("+.2f"), str(ours.seeds)])
    return rows


def _contrast(one: Entry, other: Entry) -> str | None:
    """Names what the difference of two entries shows; None if it shows nothing."""
    named = f" ({one.compressor})" if one.compressor != "none" else ""
    if BASES.get(one.method) == other.method and one.compressor == other.compressor:
        return f"{one.variant} - {other.method}{named}"
    if one.method == other.method and one.compressor == other.compressor:
        is_special = one.ascent_every > other.ascent_every or (one.rho is not None and other.rho is None)
        return f"{one.variant} - {other.variant}{named}" if is_special else None
    if _is_uncompressed(one, other):
        return f"{one.variant}: {one.compressor} - none"
    return None


def _is_uncompressed(one: Entry, other: Entry) -> bool:
    """Tells whether the second is the first without compression."""
    same = (one.problem, one.method, one.ascent_every, one.schedule)
    others = (other.problem, other.method, other.ascent_every, other.schedule)
    return same == others and one.compressor != "none" and other.compressor == "none"


def plot_beside_the_paper(cells: Mapping[Entry, Cell], title: str, path: str | os.PathLike) -> None:
    """Draws mean and deviation of every entry: the paper's as a grey bar, ours as a blue dot."""
    entries = [entry for entry, cell in cells.items() if cell.scores or entry.printed]
    figure, axes = new_figure(width=8, height=1.6 + 0.2 * len(entries))
    for row, entry in enumerate(reversed(entries)):
        if entry.printed is not None:
            axes.barh(row, entry.printed.mean, xerr=entry.printed.std, color="#d0d0d0", ecolor="#909090")
        for accuracy in cells[entry].scores:
            axes.plot(accuracy, row, "o", color="#4063d8", markersize=4, alpha=0.8)
    axes.set_yticks(range(len(entries)), [entry.name for entry in reversed(entries)], fontsize=6)
    axes.set_xlabel("test accuracy of the consensus model, %: bar the paper's, dots our seeds", fontsize=8)
    axes.set_title(title, fontsize=8, wrap=True)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)
