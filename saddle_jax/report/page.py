"""One HTML page for a run or a comparison of several: it opens from disk, without network or server.

`saddle serve` sends the same page and keeps it up to date. Names in a run's folder may come from anybody.
They reach the page as escaped text or inside one JSON element whose < > & are escaped; the script only ever
sets textContent; and a content security policy lets no script run but the one whose hash the page states.
"""

import importlib.resources
import pathlib
import string
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from saddle_jax.base.files import in_one_go
from saddle_jax.report.gathered import MOST_LINES, Run, gather
from saddle_jax.report.page_data import page_data
from saddle_jax.report.policy import embed, meta_element
from saddle_jax.report.section_tables import notes
from saddle_jax.report.sections import Section, sections
from saddle_jax.version import __version__

_MOST_IN_ALL = 60_000  # lines of a kind in one page
_FEWEST = 500  # lines of a kind of each run, however many runs there are
_SCRIPTS = (
    *("page_charts.js", "page_heat.js", "page_agents.js", "page_measured.js", "page_live.js"),
    "page.js",
)


class Page(NamedTuple):
    """The parts of a page that differ: whoever fills them escapes texts."""

    title: str
    header: dict[str, str]  # elements by their ids, in their order
    main: dict[str, str]
    scripts: Sequence[str]  # names of files, see `asset`
    data: str = ""  # a JSON element, if there is one
    attributes: str = ""  # of the body
    brand: str = f"saddle_jax {escape(__version__)}"

    @property
    def script(self) -> str:
        """The page's script: its files, one after the other."""
        return "".join(map(asset, self.scripts))


def write_page(
    workdirs: Sequence[pathlib.Path], path: pathlib.Path, names: Sequence[str] | None = None
) -> None:
    """Writes the page of one or more runs, in one go; `names` go before those of their folders."""
    text = page(gather(workdirs, names, most_lines(len(workdirs))))
    with in_one_go(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")  # names may be no UTF-8


def most_lines(count: int) -> int:
    """Returns how many lines of a kind a page of so many folders has of each."""
    return max(_FEWEST, min(MOST_LINES, _MOST_IN_ALL // max(1, count)))


def page(runs: Sequence[Run]) -> str:
    """Returns the whole page as text, which needs nothing else."""
    made = run_page(runs)
    return filled(made, meta_element(made.script, asset("page.css")))


def run_page(runs: Sequence[Run]) -> Page:
    """Returns the parts of the page of these runs."""
    title = runs[0].name if len(runs) == 1 else f"comparison of {len(runs)} runs"
    shown = sections(runs)
    links = " ".join(f'<a href="#{one.name}">{escape(one.title)}</a>' for one in shown)
    header = {
        "notes": f'<div id="notes">{"".join(notes(runs))}</div>',
        "nav": f'<nav id="nav" aria-label="Sections">{links}</nav>',
    }
    main = {one.name: section_element(one) for one in shown}
    data = f'<script type="application/json" id="data">{embed(page_data(runs))}</script>'
    return Page(escape(title), header, main, _SCRIPTS, data)


def section_element(section: Section) -> str:
    """Returns the element of a section, with its heading."""
    name = section.name
    heading = f'<h2 id="{name}-title">{escape(section.title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{heading}{section.text}</section>'


def filled(made: Page, meta: str = "") -> str:
    """Returns the text of a page; `meta` is the element that states its policy, where no server does."""
    return string.Template(asset("page.html")).substitute(
        policy=meta,
        title=made.title,
        brand=made.brand,
        attributes=made.attributes,
        header="\n".join(made.header.values()),
        main="\n".join(made.main.values()),
        data=made.data,
        style=asset("page.css"),
        script=made.script,
    )


def asset(name: str) -> str:
    """Returns the text of a file that lies beside this one."""
    return (importlib.resources.files("saddle_jax.report") / name).read_text(encoding="utf-8")
