"""The cells of a study over their seeds: accuracy, sharpness, and what other readings of the paper change."""

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from saddle_jax.base.statistics import Summary, paired, signed, summarise
from saddle_jax.papers.saddle.evidence import Runs, values_of
from saddle_jax.papers.saddle.experiments import Entry, all_entries
from saddle_jax.papers.saddle.pairs import BASES
from saddle_jax.papers.saddle.plan import ended_below, endings_below
from saddle_jax.papers.saddle.scales import Scale
from saddle_jax.runs.table import Cell, cell_of


def accuracy_rows(runs: Runs) -> list[list[str]]:
    """Lists an entry a row, as text: accuracy and lambda_max at the end over seeds; a star: some diverged."""
    rows = [["run", "test accuracy, %", "95 % interval", "seeds", "lambda_max", "seeds"]]
    for entry, by_seed in sorted(runs.items(), key=lambda item: item[0].name):
        accuracies, curvatures = values_of(by_seed, "accuracy"), values_of(by_seed, "lambda_max")
        diverged = sum(run.state == "diverged" for run in by_seed.values())
        cell = Cell(tuple(accuracies.values()), diverged)
        sharpness = summarise(list(curvatures.values()))
        row = [entry.name, cell.text(), cell.summary.interval(), str(len(accuracies))]
        rows.append([*row, _spread(sharpness), str(sharpness.seeds)])
    return rows


def _spread(found: Summary) -> str:
    if found.mean is None:
        return "-"
    digits = ".0f" if found.mean >= 100 else ".1f"
    return f"{found.mean:{digits}}" + ("" if found.std is None else f" +- {found.std:{digits}}")


class Reread(NamedTuple):
    """Runs of an entry as it is read by default, and under another reading.

    Attributes:
      entry: whose runs they are.
      what: the other reading, such as "order=paper".
      default: scores under the default reading.
      other: scores under the other one.
    """

    entry: Entry
    what: str
    default: Cell
    other: Cell


def reread(folder: pathlib.Path, scale: Scale) -> list[Reread]:
    """Reads the runs below a folder that read the paper otherwise, beside those of the default reading."""
    found = []
    for entry in all_entries():
        for ending in endings_below(folder, scale, entry):
            default, other = (cell_of(ended_below(folder, scale, entry, end)) for end in ("", ending))
            if default.scores and (other.scores or other.diverged):
                found.append(Reread(entry, ending.removeprefix("-"), default, other))
    return sorted(found, key=lambda one: one.what)


def reading_rows(found: list[Reread]) -> list[list[str]]:
    """Lists a cell under another reading a row, as text, with what becomes of SADDLe's gain.

    All is over the seeds of both readings; differences are in percentage points. The gain is that of a SADDLe
    method over its base, both by default or both read otherwise.
    """
    rows = [["read otherwise", "dataset", "alpha", "graph", "method", "compressor", "default", "otherwise"]]
    rows[0] += ["difference", "95 % interval", "seeds", "gain by default", "gain otherwise"]
    by_place = {(one.what, *_place(one.entry)): one for one in found}
    for one in found:
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
        rows.append([*row, *_gains(one, by_place)])
    return rows


def _place(entry: Entry) -> tuple:
    return (entry.problem, entry.method, entry.compressor, entry.ascent_every, entry.schedule, entry.rho)


def _gains(one: Reread, by_place: Mapping[tuple, Reread]) -> list[str]:
    """Writes SADDLe's gain by default and otherwise, over the seeds that all four have."""
    base = BASES.get(one.entry.method)
    problem, _, *rest = _place(one.entry)
    other = by_place.get((one.what, problem, base, *rest))
    if other is None:
        return ["-", "-"]
    cells = (one.default, other.default, one.other, other.other)
    seeds = set.intersection(*(set(cell.by_seed) for cell in cells))
    kept = [cell.of(seeds).by_seed for cell in cells]
    return [signed(paired(kept[0], kept[1]).mean), signed(paired(kept[2], kept[3]).mean)]
