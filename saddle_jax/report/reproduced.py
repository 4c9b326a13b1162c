"""The paper's experiments in text: what there is to run, and its results beside ours, with a picture."""

import itertools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

from saddle_jax.core.ledger import readable
from saddle_jax.paper import experiments, figures
from saddle_jax.paper.experiments import EXPERIMENTS, Entry
from saddle_jax.paper.figures import FIGURES
from saddle_jax.paper.pairs import BASES
from saddle_jax.paper.plan import Planned, Remaining
from saddle_jax.paper.scales import SCALES, Scale
from saddle_jax.report.plots import new_figure, save
from saddle_jax.report.statistics import signed
from saddle_jax.report.tables import NUMBERS, Cell, as_text, cell_of, numbers_of, seeds_of, write_all
from saddle_jax.training.run_name import safe


def overview() -> str:
    """Lists all tables, figures and scales, each with its number in the paper."""
    numbers = {name: number for number, name in experiments.NUMBERED.items()}
    tables = [["table", "number", "entries", "what"]]
    for name, found in EXPERIMENTS.items():
        number = numbers.get(name, name if name.isdecimal() else "-")
        tables.append([name, number, str(len(found.entries)), found.title])
    listed = [["figure", "number", "runs of", "what"]]
    for name, figure in FIGURES.items():
        number = " and ".join(key for key, value in figures.NUMBERED.items() if value == name)
        listed.append(
            [name, number or "-", f"table {figure.table}" if figure.table else "none", figure.title]
        )
    scales = "\n".join(f"--scale={scale.name:<6} {scale.meaning}" for scale in SCALES.values())
    return f"{as_text(tables)}\n\n{as_text(listed)}\n\n{scales}"


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
    bases: Sequence[Planned],
    scale: Scale,
    folder: pathlib.Path,
    tell: Callable[[str], None],
    otherwise: Sequence[str] = (),
) -> None:
    """Writes a table of the paper beside ours, the differences and a picture; `tell` prints them.

    `bases` are runs of other tables that these are compared with, if they were made; `otherwise` is how the
    runs read what the paper leaves open, such as "order=paper".
    """
    cells, others = cells_of(runs), cells_of(bases)
    title = EXPERIMENTS[table].title
    caption = f"Table {table}: {title}. {seeds} seeds. Scale {scale.name}: {scale.meaning}"
    caption += f". Read otherwise, where it means something: {', '.join(otherwise)}" if otherwise else ""
    rows, differences = beside_the_paper(cells, scale, others), contrasts(cells, others)
    tell(f"\n{caption}\n\n{as_text(rows)}")
    name = "-".join([f"table-{table}-{scale.name}", *map(safe, otherwise)])
    paths = write_all(rows, folder, name, caption, numbers=numbers(cells, scale))
    if len(differences) > 1 and scale.is_comparable:
        explained = "Differences in percentage points; ours over the same seeds, with 95 % intervals"
        tell(f"\n{explained}\n\n{as_text(differences)}")
        paths += write_all(differences, folder, f"{name}-differences", caption)
    if others and not any(cell.scores for cell in others.values()):
        base = EXPERIMENTS[table].base
        tell(f"\nwhat these are compared with is in table {base}: saddle reproduce --table={base} runs it")
    shown = ", ".join([f"Table {table}, scale {scale.name}", *otherwise])
    plot_beside_the_paper(cells, shown, folder / f"{name}.png")
    tell(f"\nwritten: {', '.join(path.name for path in paths)}, {name}.png in {folder}")


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
    has_drops = any(entry.drop is not None for entry in cells)
    rows[0] += ["paper's drop", "our drop"] if has_drops else []
    for entry, cell in cells.items():
        difference = "-"
        if cell.mean is not None and entry.printed is not None and scale.is_comparable:
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


def numbers(cells: Mapping[Entry, Cell], scale: Scale) -> list[list[str]]:
    """Lists an entry a row for programs: the paper's numbers, ours, and ours seed by seed."""
    seeds = seeds_of(cells.values())
    rows = [["dataset", "alpha", "graph", "method", "compressor", "ascent_every", "rho", "scale"]]
    rows[0] += ["paper_mean", "paper_std", "paper_drop", *NUMBERS, *(f"seed {seed}" for seed in seeds)]
    for entry, cell in cells.items():
        paper = [None, None] if entry.printed is None else [entry.printed.mean, entry.printed.std]
        radius = "" if entry.rho is None else f"{entry.rho:g}"  # none: the dataset's
        row = [*entry.problem, entry.method, entry.compressor, str(entry.ascent_every), radius, scale.name]
        row += ["" if value is None else f"{value:g}" for value in (*paper, entry.drop)]
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
