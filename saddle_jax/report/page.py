"""One HTML page for a run or a comparison of several: it opens from disk, without network or server.

`saddle serve` sends the same page and keeps it up to date. Names in a run's folder may come from anybody.
They reach the page as escaped text or inside one JSON element whose < > & are escaped; the script only ever
sets textContent; and a content security policy lets no script run but the one whose hash the page states.
"""

import base64
import hashlib
import importlib.resources
import json
import pathlib
import re
import string
from collections.abc import Collection, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from saddle_jax.base.files import in_one_go
from saddle_jax.base.statistics import half_interval
from saddle_jax.report import graphs
from saddle_jax.report.figures import AXES
from saddle_jax.report.graphs import topology_of
from saddle_jax.report.plots import looks
from saddle_jax.report.sections import Section, notes, sections
from saddle_jax.runs.schema import Measure
from saddle_jax.runs.table import (
    MOST_LINES,
    Run,
    class_counts,
    class_names,
    distinct_seeds,
    group_labels,
    has,
    load_runs,
    over_seeds,
    workdirs_of,
)
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
    workdirs: Sequence[str | pathlib.Path], path: pathlib.Path, names: Sequence[str] | None = None
) -> None:
    """Writes the page of one or more runs, in one go; `names` go before those of their folders."""
    folders = workdirs_of(workdirs)
    text = page(load_runs(folders, names, most_lines(len(folders))))
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


# What a page may do: a content security policy that lets nothing run but the page's own script.
#
# Scripts and styles are known by their hashes. Nothing is fetched; a page that a server keeps up to date may
# ask that server, and no other.


_IN_SCRIPT = re.compile("[<>&\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def policy(script: str, style: str, is_served: bool = False) -> str:
    """Returns the policy of a page with this script and this style, each the text of one element.

    They are hashed as our own files have them, never as they stand in a page: what a name in a run's folder
    might smuggle into the page must not be allowed to run.
    """
    own = "'self'" if is_served else "'none'"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            f"connect-src {own}",
            f"form-action {own}",
            "base-uri 'none'",
        )
    )


def meta_element(script: str, style: str) -> str:
    """Returns the element by which a page that is a file states its policy."""
    return f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(script, style))}">'


def embed(content: Any) -> str:
    """Encodes JSON that may stand inside a script element, whatever its texts say."""
    return _IN_SCRIPT.sub(_escaped, as_json(content))


def as_json(content: Any) -> str:
    """Encodes JSON as text that has an encoding, as half a pair of surrogates, in a name, has none."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return _SURROGATES.sub(lambda found: "\\" + _escaped(found), text)  # the page's text spells it so, too


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# What a page's script draws and writes as CSV: numbers of runs, by column, and their means over seeds.


# The curves that have a place of their own: metric, title, logarithmic at first, factor to what is drawn.
_PANELS = (
    ("consensus_distance", "Consensus distance", True, 1),
    ("messages_lost", "Share of messages lost, %", False, 100),
    ("learning_rate", "Learning rate", True, 1),
    ("gradient_norm", "Gradient norm", True, 1),
    ("update_norm", "Update norm", True, 1),
    ("compression_error", "Compression error ‖Q(θ) - θ‖ of models", True, 1),
    ("compression_input", "‖θ‖ before compression, of models", True, 1),
    ("gradient_compression_error", "Compression error ‖Q(θ) - θ‖ of gradients", True, 1),
    ("gradient_compression_input", "‖θ‖ before compression, of gradients", True, 1),
)
_MOST_NAMES = 200  # metrics of a page; a run of ours has some forty
# What curves are drawn against.
_AXES = {axis.metric: axis.title for axis in AXES.values()}


def panels(measures: Sequence[Measure]) -> list[tuple[str, str, bool, int]]:
    """Lists the curves that have a place of their own, for runs with these metrics."""
    first: list[tuple[str, str, bool, int]] = [("train_loss", "Training loss", True, 1)]
    for one in measures:
        title = f"Test {one.title} of the consensus model{one.unit}"
        first.append((one.key, title, one.better == "lower", one.factor))
    last = []
    for one in measures:
        if one.name != "loss":
            last.append((f"train_{one.name}", f"Training {one.title}{one.unit}", False, one.factor))
        title = f"Test {one.title}, mean over the agents' own models{one.unit}"
        last.append((f"agent_{one.name}_mean", title, one.better == "lower", one.factor))
    return [*first, _PANELS[0], *last, *_PANELS[1:]]


def page_data(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns what the script draws and writes as CSV."""
    every = dict.fromkeys(name for run in runs for record in run.metrics() for name in record)
    names = _most_telling(runs, every)
    shown = _panels_of(runs, names)
    groups = distinct_seeds(runs)
    return {
        "names": len(names),
        "left_out": len(every) - len(names),
        "axes": [[key, title] for key, title in _AXES.items() if _is_recorded(runs, key)],
        "panels": [
            {"key": key, "title": title, "log": log, "factor": factor} for key, title, log, factor in shown
        ],
        "groups": [
            {
                "label": label,
                "runs": [runs.index(run) for run in group],
                "look": look._asdict(),
                "means": {key: mean for key, *_ in shown if (mean := _mean(runs, group, key))},
            }
            for group, label, look in zip(groups, group_labels(groups), looks(groups), strict=True)
        ],
        "runs": [_run_data(run, names) for run in runs],
    }


