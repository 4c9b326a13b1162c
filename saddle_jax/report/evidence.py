"""What our runs say of the paper's statements: differences seed by seed, and what they decide."""

import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from saddle_jax.paper.experiments import EXPERIMENTS, Entry
from saddle_jax.paper.plan import ended_below
from saddle_jax.paper.scales import Scale
from saddle_jax.paper.statements import STATEMENTS, Contrast, Quantity, Statement
from saddle_jax.report.gathered import Run, consensus_stages, gather
from saddle_jax.report.plots import new_figure, save
from saddle_jax.report.statistics import Summary, signed, summarise

SHOWN, NOT_SHOWN, CONTRADICTED = "shown", "not shown", "contradicted"
_COLOURS = {SHOWN: "#389826", NOT_SHOWN: "#808080", CONTRADICTED: "#cb3c33"}


class Finding(NamedTuple):
    """What the seeds of two entries say of a statement.

    Attributes:
      statement: what is tested.
      contrast: on which runs.
      paper: the difference between the printed accuracies; None where the paper prints none.
      ours: the differences seed by seed, in short; in percent where the statement is relative.
      diverged: how many runs of the contrast diverged; their seeds are not compared.
    """

    statement: Statement
    contrast: Contrast
    paper: float | None
    ours: Summary
    diverged: int

    @property
    def verdict(self) -> str:
        """Tells what the 95 % interval decides; "-" where there is none, with fewer than two seeds."""
        if self.ours.low is None or self.ours.high is None:
            return "-"
        ends = sorted(self.statement.sign * end for end in (self.ours.low, self.ours.high))
        if ends[0] > 0:
            return SHOWN
        return CONTRADICTED if ends[1] < 0 else NOT_SHOWN

    @property
    def label(self) -> str:
        """Names the contrast: problem, method and compressor."""
        one = self.contrast.one
        parts = [*one.problem, one.method + (" efficient" if one.ascent_every > 1 else "")]
        return ", ".join([*parts, *([one.compressor] if one.compressor != "none" else [])])


Runs = Mapping[Entry, Mapping[int, Run]]  # by entry and seed


def runs_below(folder: pathlib.Path, scale: Scale) -> dict[Entry, dict[int, Run]]:
    """Reads the runs of the paper's entries at a scale that have ended below a folder, by seed."""
    found: dict[Entry, dict[int, Run]] = {}
    for entry in dict.fromkeys(entry for table in EXPERIMENTS.values() for entry in table.entries):
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
            ours = summarise(_differences(statement, contrast, runs))
            if ours.seeds:
                diverged = sum(run.state == "diverged" for entry in entries for run in runs[entry].values())
                paper = _printed(contrast) if statement.quantity == "accuracy" else None
                found.append(Finding(statement, contrast, paper, ours, diverged))
    return found


def _differences(statement: Statement, contrast: Contrast, runs: Runs) -> list[float]:
    """Returns one - other for each seed that has all; of relative ones in percent of the other."""
    one, other = (values_of(runs[entry], statement.quantity) for entry in contrast[:2])
    if contrast.bases is not None:
        first, second = (values_of(runs[entry], statement.quantity) for entry in contrast.bases)
        one, other = _minus(one, first), _minus(other, second)
    if statement.is_relative:
        return [100 * (one[seed] / other[seed] - 1) for seed in sorted(one.keys() & other.keys())]
    return list(_minus(one, other).values())


def _minus(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    return {seed: one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())}


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
    _, values = run.curve("backward_passes" if quantity == "passes" else quantity)
    if not values:
        return None
    return values[-1] if quantity == "passes" else statistics.fmean(values)


def _printed(contrast: Contrast) -> float | None:
    entries = [contrast.one, contrast.other, *(contrast.bases or ())]
    means = [entry.printed.mean for entry in entries if entry.printed is not None]
    if len(means) < len(entries):
        return None
    one, other, *bases = means
    return one - other - (bases[0] - bases[1] if bases else 0.0)


def finding_rows(found: Sequence[Finding]) -> list[list[str]]:
    """Lists a finding a row, as text: differences in percentage points, or with % in percent."""
    rows = [["statement", "dataset", "alpha", "graph", "method", "compressor"]]
    rows[0] += ["paper", "ours", "95 % interval", "seeds", "verdict"]
    for one in found:
        entry, unit = one.contrast.one, "%" if one.statement.is_relative else ""
        star = "*" if one.diverged else ""
        row = [one.statement.name, *entry.problem, entry.variant, entry.compressor, signed(one.paper)]
        row += [f"{one.ours.mean:+.2f}{unit}{star}", one.ours.interval("+.2f"), str(one.ours.seeds)]
        rows.append([*row, one.verdict])
    return rows


def statement_rows(found: Sequence[Finding]) -> list[list[str]]:
    """Lists a statement a row, with the number of contrasts that show it, do not, or contradict it."""
    rows = [["statement", "the paper says", SHOWN, NOT_SHOWN, CONTRADICTED]]
    for statement in STATEMENTS:
        verdicts = [one.verdict for one in found if one.statement is statement]
        if verdicts:
            counts = [str(verdicts.count(verdict)) for verdict in _COLOURS]
            rows.append([statement.name, statement.text, *counts])
    return rows


def plot_findings(found: Sequence[Finding], path: pathlib.Path) -> None:
    """Draws each statement's differences with their intervals: what it says lies on the marked side of 0."""
    groups = [
        [one for one in found if one.statement is statement and one.ours.low is not None]
        for statement in STATEMENTS
    ]
    groups = [group for group in groups if group]
    rows = sum(len(group) for group in groups)
    figure, _ = new_figure(width=8, height=0.8 * len(groups) + 0.17 * rows + 0.3)
    figure.clear()
    heights = [len(group) + 1.5 for group in groups]
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, group in zip(panels, groups, strict=True):
        _draw(panel, group)
    save(figure, path)


def _draw(panel: Any, group: Sequence[Finding]) -> None:
    statement = group[0].statement
    for row, one in enumerate(reversed(group)):
        colour = _COLOURS[one.verdict]
        panel.plot([one.ours.low, one.ours.high], [row, row], color=colour, linewidth=1.5)
        panel.plot(one.ours.mean, row, "o", color=colour, markersize=4)
        if one.paper is not None:
            panel.plot(one.paper, row, "|", color="#202020", markersize=8)
    panel.axvline(0, color="#b0b0b0", linewidth=0.8, zorder=0)
    panel.set_yticks(range(len(group)), [one.label for one in reversed(group)], fontsize=6)
    panel.set_ylim(-0.7, len(group) - 0.3)
    panel.tick_params(axis="x", labelsize=6)
    side = "right" if statement.sign > 0 else "left"
    unit = "%" if statement.is_relative else "percentage points"
    panel.set_title(f"{statement.text}: {side} of 0, in {unit}", fontsize=7, loc="left")
    panel.spines[["top", "right"]].set_visible(False)
