"""Comparing runs with a paper's printed results, claims and statements: tables, paired differences, tests."""

import itertools
import math
import os
import pathlib
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from saddle_jax.base.errors import RunError
from saddle_jax.papers.runs import Planned, ended_below, suffixes_below
from saddle_jax.papers.tables import (
    Claim,
    Contrast,
    Entry,
    Paper,
    Printed,
    Quantity,
    Scale,
    Statement,
    printed_means,
)
from saddle_jax.report.plots import new_figure, save
from saddle_jax.report.tables import write_all
from saddle_jax.runs.run_name import safe
from saddle_jax.runs.statistics import Summary, holm, in_percent, paired, signed, summarise
from saddle_jax.runs.table import NUMBERS, Cell, Run, cell_of, consensus_stages, load_runs, seeds_of

# ---- reading runs ----

Runs = Mapping[Entry, Mapping[int, Run]]  # by entry and seed


def runs_below(paper: Paper, folder: pathlib.Path, scale: Scale) -> dict[Entry, dict[int, Run]]:
    """Reads the finished runs below a folder of a paper's entries at a scale, by entry and seed."""
    runs = {entry: load_runs(ended_below(folder, scale, entry)) for entry in paper.entries()}
    return {entry: {run.config.seed: run for run in several} for entry, several in runs.items() if several}


def means_below(paper: Paper, folder: pathlib.Path, scale: Scale) -> dict[Entry, float]:
    """Returns the mean score of each entry of a paper with finished runs at a scale below a folder."""
    runs = runs_below(paper, folder, scale)
    means = {entry: cell_of(by_seed.values()).mean for entry, by_seed in runs.items()}
    return {entry: mean for entry, mean in means.items() if mean is not None}


def cells_of(runs: Sequence[Planned]) -> dict[Entry, Cell]:
    """Returns the scores of each entry's finished runs."""
    return {
        entry: cell_of(load_runs(run.workdir for run in runs if run.entry == entry and not run.is_missing))
        for entry in dict.fromkeys(run.entry for run in runs)
    }


def values_of(runs: Mapping[int, Run], quantity: Quantity) -> dict[int, float]:
    """Returns a quantity by seed, for the finished runs that have it."""
    values = {seed: _value(run, quantity) for seed, run in runs.items() if run.state == "finished"}
    return {seed: value for seed, value in values.items() if value is not None}


def _value(run: Run, quantity: Quantity) -> float | None:
    if quantity == "accuracy":
        score = run.score()
        return None if score is None else run.headline.factor * score
    if quantity == "lambda_max":
        last = next(reversed(consensus_stages(run)), None)
        # A measurement before the end does not count.
        return last["lambda_max"] if last and last["step"] == run.result["steps"] else None
    if quantity == "best_accuracy":
        _, scores = run.curve(run.headline.key)
        return run.headline.factor * max(scores) if scores else None
    _, values = run.curve("backward_passes" if quantity == "passes" else quantity)
    if not values:
        return None
    return values[-1] if quantity == "passes" else statistics.fmean(values)


class Interpretation(NamedTuple):
    """Results of an entry under the default interpretation and another one.

    Attributes:
      entry: the entry.
      what: the other interpretation, such as "order=paper".
      default: scores under the default interpretation.
      other: scores under the other one.
    """

    entry: Entry
    what: str
    default: Cell
    other: Cell


def interpreted(paper: Paper, folder: pathlib.Path, scale: Scale) -> list[Interpretation]:
    """Reads the runs of all interpretations below a folder, each paired with the default one."""
    pairs = []
    for entry in paper.entries():
        for suffix in suffixes_below(folder, scale, entry):
            default, other = (
                cell_of(load_runs(ended_below(folder, scale, entry, end))) for end in ("", suffix)
            )
            if default.values and (other.values or other.diverged):
                pairs.append(Interpretation(entry, suffix.removeprefix("-"), default, other))
    return sorted(pairs, key=lambda one: one.what)


# ---- the paper's table beside ours ----

_NO_RESULT = "smoke test, not a result"