def _most_telling(runs: Sequence[Run], every: Collection[str]) -> list[str]:
    """Returns the names of the metrics that a page has, of too many those that it knows first."""
    if len(every) <= _MOST_NAMES:
        return list(every)
    known = {*_AXES, *(name for run in runs for name, *_ in panels(run.measures))}
    return sorted(every, key=lambda name: name not in known and not name.endswith(("_by_layer", "_each")))[
        :_MOST_NAMES
    ]


def _run_data(run: Run, shown: Sequence[str]) -> dict[str, Any]:
    own = {name for record in run.metrics() for name in record}
    names = [name for name in shown if name in own]
    counts = class_counts(run)
    graph = topology_of(run)
    return {
        "name": run.name,
        "state": run.state,
        "lines": run.lines,
        "columns": {name: [record.get(name) for record in run.metrics()] for name in names},
        "layers": [str(name) for name in run.about["layers"]],
        "agents": run.result.get(f"agent_{run.headline.name}_each"),
        "headline": {
            "key": f"agent_{run.headline.name}_each",
            "title": run.headline.title,
            "factor": run.headline.factor,
            "better": run.headline.better,
        },
        "class_counts": None if counts is None else counts.tolist(),
        "class_names": [] if counts is None else class_names(run, counts.shape[1]),
        "edges": graphs.edges(graph) if graph else [],
        "sharpness": run.sharpness,
        "landscape": run.landscape,
    }


def _panels_of(runs: Sequence[Run], metrics: Sequence[str]) -> list[tuple[str, str, bool, int]]:
    """Lists the curves of these metrics: first those with a place of their own."""
    known = list(dict.fromkeys(one for run in runs for one in run.measures))
    left_out = {*_AXES, *(f"agent_{one.name}_std" for one in known)}
    curves = [name for name in metrics if name not in left_out and _is_scalar(runs, name)]
    for name in [f"agent_{one.name}_mean" for one in known]:
        if all(len(run.curve(name)[0]) < 2 for run in runs):
            curves = [curve for curve in curves if curve != name]  # the results say it
    placed = [panel for panel in panels(known) if panel[0] in curves]
    others = [(name, name, False, 1) for name in curves if name not in {panel[0] for panel in placed}]
    return [*placed, *others]


def _mean(runs: Sequence[Run], group: Sequence[Run], name: str) -> dict[str, Any] | None:
    """Returns the mean of a curve over seeds, its deviation, and where it is, on every axis; None of one.

    Seeds that diverged are not in it, nor are those that still run beside several that have ended.
    """
    having = [run for run in group if run.state != "diverged" and run.curve(name)[0]]
    ended = [run for run in having if run.state != "running"]
    members = ended if len(ended) > 1 else having
    if len(members) < 2 or not has(members, name):
        return None
    with np.errstate(all="ignore"):
        _, mean, spread = over_seeds(members, name)
    if not (np.isfinite(mean).all() and np.isfinite(spread).all()):
        return None  # each seed by itself is finite, their sum is not
    places = {axis: list(over_seeds(members, name, axis)[0]) for axis in _AXES if has(members, axis)}
    return {
        "runs": [runs.index(run) for run in members],
        "at": {axis: x for axis, x in places.items() if len(x) == len(mean)},
        "mean": mean.tolist(),
        "std": spread.tolist(),
        "interval": half_interval(len(members)),
    }


def _is_recorded(runs: Sequence[Run], name: str) -> bool:
    return any(name in record for run in runs for record in run.metrics())


def _is_scalar(runs: Sequence[Run], name: str) -> bool:
    values = [record[name] for run in runs for record in run.metrics() if record.get(name) is not None]
    return bool(values) and not any(isinstance(value, list) for value in values)
