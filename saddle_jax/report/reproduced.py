"""The paper's figures beside ours: the table, what SADDLe gains, what compression costs, a picture."""

import itertools
import os
from collections.abc import Mapping

from saddle_jax.paper.experiments import Entry
from saddle_jax.paper.scales import Scale
from saddle_jax.report.plots import new_figure, save
from saddle_jax.report.tables import Cell

_BASE = {"q_saddle": "qgm", "n_saddle": "ngm", "d_saddle": "dpsgd"}


def beside_the_paper(cells: Mapping[Entry, Cell], scale: Scale) -> list[list[str]]:
    """Rows of text: an entry each, "paper | ours | difference" in percentage points."""
    rows = [["dataset", "alpha", "graph", "method", "compressor", "scale", "paper", "ours", "difference"]]
    for entry, cell in cells.items():
        known = cell.mean is not None and entry.printed is not None and scale.is_comparable
        rows.append(
            [
                *entry.problem,
                entry.method + (f" every {entry.ascent_every}" if entry.ascent_every > 1 else ""),
                entry.compressor,
                scale.name,
                "-" if entry.printed is None else str(entry.printed),
                cell.text(),
                f"{cell.mean - entry.printed.mean:+.2f}" if known else "-",  # type: ignore[operator, union-attr]
            ]
        )
    return rows


def contrasts(cells: Mapping[Entry, Cell]) -> list[list[str]]:
    """What SADDLe gains on its base method, and what compression costs, in the paper and here.

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
    """What the difference of two entries tells; None if nothing."""
    if _BASE.get(one.method) == other.method and one.compressor == other.compressor:
        named = f" ({one.compressor})" if one.compressor != "none" else ""
        return f"{one.method} - {other.method}{named}"
    if one.method == other.method and one.compressor != "none" and other.compressor == "none":
        return f"{one.method}: {one.compressor} - none"
    return None


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def plot_beside_the_paper(cells: Mapping[Entry, Cell], title: str, path: str | os.PathLike) -> None:
    """Mean and deviation of every entry: the paper's as a grey bar, ours as a blue dot."""
    entries = [entry for entry, cell in cells.items() if cell.accuracies or entry.printed]
    figure, axes = new_figure(width=8, height=1.6 + 0.2 * len(entries))
    for row, entry in enumerate(reversed(entries)):
        if entry.printed is not None:
            axes.barh(row, entry.printed.mean, xerr=entry.printed.std, color="#d0d0d0", ecolor="#909090")
        for accuracy in cells[entry].accuracies:
            axes.plot(accuracy, row, "o", color="#4063d8", markersize=4, alpha=0.8)
    axes.set_yticks(range(len(entries)), [entry.name for entry in reversed(entries)], fontsize=6)
    axes.set_xlabel("test accuracy of the consensus model, %: bar the paper's, dots our seeds", fontsize=8)
    axes.set_title(title, fontsize=8, wrap=True)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)
