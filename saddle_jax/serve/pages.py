"""What is served: the list of runs, the report of those that were ticked, and what is new in either."""

import dataclasses
import pathlib
from collections import OrderedDict
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from saddle_jax.base.errors import DamagedError, RunError, printable
from saddle_jax.base.reading import LARGEST
from saddle_jax.report.gathered import Run, gather
from saddle_jax.report.page import Page, asset, filled, most_lines, run_page
from saddle_jax.report.page_data import page_data
from saddle_jax.report.policy import as_json, policy
from saddle_jax.report.topologies import topology_of
from saddle_jax.runs.downsample import MOST_BYTES, Following, Thinned
from saddle_jax.serve.listed import address_of, list_page
from saddle_jax.serve.scan import Entry, Runs, version_of

MOST_RUNS = 200  # in one page
_FOLLOWED = 2 * MOST_RUNS  # files whose lines are remembered
_LINES = MOST_BYTES  # bytes of all lines that are remembered


class Answer(NamedTuple):
    """What a server sends: a status, a kind of content, and the content."""

    status: int
    kind: str
    text: str
    version: str = ""  # of a content that is asked for again and again
    policy: str = "default-src 'none'"


class Site:
    """The pages of a folder of runs; it reads, and never writes."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._runs = Runs(folder)
        self._name = folder.resolve().name or str(folder.resolve())
        self._followed: OrderedDict[tuple[pathlib.Path, int, int], Following] = OrderedDict()

    def page(self, keys: Sequence[str]) -> Answer:
        """Returns the list, or the page of the runs with these keys."""
        made, _, version = self._made(keys)
        address = address_of(keys, "/updates")
        back = "" if not keys else '<a href="/">all runs</a>'
        brand = f'<span>{made.brand}</span>{back}<span id="live" class="light" role="status"></span>'
        attributes = f' data-live="{escape(address)}" data-version="{escape(_quoted(version))}"'
        made = made._replace(brand=brand, attributes=attributes)
        allowed = policy(made.script, asset("page.css"), is_served=True)
        return Answer(200, "text/html", filled(made), policy=allowed)

    def updates(self, keys: Sequence[str], known: str) -> Answer:
        """Returns what the list or the page shows by now, or 304 if that is what the browser knows."""
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
        """Returns the parts of a page, its runs, and of which version it is or, if in doubt, was before."""
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
        """Returns the runs with these keys, of those that are there now; without keys all of them.

        Raises:
          KeyError: there is no run with such a key.
        """
        entries = self._runs.entries()
        found = {entry.key: entry for entry in entries}
        return [found[key] for key in dict.fromkeys(keys)] if keys else entries

    def _read(self, entries: Sequence[Entry]) -> tuple[list[Run], dict[str, str]]:
        """Returns the runs, by their names in the list; and why the others cannot be read."""
        most, most_bytes = most_lines(len(entries)), _LINES >> (len(entries) - 1).bit_length()
        runs, refusals = [], {}
        room = LARGEST  # of the files of one run, or of those of all runs
        for entry in entries:
            try:
                self._runs.check(entry.workdir)
                room -= self._runs.size(entry.workdir)
                if room < 0:
                    raise DamagedError(f"the runs of a page may have {LARGEST:,} bytes of JSON: choose fewer")
                found = gather([entry.workdir], read=lambda workdir: self._lines(workdir, most, most_bytes))
                for run in found:
                    topology_of(run)  # refuses what is no graph
            except RunError as error:
                refusals[entry.name] = printable(str(error))
                continue
            for run in found:
                own = run.name.removeprefix(entry.workdir.name)
                runs.append(dataclasses.replace(run, name=entry.name + own))
        return runs, refusals

    def _lines(self, workdir: pathlib.Path, most: int, most_bytes: int) -> Thinned:
        """Reads what is new in a run's lines; of the lines that it knows it forgets the oldest."""
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