class Results(NamedTuple):
    """A table of the paper beside ours.

    Attributes:
      caption: what the table shows, and at which scale.
      rows: one entry per row, as text.
      numbers: the rows of the CSV.
      differences: gains of methods and drops by compression, as text; empty if they mean nothing.
      hint: the missing runs to compare with; empty if none are.
      files: the files written.
    """

    caption: str
    rows: list[list[str]]
    numbers: list[list[str]]
    differences: list[list[str]]
    hint: str
    files: list[pathlib.Path]


def write_results(
    paper: Paper,
    table: str,
    seeds: int,
    runs: Sequence[Planned],
    bases: Sequence[Planned],
    scale: Scale,
    folder: pathlib.Path,
    otherwise: Sequence[str] = (),
) -> Results:
    """Writes a table of the paper beside ours, the differences and a picture.

    `bases` are runs of other tables to compare with, if there are any; `otherwise` are the interpretations
    other than the default, such as "order=paper".
    """
    cells, others = cells_of(runs), cells_of(bases)
    title = paper.tables[table].title
    marked = "" if scale.is_comparable else f"{_NO_RESULT.capitalize()}. "
    caption = f"{marked}Table {table}: {title}. {seeds} seeds. Scale {scale.name}: {scale.meaning}"
    caption += f". Read otherwise, where it means something: {', '.join(otherwise)}" if otherwise else ""
    rows, gains = beside_the_paper(cells, scale, others), contrasts(paper, cells, others)
    name = "-".join([f"table-{table}-{scale.name}", *map(safe, otherwise)])
    alone = numbers(cells, scale)
    paths = write_all(rows, folder, name, caption, numbers=alone)
    gains = gains if len(gains) > 1 and scale.is_comparable else []
    if gains:
        paths += write_all(gains, folder, f"{name}-differences", caption)
    hint = ""
    if others and not any(cell.scores for cell in others.values()):
        base = paper.tables[table].base
        hint = f"what these are compared with is in table {base}: saddle reproduce --table={base} runs it"
    shown = ", ".join([f"{marked}Table {table}, scale {scale.name}", *otherwise])
    plot_beside_the_paper(cells, shown, folder / f"{name}.png")
    return Results(caption, rows, alone, gains, hint, [*paths, folder / f"{name}.png"])


def beside_the_paper(
    cells: Mapping[Entry, Cell], scale: Scale, others: Mapping[Entry, Cell] | None = None
) -> list[list[str]]:
    """Returns the table "paper | ours | difference" in percentage points, one entry per row.

    Drops that the paper prints follow, with ours computed from the uncompressed runs in `others`. At a scale
    that is not comparable the results are marked, without the paper's numbers.
    """
    rows = [["dataset", "alpha", "graph", "method", "compressor", "scale"]]
    has_drops = any(entry.drop is not None for entry in cells)
    if scale.is_comparable:
        rows[0] += ["paper", "ours", "95 % interval", "difference"]
        rows[0] += ["paper's drop", "our drop"] if has_drops else []
    else:
        rows[0].append(_NO_RESULT)
    for entry, cell in cells.items():
        row = [*entry.problem, entry.variant, entry.compressor, scale.name]
        if not scale.is_comparable:
            rows.append([*row, f"({cell.text()})"])
            continue
        printed = entry.printed
        difference = None if cell.mean is None or printed is None else cell.mean - printed.mean
        row += [
            str(printed or "-"),
            cell.text(),
            cell.summary.interval(cell.measure.form),
            signed(difference),
        ]
        if has_drops:
            bases = (base for one, base in (others or {}).items() if _is_uncompressed(entry, one))
            drop = next(bases, Cell(())).minus(cell).mean
            row += [f"{entry.drop:.2f}", "-" if drop is None else f"{drop:.2f}"]
        rows.append(row)
    return rows


def numbers(cells: Mapping[Entry, Cell], scale: Scale) -> list[list[str]]:
    """Returns the CSV table with one entry per row: the paper's numbers, ours, and ours by seed."""
    seeds = seeds_of(cells.values())
    rows = [["dataset", "alpha", "graph", "method", "compressor", "ascent_every", "rho", "scale"]]
    rows[0] += [] if scale.is_comparable else ["note"]
    rows[0] += ["paper_mean", "paper_std", "paper_drop", *NUMBERS, *(f"seed {seed}" for seed in seeds)]
    for entry, cell in cells.items():
        printed = entry.printed if scale.is_comparable else None
        paper = (None, None) if printed is None else (printed.mean, printed.std)
        drop = entry.drop if scale.is_comparable else None
        radius = "" if entry.rho is None else f"{entry.rho:g}"  # empty: that of the dataset
        row = [*entry.problem, entry.method, entry.compressor, str(entry.ascent_every), radius, scale.name]
        row += [] if scale.is_comparable else [_NO_RESULT]
        row += ["" if value is None else f"{value:g}" for value in (*paper, drop)]
        rows.append([*row, *cell.numbers(seeds)])
    return rows


