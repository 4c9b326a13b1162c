"""The list of runs as a page: a table that can be read, sorted, filtered and ticked."""

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any
from urllib.parse import urlencode

from saddle_jax.base.errors import printable
from saddle_jax.report.drawings import sparkline
from saddle_jax.report.page import Page
from saddle_jax.serve.scan import Entry

# Heading, whether it is a number, whether narrow windows do without it.
_COLUMNS = (
    ("run", False, False),
    ("state", False, False),
    ("step", True, True),
    ("training loss", False, True),
    ("result", True, False),
    ("method", False, True),
    ("compressor", False, True),
    ("seed", True, True),
    ("changed", False, True),
)
STATES = ("running", "finished", "diverged", "interrupted", "unreadable")


def address_of(keys: Sequence[str], path: str = "/runs") -> str:
    """Returns the address of a page of these runs."""
    return f"{path}?{urlencode([('run', key) for key in keys])}" if keys else path


def list_page(folder: str, entries: Sequence[Entry]) -> Page:
    """Returns the parts of the page that lists these runs of a folder."""
    counts = Counter(entry.state for entry in entries)
    said = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
    several = "1 run" if len(entries) == 1 else f"{len(entries):,} runs"
    summary = f"{several}: {said}" if entries else "No runs yet. They appear here as soon as they begin."
    header = {"summary": f'<p id="summary">{escape(summary)}</p>'}
    title = escape(printable(folder))
    return Page(title, header, {"runs": _section(entries)}, ("page_live.js", "list.js"))


def _section(entries: Sequence[Entry]) -> str:
    heads = "".join(
        f'<th scope="col" class="{_classes(number, wide)}" data-column="{place}">{escape(name)}</th>'
        for place, (name, number, wide) in enumerate(_COLUMNS)
    )
    rows = "".join(map(_row, entries))
    states = "".join(f'<option value="{state}">{state}</option>' for state in STATES)
    return (
        '<section id="runs" class="runs" aria-label="Runs"><form action="/runs" method="get">'
        '<div class="bar" id="tools" data-kept="">'
        '<button class="main" id="compare" type="submit">Compare</button>'
        '<label class="scripted" hidden>find <input type="search" id="find"></label>'
        '<label class="scripted" hidden>state <select id="state"><option value="">all</option>'
        f'{states}</select></label><span id="ticked" role="status"></span></div>'
        '<div class="wide"><table><thead><tr><th scope="col"><span class="hidden">tick</span></th>'
        f"{heads}</tr></thead><tbody>{rows}</tbody></table></div></form></section>"
    )


def _classes(is_number: bool, is_wide: bool) -> str:
    return " ".join(name for name, holds in (("number", is_number), ("wide-only", is_wide)) if holds)


def _row(entry: Entry) -> str:
    name = escape(entry.name)
    place = f"{entry.step:,} / {entry.steps:,}" if entry.steps else f"{entry.step:,}"
    when = _day(entry.changed)
    state = f'<span class="state {entry.state}">{entry.state}</span>'
    if entry.state == "unreadable":
        cells = f'<td>{state}</td><td class="why" colspan="{len(_COLUMNS) - 2}">{escape(entry.why)}</td>'
        linked = name
        box = ""
    else:
        spark = sparkline(entry.losses, "training loss")
        metric = f'<span class="wide-only">{escape(entry.metric)} </span>' if entry.result else ""
        texts: tuple[tuple[str, Any], ...] = (
            (state, None),
            (escape(place), entry.step),
            (spark, entry.losses[-1] if entry.losses else None),
            (metric + escape(entry.result), entry.score),
            (escape(entry.method), None),
            (escape(entry.compressor), None),
            (escape(entry.seed), None),
            (escape(when), entry.changed),
        )
        cells = "".join(
            f'<td class="{_classes(number, wide)}"{_sorted_by(value)}>{text}</td>'
            for (text, value), (_, number, wide) in zip(texts, _COLUMNS[1:], strict=True)
        )
        linked = f'<a href="{escape(address_of([entry.key]))}">{name}</a>'
        box = f'<input type="checkbox" name="run" value="{entry.key}" aria-label="compare {name}">'
    return f'<tr data-state="{entry.state}"><td>{box}</td><td class="name">{linked}</td>{cells}</tr>'


def _day(seconds: float) -> str:
    """Returns when something was, by the clock of this machine; nothing of times that no clock shows."""
    with contextlib.suppress(OverflowError, ValueError, OSError):
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else ""
    return ""


def _sorted_by(value: Any) -> str:
    return "" if value is None else f' data-by="{float(value)!r}"'
