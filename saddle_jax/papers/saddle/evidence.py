"""What our runs say of the paper's statements: differences seed by seed, and what they decide."""

import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from saddle_jax.base.statistics import Summary, differences, holm, in_percent, signed, summarise
from saddle_jax.papers.saddle.experiments import Entry, all_entries
from saddle_jax.papers.saddle.plan import ended_below
from saddle_jax.papers.saddle.printed import Printed
from saddle_jax.papers.saddle.scales import Scale
from saddle_jax.papers.saddle.statements import STATEMENTS, Contrast, Quantity, Statement
from saddle_jax.report.plots import new_figure, save
from saddle_jax.runs.table import Run, consensus_stages, gather

SHOWN, NOT_SHOWN, CONTRADICTED = "shown", "not shown", "contradicted"
# What is no matter of chance, and what has too few runs to tell.
COUNTED, DIVERGED, ONE_SEED = "counted", "diverged", "one seed"
_WIDEST = 100  # ratios further from 1 than this are cut off in pictures
_COLOURS = {SHOWN: "#389826", NOT_SHOWN: "#808080", CONTRADICTED: "#cb3c33"}


class Finding(NamedTuple):
    """What the seeds of two entries say of a statement.

    Attributes:
      statement: what is tested.
      contrast: on which runs.
      paper: the difference between the printed accuracies, None where the paper prints none; with a star
        where one of its runs diverged.
      by_seed: the differences seed by seed; of relative statements the logarithms of ratios.
      diverged: how many runs of the contrast diverged; their seeds are not compared.
    """

    statement: Statement
    contrast: Contrast
    paper: Printed | None
    by_seed: Mapping[int, float]
    diverged: int

    @property
    def ours(self) -> Summary:
        """Returns the differences in short, in percentage points or percent."""
        return _shown(self.statement, list(self.by_seed.values()))

    @property
    def p(self) -> float | None:
        """Returns how likely such a difference would be by chance; None if it is none of chance."""
        return None if self.statement.quantity == "passes" else summarise(list(self.by_seed.values())).p

    @property
    def verdict(self) -> str:
        """Tells what the 95 % interval decides, or why it decides nothing."""
        if not self.by_seed:
            return DIVERGED
        if self.statement.quantity == "passes":
            return COUNTED
        return _verdict(self.statement, self.ours) or ONE_SEED

    @property
    def label(self) -> str:
        """Names the contrast: problem, method and compressor."""
        one = self.contrast.one
        return ", ".join([*one.problem, one.variant, *([one.compressor] if one.compressor != "none" else [])])


def _shown(statement: Statement, differences: Sequence[float]) -> Summary:
    found = summarise(differences)
    return in_percent(found) if statement.is_relative else found


def _verdict(statement: Statement, ours: Summary) -> str | None:
    if ours.low is None or ours.high is None:
        return None
    ends = sorted(statement.sign * end for end in (ours.low, ours.high))
    if ends[0] > 0:
        return SHOWN
    return CONTRADICTED if ends[1] < 0 else NOT_SHOWN


Runs = Mapping[Entry, Mapping[int, Run]]  # by entry and seed


def runs_below(folder: pathlib.Path, scale: Scale) -> dict[Entry, dict[int, Run]]:
    """Reads the runs of the paper's entries at a scale that have ended below a folder, by seed."""
    found: dict[Entry, dict[int, Run]] = {}
    for entry in all_entries():
        runs = gather(ended_below(folder, scale, entry))
        if runs:
            found[entry] = {run.config.seed: run for run in runs}
    return found


def findings(runs: Runs) -> list[Finding]:
    """Tests every statement on the contrasts that runs exist for, at least one seed of each entry."""
    found = []
    for statement in STATEMENTS:
        for contrast in statement.contrasts:
            entries = [contrast.one, contrast.other, *(contrast.bases or ())]
            if not all(entry in runs for entry in entries):
                continue
            by_seed = _by_seed(statement, contrast, runs)
            diverged = sum(run.state == "diverged" for entry in entries for run in runs[entry].values())
            is_printed = statement.quantity == "accuracy"
            if by_seed or (is_printed and diverged):  # runs that were lost are not left out in silence
                paper = _printed(contrast) if is_printed else None
                found.append(Finding(statement, contrast, paper, by_seed, diverged))
    return found