def contrasts(
    paper: Paper, cells: Mapping[Entry, Cell], others: Mapping[Entry, Cell] | None = None
) -> list[list[str]]:
    """Returns the table of SADDLe's gains over the base methods and of drops by compression, paper and ours.

    Differences between methods depend less on the scale than accuracies. `others` are entries of other tables
    to compare with.
    """
    rows = [["dataset", "alpha", "graph", "contrast", "paper", "ours", "95 % interval", "seeds"]]
    every = {**(others or {}), **cells}
    for one, other in itertools.product(cells, every):
        what = _contrast(paper, one, other)
        if what is None or one.problem != other.problem or one.schedule != other.schedule:
            continue
        printed = Contrast(one, other).of(printed_means([one, other]))
        ours = cells[one].minus(every[other])
        row = [*one.problem, what, signed(printed), signed(ours.mean)]
        rows.append([*row, ours.interval("+.2f"), str(ours.seeds)])
    return rows


def _contrast(paper: Paper, one: Entry, other: Entry) -> str | None:
    """Describes the difference of two entries; None if they are not comparable."""
    named = f" ({one.compressor})" if one.compressor != "none" else ""
    if paper.bases.get(one.method) == other.method and one.compressor == other.compressor:
        return f"{one.variant} - {other.method}{named}"
    if one.method == other.method and one.compressor == other.compressor:
        is_special = one.ascent_every > other.ascent_every or (one.rho is not None and other.rho is None)
        return f"{one.variant} - {other.variant}{named}" if is_special else None
    if _is_uncompressed(one, other):
        return f"{one.variant}: {one.compressor} - none"
    return None


def _is_uncompressed(one: Entry, other: Entry) -> bool:
    """Returns whether the second entry is the first without compression."""
    same = (one.problem, one.method, one.ascent_every, one.schedule)
    others = (other.problem, other.method, other.ascent_every, other.schedule)
    return same == others and one.compressor != "none" and other.compressor == "none"


def plot_beside_the_paper(cells: Mapping[Entry, Cell], title: str, path: str | os.PathLike[str]) -> None:
    """Draws mean and standard deviation of every entry: the paper's as a grey bar, ours as a blue dot."""
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


# ---- claims: numbers in the paper's text ----


def claim_rows(claims: Sequence[Claim], ours: Mapping[Entry, float] | None) -> list[list[str]]:
    """Returns the table of claims: the stated number, that from the printed tables and, if given, ours.

    Ours uses the differences that our runs have, "of" those that the claim is about.
    """
    rows = [["place", "the text says", "stated", "the tables say", "agrees", "differences"]]
    rows[0] += [] if ours is None else ["ours", "of them"]
    for claim in claims:
        stated = " to ".join(claim.stated)
        row = [claim.place, claim.text, stated, claim.written(claim.printed()), claim.verdict()]
        row.append(str(len(claim.contrasts)))
        if ours is not None:
            value, count = claim.value(ours)
            # A claim that lists each value needs all of them.
            whole = value if value and len(value) == len(claim.stated) else None
            row += [claim.written(whole), str(count if whole else 0)]
        rows.append(row)
    return rows


# ---- statements: which of two is larger ----

SHOWN, NOT_SHOWN, CONTRADICTED = "shown", "not shown", "contradicted"
# Verdicts for a deterministic quantity, and for too few runs.
COUNTED, DIVERGED, ONE_SEED = "counted", "diverged", "one seed"
_WIDEST = 100  # ratios further from 1 than this are cut off in pictures
_COLOURS = {SHOWN: "#389826", NOT_SHOWN: "#808080", CONTRADICTED: "#cb3c33"}


