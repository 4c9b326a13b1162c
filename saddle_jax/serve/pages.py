"""The served pages: the list of runs, the report of selected runs, and updates of either."""

import contextlib
import dataclasses
import pathlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple
from urllib.parse import urlencode

from saddle_jax.base.errors import DamagedError, RunError, printable
from saddle_jax.base.reading import LARGEST
from saddle_jax.report.graphs import topology_of
from saddle_jax.report.page import Page, as_json, asset, filled, most_lines, page_data, policy, run_page
from saddle_jax.report.sections import sparkline
from saddle_jax.runs.downsample import MOST_BYTES, Downsampled, Following
from saddle_jax.runs.table import Run, load_runs
from saddle_jax.serve.scan import Entry, Runs, version_of

MOST_RUNS = 200  # on one page
_FOLLOWED = 2 * MOST_RUNS  # files whose lines are cached
_LINES = MOST_BYTES  # bytes of all cached lines


class Answer(NamedTuple):
    """A response: status, content type, and content."""

    status: int
    kind: str
    text: str
    version: str = ""  # the entity tag of content that is polled
    policy: str = "default-src 'none'"


class Site:
    """The pages of a folder of runs, which is never written to."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._runs = Runs(folder)
        self._name = folder.resolve().name or str(folder.resolve())
        self._followed: OrderedDict[tuple[pathlib.Path, int, int], Following] = OrderedDict()

    def page(self, keys: Sequence[str]) -> Answer:
        """Returns the page of the runs with these keys, or the list without keys."""
        made, _, version = self._made(keys)
        address = address_of(keys, "/updates")
        back = "" if not keys else '<a href="/">all runs</a>'
        brand = f'<span>{made.brand}</span>{back}<span id="live" class="light" role="status"></span>'
        attributes = f' data-live="{escape(address)}" data-version="{escape(_quoted(version))}"'
        made = made._replace(brand=brand, attributes=attributes)
        allowed = policy(made.script, asset("page.css"), is_served=True)
        return Answer(200, "text/html", filled(made), policy=allowed)

    def updates(self, keys: Sequence[str], known: str) -> Answer:
        """Returns the current content of the list or page, or 304 if the browser has it."""
        version = version_of(self._chosen(keys))
        if known == _quoted(version):
            return Answer(304, "application/json", "", _quoted(version))
        made, runs, version = self._made(keys)
        blocks = {**made.header, **made.main}
        with self._runs.reading:
            data = page_data(runs) if runs else None
        content = {
            "sections": [{"name": name, "text": text} for name, text in blocks.items()],
            "data": data,
        }
        return Answer(200, "application/json", as_json(content), _quoted(version))

    def _made(self, keys: Sequence[str]) -> tuple[Page, list[Run], str]:
        """Returns the parts of a page, its runs, and its version, which is never newer than the content."""
        entries = self._chosen(keys)
        version = version_of(entries)
        if not keys:
            return list_page(self._name, entries), [], version
        with self._runs.reading:
            return self._page_of(entries, version)

    def _page_of(self, entries: Sequence[Entry], version: str) -> tuple[Page, list[Run], str]:
        runs, refusals = self._read(entries)
        said = "".join(
            f'<p class="note"><strong>{escape(name)}</strong> cannot be read: {escape(why)}</p>'
            for name, why in refusals.items()
        )
        if not runs:
            nothing = {"notes": f'<div id="notes">{said}</div>'}
            return Page("nothing to show", nothing, {}, ()), [], version
        made = run_page(runs)
        notes = made.header["notes"].replace("</div>", f"{said}</div>")
        return made._replace(header={**made.header, "notes": notes}), runs, version

    def _chosen(self, keys: Sequence[str]) -> list[Entry]:
        """Returns the current runs with these keys; all of them without keys.

        Raises:
          KeyError: there is no run with such a key.
        """
        entries = self._runs.entries()
        found = {entry.key: entry for entry in entries}
        return [found[key] for key in dict.fromkeys(keys)] if keys else entries

    def _read(self, entries: Sequence[Entry]) -> tuple[list[Run], dict[str, str]]:
        """Returns the runs, named as in the list, and the reasons why others cannot be read."""
        most, most_bytes = most_lines(len(entries)), _LINES >> (len(entries) - 1).bit_length()
        runs, refusals = [], {}
        room = LARGEST  # bytes of JSON for all runs together
        for entry in entries:
            try:
                self._runs.check(entry.workdir)
                room -= self._runs.size(entry.workdir)
                if room < 0:
                    raise DamagedError(f"the runs of a page may have {LARGEST:,} bytes of JSON: choose fewer")
                found = load_runs([entry.workdir], read=lambda path: self._lines(path, most, most_bytes))
                for run in found:
                    run.check()
                    topology_of(run)  # raises an error for an invalid graph
            except RunError as error:
                refusals[entry.row.run] = printable(str(error))
                continue
            # Copies do not hold what was parsed to check them: many large runs would not fit into memory.
            for run in found:
                own = run.name.removeprefix(entry.workdir.name)
                runs.append(dataclasses.replace(run, name=entry.row.run + own))
        return runs, refusals

    def _lines(self, workdir: pathlib.Path, most: int, most_bytes: int) -> Downsampled:
        """Reads the new lines of a run, and evicts the least recently used files from the cache."""
        asked = workdir, most, most_bytes
        following = self._followed.pop(asked, None) or Following(workdir, most, most_bytes)
        self._followed[asked] = following
        found = following.update()
        sizes = [one.size for one in self._followed.values()]
        while len(sizes) > 1 and (len(sizes) > _FOLLOWED or sum(sizes) > _LINES):
            self._followed.popitem(last=False)
            del sizes[0]
        return found


def _quoted(version: str) -> str:
    return f'"{version}"'


# The page with the list of runs: a table to sort, filter and select from.


class _Column(NamedTuple):
    """A column of the list, after that of the names.

    Attributes:
      heading: its heading.
      text: an entry's cell, as HTML.
      value: what the column is sorted by; None sorts by the text.
      is_number: whether it is right-aligned.
      is_wide: whether narrow windows hide it.
    """

    heading: str
    text: Callable[[Entry], str]
    value: Callable[[Entry], float | None] = lambda entry: None
    is_number: bool = False
    is_wide: bool = True

    @property
    def classes(self) -> str:
        """The CSS classes of its cells."""
        return " ".join(["number"] * self.is_number + ["wide-only"] * self.is_wide)


def _result(entry: Entry) -> str:
    metric, shown = entry.row.metric or "", entry.row.text.removeprefix(f"{entry.row.metric} ")
    return f'<span class="wide-only">{escape(metric)} </span>{escape(shown)}' if shown != "-" else ""


def _progress(entry: Entry) -> str:
    return f"{entry.row.step or 0:,}" + (f" / {entry.steps:,}" if entry.steps else "")


_COLUMNS = (
    _Column("state", lambda e: f'<span class="state {e.row.state}">{e.row.state}</span>', is_wide=False),
    _Column("step", _progress, lambda e: e.row.step, is_number=True),
    _Column(
        "training loss",
        lambda e: sparkline(e.losses, "training loss"),
        lambda e: e.losses[-1] if e.losses else None,
    ),
    _Column("result", _result, lambda e: e.row.value, is_number=True, is_wide=False),
    _Column("method", lambda e: escape(e.row.method or "")),
    _Column("seed", lambda e: escape(e.row.seed or ""), is_number=True),
    _Column("changed", lambda e: _day(e.changed), lambda e: e.changed),
)
STATES = ("running", "finished", "diverged", "interrupted", "unreadable")


def address_of(keys: Sequence[str], path: str = "/runs") -> str:
    """Returns the address of a page of these runs."""
    return f"{path}?{urlencode([('run', key) for key in keys])}" if keys else path


def list_page(folder: str, entries: Sequence[Entry]) -> Page:
    """Makes the parts of the page that lists these runs."""
    counts = Counter(entry.row.state for entry in entries)
    said = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
    several = "1 run" if len(entries) == 1 else f"{len(entries):,} runs"
    summary = f"{several}: {said}" if entries else "No runs yet. They appear here as soon as they begin."
    header = {"summary": f'<p id="summary">{escape(summary)}</p>'}
    title = escape(printable(folder))
    return Page(title, header, {"runs": _section(entries)}, ("page_live.js", "list.js"))


def _section(entries: Sequence[Entry]) -> str:
    heads = '<th scope="col" data-column="0">run</th>' + "".join(
        f'<th scope="col" class="{column.classes}" data-column="{place}">{column.heading}</th>'
        for place, column in enumerate(_COLUMNS, 1)
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


def _row(entry: Entry) -> str:
    row, name = entry.row, escape(entry.row.run)
    if row.state == "unreadable":
        why = f'<td class="why" colspan="{len(_COLUMNS) - 1}">{escape(row.reason or "")}</td>'
        cells, linked, box = f"<td>{_COLUMNS[0].text(entry)}</td>{why}", name, ""
    else:
        cells = "".join(
            f'<td class="{column.classes}"{_sorted_by(column.value(entry))}>{column.text(entry)}</td>'
            for column in _COLUMNS
        )
        linked = f'<a href="{escape(address_of([entry.key]))}">{name}</a>'
        box = f'<input type="checkbox" name="run" value="{entry.key}" aria-label="compare {name}">'
    return f'<tr data-state="{row.state}"><td>{box}</td><td class="name">{linked}</td>{cells}</tr>'


def _day(seconds: float) -> str:
    """Formats a time in this machine's time zone; empty for invalid times."""
    with contextlib.suppress(OverflowError, ValueError, OSError):
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else ""
    return ""


def _sorted_by(value: Any) -> str:
    return "" if value is None else f' data-by="{float(value)!r}"'
