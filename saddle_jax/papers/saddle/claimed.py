"""What the paper's text claims of its tables, beside what the tables say and what our runs say."""

import pathlib
from collections.abc import Mapping

from saddle_jax.papers.saddle.claims import CLAIMS, Claim, Numbers
from saddle_jax.papers.saddle.costs import ratios
from saddle_jax.papers.saddle.experiments import Entry, all_entries
from saddle_jax.papers.saddle.plan import ended_below
from saddle_jax.papers.saddle.scales import Scale
from saddle_jax.runs.table import cell_of


def means_below(folder: pathlib.Path, scale: Scale) -> dict[Entry, float]:
    """Returns the mean of each entry of the paper whose runs at a scale have ended below a folder."""
    found = {}
    for entry in all_entries():
        mean = cell_of(ended_below(folder, scale, entry)).mean
        if mean is not None:
            found[entry] = mean
    return found


def claim_rows(ours: Mapping[Entry, float] | None) -> list[list[str]]:
    """Lists every claim as text: what the text states, what the tables come to, and, if given, our runs.

    Ours are of as many differences as our runs have, "of" those that the claim is about.
    """
    rows = [["place", "the text says", "stated", "the tables say", "agrees", "differences"]]
    rows[0] += [] if ours is None else ["ours", "of them"]
    for claim in CLAIMS:
        stated = " to ".join(claim.stated)
        row = [claim.place, claim.text, stated, written(claim, claim.printed()), claim.verdict()]
        row.append(str(len(claim.differences)))
        if ours is not None:
            value, count = claim.value(ours)
            # What is named one by one must be there one by one.
            whole = value if value and len(value) == len(claim.stated) else None
            row += [written(claim, whole), str(count if whole else 0)]
        rows.append(row)
    return rows


def ratio_rows() -> list[list[str]]:
    """Lists how much cheaper things are: stated, from the printed costs, and exactly, as text."""
    rows = [["place", "what", "stated", "as printed", "exactly"]]
    for found in ratios():
        row = [found.place, found.what, f"{found.stated}x", f"{found.printed:.2f}x", f"{found.exact:.2f}x"]
        rows.append(row)
    return rows


def written(claim: Claim, value: Numbers | None) -> str:
    """Writes a number with one digit more than the text has, at least two; a range as "a to b"."""
    if value is None:
        return "-"
    digits = max(2, *(1 + len(stated.partition(".")[2]) for stated in claim.stated))
    return " to ".join(f"{one:.{digits}f}" for one in value)