class Finding(NamedTuple):
    """The test of a statement on one contrast.

    Attributes:
      statement: the statement.
      contrast: the contrast.
      paper: the difference between the printed accuracies, None without them; with a star if one of the
        paper's runs diverged.
      by_seed: the differences by seed; for relative statements the log ratios.
      diverged: the number of diverged runs, whose seeds are not compared.
    """

    statement: Statement
    contrast: Contrast
    paper: Printed | None
    by_seed: Mapping[int, float]
    diverged: int

    @property
    def ours(self) -> Summary:
        """Summary statistics of the differences, in percentage points or percent."""
        return _shown(self.statement, list(self.by_seed.values()))

    @property
    def p(self) -> float | None:
        """The p-value of the difference; None for a deterministic quantity."""
        return None if self.statement.quantity == "passes" else summarise(list(self.by_seed.values())).p

    @property
    def verdict(self) -> str:
        """What the 95 % interval decides, or why it decides nothing."""
        if not self.by_seed:
            return DIVERGED
        if self.statement.quantity == "passes":
            return COUNTED
        return _verdict(self.statement, self.ours) or ONE_SEED

    @property
    def label(self) -> str:
        """The name of the contrast: problem, method and compressor."""
        one = self.contrast.one
        return ", ".join([*one.problem, one.variant, *([one.compressor] if one.compressor != "none" else [])])


def _shown(statement: Statement, differences: Sequence[float]) -> Summary:
    summary = summarise(differences)
    return in_percent(summary) if statement.is_relative else summary


def _verdict(statement: Statement, ours: Summary) -> str | None:
    if ours.low is None or ours.high is None:
        return None
    ends = sorted(statement.sign * end for end in (ours.low, ours.high))
    if ends[0] > 0:
        return SHOWN
    return CONTRADICTED if ends[1] < 0 else NOT_SHOWN


def findings(statements: Iterable[Statement], runs: Runs) -> list[Finding]:
    """Tests every statement on the contrasts with at least one seed of each entry."""
    all_findings = []
    for statement in statements:
        for contrast in statement.contrasts:
            if not all(entry in runs for entry in contrast.entries):
                continue
            by_seed = _by_seed(statement, contrast, runs)
            diverged = sum(
                run.state == "diverged" for entry in contrast.entries for run in runs[entry].values()
            )
            is_printed = statement.quantity == "accuracy"
            if by_seed or (is_printed and diverged):  # diverged runs are reported, too
                paper = _printed(contrast) if is_printed else None
                all_findings.append(Finding(statement, contrast, paper, by_seed, diverged))
    return all_findings


def _by_seed(statement: Statement, contrast: Contrast, runs: Runs) -> dict[int, float]:
    """Returns the contrast for each seed that all entries have; for relative statements of logarithms."""
    values = {entry: values_of(runs[entry], statement.quantity) for entry in contrast.entries}
    found = {}
    for seed in sorted(set.intersection(*(set(by_seed) for by_seed in values.values()))):
        own = {entry: by_seed[seed] for entry, by_seed in values.items()}
        if statement.is_relative:
            own = {entry: math.log(value) for entry, value in own.items()}
        difference = contrast.of(own)
        assert difference is not None
        found[seed] = difference
    return found


def _printed(contrast: Contrast) -> Printed | None:
    difference = contrast.of(printed_means(contrast.entries))
    is_starred = any(entry.printed and entry.printed.star for entry in contrast.entries)
    return None if difference is None else Printed(difference, star=is_starred)


def finding_rows(all_findings: Sequence[Finding]) -> list[list[str]]:
    """Returns the table of findings, one per row: differences in percentage points, or with % in percent.

    p is given for the single difference, and corrected for multiple comparisons.
    """
    rows = [["statement", "dataset", "alpha", "graph", "method", "compressor"]]
    rows[0] += ["paper", "ours", "95 % interval", "seeds", "verdict", "p", "p of all"]
    chances = [one.p for one in all_findings]
    corrected = iter(holm([p for p in chances if p is not None]))
    for one, p in zip(all_findings, chances, strict=True):
        entry, unit = one.contrast.one, "%" if one.statement.is_relative else ""
        star = "*" if one.diverged else ""
        paper = "-" if one.paper is None else signed(one.paper.mean) + "*" * one.paper.star
        row = [one.statement.name, *entry.problem, entry.variant, entry.compressor, paper]
        ours = "-" if one.ours.mean is None else f"{one.ours.mean:+.2f}{unit}"
        row += [ours + star, one.ours.interval("+.2f"), str(one.ours.seeds), one.verdict]
        rows.append([*row, *(["-", "-"] if p is None else [f"{p:.4f}", f"{next(corrected):.2f}"])])
    return rows


