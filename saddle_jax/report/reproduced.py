"""The paper's experiments in text: what there is to run, and its results beside ours, with a picture."""

import itertools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

from saddle_jax.core.ledger import readable
from saddle_jax.paper.experiments import EXPERIMENTS, Entry
from saddle_jax.paper.figures import FIGURES
from saddle_jax.paper.plan import Planned, Remaining
from saddle_jax.paper.scales import SCALES, Scale
from saddle_jax.report.plots import new_figure, save
from saddle_jax.report.tables import Cell, as_text, cell_of, write_all

_BASE = {"q_saddle": "qgm", "n_saddle": "ngm", "d_saddle": "dpsgd"}


def overview() -> str:
    """Lists all tables, figures and scales."""
    tables = [["table", "entries", "what"]]
    tables += [[name, str(len(e.entries)), e.title] for name, e in EXPERIMENTS.items()]
    figures = [["figure", "runs of", "what"]]
    figures += [[name, f"table {f.table}" if f.table else "none", f.title] for name, f in FIGURES.items()]
    scales = "\n".join(f"--scale={scale.name:<6} {scale.meaning}" for scale in SCALES.values())
    return f"{as_text(tables)}\n\n{as_text(figures)}\n\n{scales}"


def describe_plan(remaining: Sequence[Remaining]) -> str:
    """Lists what will run, and about how long it will take."""
    rows = [["row", "seeds to run", "steps", "sends per agent", "about"]]
    for name, runs, size, seconds in remaining:
        sends = readable(size.bytes_sent)
        rows.append([name, str(runs), f"{size.steps:,}", sends, _duration(seconds)])
    total = _duration(sum(row.seconds for row in remaining))
    return f"\n{as_text(rows)}\n\nabout {total} on this machine, compilation apart"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def write_results(
    table: str,
    seeds: int,
    runs: Sequence[Planned],
    scale: Scale,
    folder: pathlib.Path,
    tell: Callable[[str], None],
) -> None:
    """Writes a table of the paper beside ours, the differences and a picture; `tell` prints them."""
    cells = {
        entry: cell_of([run.workdir for run in runs if run.entry == entry])
        for entry in dict.fromkeys(run.entry for run in runs)
    }
    title = EXPERIMENTS[table].title
    caption = f"Table {table}: {title}. {seeds} seeds. Scale {scale.name}: {scale.meaning}"
    rows, differences = beside_the_paper(cells, scale), contrasts(cells)
    tell(f"\n{caption}\n\n{as_text(rows)}")
    name = f"table-{table}-{scale.name}"
    paths = write_all(rows, folder, name, caption)
    if len(differences) > 1 and scale.is_comparable:
        tell(f"\nDifferences in percentage points\n\n{as_text(differences)}")
        paths += write_all(differences, folder, f"{name}-differences", caption)
    plot_beside_the_paper(cells, f"Table {table}, scale {scale.name}", folder / f"{name}.png")
    tell(f"\nwritten: {', '.join(path.name for path in paths)}, {name}.png in {folder}")


def beside_the_paper(cells: Mapping[Entry, Cell], scale: Scale) -> list[list[str]]:
    """Lists an entry a row, "paper | ours | difference" in percentage points, as text."""
    rows = [["dataset", "alpha", "graph", "method", "compressor", "scale", "paper", "ours", "difference"]]
    for entry, cell in cells.items():
        difference = "-"
        if cell.mean is not None and entry.printed is not None and scale.is_comparable:
            difference = f"{cell.mean - entry.printed.mean:+.2f}"
        rows.append(
            [
                *entry.problem,
                entry.method + (f" every {entry.ascent_every}" if entry.ascent_every > 1 else ""),
                entry.compressor,
                scale.name,
                "-" if entry.printed is None else str(entry.printed),
                cell.text(),
                difference,
            ]
        )
    return rows


def contrasts(cells: Mapping[Entry, Cell]) -> list[list[str]]:
    """Lists what SADDLe gains on its base method, and what compression costs, in the paper and here.

    Differences between methods survive a change of scale better than accuracies do.
    """
    rows = [["dataset", "alpha", "graph", "contrast", "paper", "ours"]]
    for one, other in itertools.product(cells, cells):
        what = _contrast(one, other)
        if what is None or one.problem != other.problem:
            continue
        paper = one.printed.mean - other.printed.mean if one.printed and other.printed else None
        mean, base = cells[one].mean, cells[other].mean
        ours = None if mean is None or base is None else mean - base
        rows.append([*one.problem, what, _signed(paper), _signed(ours)])
    return rows


def _contrast(one: Entry, other: Entry) -> str | None:
    """Names what the difference of two entries shows; None if it shows nothing."""
    if _BASE.get(one.method) == other.method and one.compressor == other.compressor:
        named = f" ({one.compressor})" if one.compressor != "none" else ""
        return f"{one.method} - {other.method}{named}"
    if one.method == other.method and one.compressor != "none" and other.compressor == "none":
        return f"{one.method}: {one.compressor} - none"
    return None


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


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