def _by_seed(statement: Statement, contrast: Contrast, runs: Runs) -> dict[int, float]:
    """Returns one - other for each seed that has all; of relative ones between logarithms."""
    one, other = (values_of(runs[entry], statement.quantity) for entry in contrast[:2])
    if statement.is_relative:
        one, other = ({seed: math.log(value) for seed, value in each.items()} for each in (one, other))
    if contrast.bases is not None:
        first, second = (values_of(runs[entry], statement.quantity) for entry in contrast.bases)
        one, other = differences(one, first), differences(other, second)
    return differences(one, other)


def values_of(runs: Mapping[int, Run], quantity: Quantity) -> dict[int, float]:
    """Returns a quantity of each seed's run that finished and has it."""
    values = {seed: _value(run, quantity) for seed, run in runs.items() if run.state == "finished"}
    return {seed: value for seed, value in values.items() if value is not None}


def _value(run: Run, quantity: Quantity) -> float | None:
    if quantity == "accuracy":
        score = run.score()
        return None if score is None else run.headline.factor * score
    if quantity == "lambda_max":
        last = next(reversed(consensus_stages(run)), None)
        # A model of some epoch before the end says nothing about where the run ended.
        return last["lambda_max"] if last and last["step"] == run.result["steps"] else None
    if quantity == "best_accuracy":
        _, scores = run.curve(run.headline.key)
        return run.headline.factor * max(scores) if scores else None
    _, values = run.curve("backward_passes" if quantity == "passes" else quantity)
    if not values:
        return None
    return values[-1] if quantity == "passes" else statistics.fmean(values)


def _printed(contrast: Contrast) -> Printed | None:
    figures = [entry.printed for entry in (contrast.one, contrast.other, *(contrast.bases or ()))]
    printed = [figure for figure in figures if figure is not None]
    if len(printed) < len(figures):
        return None
    one, other, *bases = (figure.mean for figure in printed)
    difference = one - other - (bases[0] - bases[1] if bases else 0.0)
    return Printed(difference, star=any(figure.star for figure in printed))


def finding_rows(found: Sequence[Finding]) -> list[list[str]]:
    """Lists a finding a row, as text: differences in percentage points, or with % in percent.

    p is that of the difference by itself, and corrected for the number of all of them.
    """
    rows = [["statement", "dataset", "alpha", "graph", "method", "compressor"]]
    rows[0] += ["paper", "ours", "95 % interval", "seeds", "verdict", "p", "p of all"]
    chances = [one.p for one in found]
    corrected = iter(holm([p for p in chances if p is not None]))
    for one, p in zip(found, chances, strict=True):
        entry, unit = one.contrast.one, "%" if one.statement.is_relative else ""
        star = "*" if one.diverged else ""
        paper = "-" if one.paper is None else signed(one.paper.mean) + "*" * one.paper.star
        row = [one.statement.name, *entry.problem, entry.variant, entry.compressor, paper]
        ours = "-" if one.ours.mean is None else f"{one.ours.mean:+.2f}{unit}"
        row += [ours + star, one.ours.interval("+.2f"), str(one.ours.seeds), one.verdict]
        rows.append([*row, *(["-", "-"] if p is None else [f"{p:.4f}", f"{next(corrected):.2f}"])])
    return rows


def statement_rows(found: Sequence[Finding]) -> list[list[str]]:
    """Lists a statement a row: how many contrasts decide it, and their mean difference over seeds.

    The mean over all contrasts with several seeds is taken for each seed that all of them have, and its
    interval over these.
    """
    rows = [["statement", "the paper says", *_COLOURS, "other", "mean of all", "95 % interval", "together"]]
    for statement in STATEMENTS:
        ours = [one for one in found if one.statement is statement]
        if not ours:
            continue
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


def _together(statement: Statement, found: Sequence[Finding]) -> Summary:
    compared = [one.by_seed for one in found if len(one.by_seed) > 1]  # one seed would leave one of each
    seeds = set.intersection(*(set(by_seed) for by_seed in compared)) if compared else set()
    return _shown(statement, [statistics.fmean(one[seed] for one in compared) for seed in sorted(seeds)])


def plot_findings(found: Sequence[Finding], path: pathlib.Path) -> bool:
    """Draws each statement's differences with their intervals, what it says on the marked side.

    Tells whether there was an interval to draw, which takes two seeds.
    """
    groups = [
        [one for one in found if one.statement is statement and one.verdict in _COLOURS]
        for statement in STATEMENTS
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
    """Draws differences in percentage points, or ratios on a logarithmic axis, where they lie evenly."""
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