def statement_rows(all_findings: Sequence[Finding]) -> list[list[str]]:
    """Returns the table of statements: the number of contrasts that decide each, and the mean difference.

    The mean is over contrasts with several seeds, for each seed that all of them have; its interval is over
    these seeds.
    """
    rows = [["statement", "the paper says", *_COLOURS, "other", "mean of all", "95 % interval", "together"]]
    for statement, ours in _by_statement(all_findings):
        verdicts = [one.verdict for one in ours]
        others = [f"{verdicts.count(name)} {name}" for name in (COUNTED, DIVERGED, ONE_SEED)]
        row = [statement.name, statement.text, *(str(verdicts.count(verdict)) for verdict in _COLOURS)]
        row.append(", ".join(text for text in others if not text.startswith("0 ")) or "-")
        together = _together(statement, ours)
        unit = "%" if statement.is_relative else ""
        mean = "-" if together.mean is None else f"{together.mean:+.2f}{unit}"
        decided = COUNTED if COUNTED in verdicts else _verdict(statement, together) or "-"
        rows.append([*row, mean, together.interval("+.2f"), decided])
    return rows


def _by_statement(all_findings: Sequence[Finding]) -> Iterator[tuple[Statement, list[Finding]]]:
    for name in dict.fromkeys(one.statement.name for one in all_findings):
        several = [one for one in all_findings if one.statement.name == name]
        yield several[0].statement, several


def _together(statement: Statement, several: Sequence[Finding]) -> Summary:
    compared = [one.by_seed for one in several if len(one.by_seed) > 1]  # one seed would leave only itself
    seeds = set.intersection(*(set(by_seed) for by_seed in compared)) if compared else set()
    return _shown(statement, [statistics.fmean(one[seed] for one in compared) for seed in sorted(seeds)])


def statement_tables(
    paper: Paper, statements: Sequence[Statement], folder: pathlib.Path, scale: Scale
) -> tuple[str, dict[str, list[list[str]]], list[Finding]]:
    """Tests statements on the runs below a folder; returns the tables by name, the first one's first."""
    runs = runs_below(paper, folder, scale)
    found, others = findings(statements, runs), interpreted(paper, folder, scale)
    if not found:
        raise RunError(f"there are no runs to compare in {folder / scale.name}: --table=1 makes some")
    name = f"evidence-{scale.name}"
    tables = {name: finding_rows(found), f"{name}-accuracies": accuracy_rows(runs)}
    if others:
        tables[f"{name}-interpretations"] = interpretation_rows(paper, others)
    return name, tables | {f"{name}-summary": statement_rows(found)}, found


def plot_findings(all_findings: Sequence[Finding], path: pathlib.Path) -> bool:
    """Draws each statement's differences with their intervals, and marks the side that agrees with it.

    Returns whether there was an interval to draw, which requires two seeds.
    """
    groups = [
        [one for one in several if one.verdict in _COLOURS] for _, several in _by_statement(all_findings)
    ]
    groups = [group for group in groups if group]
    if not groups:
        return False
    rows = sum(len(group) for group in groups)
    figure, _ = new_figure(width=8, height=0.8 * len(groups) + 0.17 * rows + 0.3)
    figure.clear()
    heights = [len(group) + 1.5 for group in groups]
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, group in zip(panels, groups, strict=True):
        _draw(panel, group)
    save(figure, path)
    return True


def _draw(panel: Any, group: Sequence[Finding]) -> None:
    """Draws differences in percentage points, or ratios on a logarithmic axis."""
    statement = group[0].statement
    nothing = 1 if statement.is_relative else 0
    for row, one in enumerate(reversed(group)):
        low, mean, high = (
            1 + value / 100 if statement.is_relative else value
            for value in (one.ours.low, one.ours.mean, one.ours.high)
            if value is not None
        )
        panel.plot([low, high], [row, row], color=_COLOURS[one.verdict], linewidth=1.5)
        panel.plot(mean, row, "o", color=_COLOURS[one.verdict], markersize=4)
        if one.paper is not None:
            panel.plot(one.paper.mean, row, "|", color="#202020", markersize=8)
    if statement.is_relative:
        _by_ratios(panel)
    panel.axvline(nothing, color="#b0b0b0", linewidth=0.8, zorder=0)
    panel.set_yticks(range(len(group)), [one.label for one in reversed(group)], fontsize=6)
    panel.set_ylim(-0.7, len(group) - 0.3)
    panel.tick_params(axis="x", labelsize=6)
    side = "right" if statement.sign > 0 else "left"
    unit = "the ratio" if statement.is_relative else "the difference in percentage points"
    panel.set_title(f"{statement.text}: {unit}, {side} of {nothing}", fontsize=7, loc="left")
    panel.spines[["top", "right"]].set_visible(False)


def _by_ratios(panel: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    panel.set_xscale("log")
    left, right = panel.get_xlim()
    panel.set_xlim(max(min(left, 0.9), 1 / _WIDEST), min(max(right, 1.1), _WIDEST))
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter(NullFormatter())


# ---- all entries, and other interpretations ----


def accuracy_rows(runs: Runs) -> list[list[str]]:
    """Returns the table of final accuracy and lambda_max by entry; a star marks diverged runs."""
    rows = [["run", "test accuracy, %", "95 % interval", "seeds", "lambda_max", "seeds"]]
    for entry, by_seed in sorted(runs.items(), key=lambda item: item[0].name):
        cell = cell_of(by_seed.values())
        sharpness = summarise(list(values_of(by_seed, "lambda_max").values()))
        row = [entry.name, cell.text(), cell.summary.interval(), str(len(cell.values))]
        rows.append([*row, _spread(sharpness), str(sharpness.seeds)])
    return rows


def _spread(summary: Summary) -> str:
    if summary.mean is None:
        return "-"
    digits = ".0f" if summary.mean >= 100 else ".1f"
    return f"{summary.mean:{digits}}" + ("" if summary.std is None else f" +- {summary.std:{digits}}")


def interpretation_rows(paper: Paper, pairs: list[Interpretation]) -> list[list[str]]:
    """Returns the table of other interpretations, one entry per row, with their effect on SADDLe's gain.

    Everything is over the common seeds, with differences in percentage points. The gain is that of a SADDLe
    method over its base under the same interpretation.
    """
    rows = [["read otherwise", "dataset", "alpha", "graph", "method", "compressor", "default", "otherwise"]]
    rows[0] += ["difference", "95 % interval", "seeds", "gain by default", "gain otherwise"]
    by_place = {(one.what, *_place(one.entry)): one for one in pairs}
    for one in pairs:
        entry, change = one.entry, one.other.minus(one.default)
        default = one.default.of(one.other.by_seed)
        row = [one.what, *entry.problem, entry.variant, entry.compressor]
        row += [
            default.text() if default.scores else one.default.text(),
            one.other.text(),
            signed(change.mean),
            change.interval("+.2f"),
            str(change.seeds),
        ]
        rows.append([*row, *_gains(paper, one, by_place)])
    return rows


def _place(entry: Entry) -> tuple[Any, ...]:
    return (entry.problem, entry.method, entry.compressor, entry.ascent_every, entry.schedule, entry.rho)


def _gains(
    paper: Paper, one: Interpretation, by_place: Mapping[tuple[Any, ...], Interpretation]
) -> list[str]:
    """Formats SADDLe's gain under both interpretations, over the seeds that all four entries have."""
    base = paper.bases.get(one.entry.method)
    problem, _, *rest = _place(one.entry)
    other = by_place.get((one.what, problem, base, *rest))
    if other is None:
        return ["-", "-"]
    cells = (one.default, other.default, one.other, other.other)
    seeds = set.intersection(*(set(cell.by_seed) for cell in cells))
    by_seed = [cell.of(seeds).by_seed for cell in cells]
    return [signed(paired(by_seed[0], by_seed[1]).mean), signed(paired(by_seed[2], by_seed[3]).mean)]
