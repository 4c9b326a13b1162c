"""One HTML page for a run or a comparison of several: it opens from disk, without network or server.

`saddle serve` sends the same page and keeps it up to date. Names in a run's folder are untrusted. They are
escaped in the page's text and in its JSON element; the script only sets textContent; and a content security
policy allows no script but the one whose hash it states.
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

from saddle_jax.base.files import atomic_write
from saddle_jax.report import graphs
from saddle_jax.report.figures import AXES
from saddle_jax.report.graphs import topology_of
from saddle_jax.report.plots import looks
from saddle_jax.report.sections import Section, notes, sections
from saddle_jax.runs.schema import Measure
from saddle_jax.runs.statistics import half_interval
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

_MOST_IN_ALL = 60_000  # lines of each kind on one page, over all runs
_FEWEST = 500  # lines of each kind for every run, however many runs there are
_SCRIPTS = (
    *("page_charts.js", "page_heat.js", "page_agents.js", "page_measured.js", "page_live.js"),
    "page.js",
)


class Page(NamedTuple):
    """The variable parts of a page, in which all texts must be escaped."""

    title: str
    header: dict[str, str]  # elements by id
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
    """Writes the page of one or more runs atomically; `names` replace those of their folders."""
    folders = workdirs_of(workdirs)
    text = page(load_runs(folders, names, most_lines(len(folders))))
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")  # names may not be UTF-8


def most_lines(count: int) -> int:
    """Returns the number of lines of each kind that a page of `count` folders shows for each."""
    return max(_FEWEST, min(MOST_LINES, _MOST_IN_ALL // max(1, count)))


def page(runs: Sequence[Run]) -> str:
    """Returns the whole self-contained page."""
    made = run_page(runs)
    return filled(made, meta_element(made.script, asset("page.css")))


def run_page(runs: Sequence[Run]) -> Page:
    """Makes the parts of a page for these runs."""
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
    """Renders a page; `meta` is the element with its security policy, if no server sends that."""
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
    """Reads a file of this package's folder."""
    return (importlib.resources.files("saddle_jax.report") / name).read_text(encoding="utf-8")


# The content security policy of a page, which allows only the page's own script.
#
# Scripts and styles are allowed by hash. Nothing is fetched; a served page may only query its own server.


_IN_SCRIPT = re.compile("[<>&\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def policy(script: str, style: str, is_served: bool = False) -> str:
    """Returns the policy for a page with this script and style, each the text of one element.

    They are hashed from our own files and not from the page, so that code injected through a name in a run's
    folder is not allowed.
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
    """Returns the meta element with the policy of a page that is a file."""
    return f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(script, style))}">'


def embed(content: Any) -> str:
    """Encodes JSON so that it is safe inside a script element."""
    return _IN_SCRIPT.sub(_escaped, as_json(content))


def as_json(content: Any) -> str:
    """Encodes JSON with lone surrogates escaped, which names may contain and UTF-8 cannot encode."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return _SURROGATES.sub(lambda found: "\\" + _escaped(found), text)  # as in the page's text


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# The data that a page's script draws and exports as CSV: metrics of runs by column, and means over seeds.


# Curves with a fixed place: metric, title, whether the axis starts logarithmic, factor for display.
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
_MOST_NAMES = 200  # metrics on a page; our runs have about forty
# The x-axes of curves.
_AXES = {axis.metric: axis.title for axis in AXES.values()}


def panels(measures: Sequence[Measure]) -> list[tuple[str, str, bool, int]]:
    """Lists the curves with a fixed place for runs with these metrics."""
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
    """Returns the data that the script draws and exports as CSV."""
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
    """Returns the names of the metrics on a page; if there are too many, known ones come first."""
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
    """Lists the curves of these metrics, those with a fixed place first."""
    known = list(dict.fromkeys(one for run in runs for one in run.measures))
    left_out = {*_AXES, *(f"agent_{one.name}_std" for one in known)}
    curves = [name for name in metrics if name not in left_out and _is_scalar(runs, name)]
    for name in [f"agent_{one.name}_mean" for one in known]:
        if all(len(run.curve(name)[0]) < 2 for run in runs):
            curves = [curve for curve in curves if curve != name]  # shown in the results
    placed = [panel for panel in panels(known) if panel[0] in curves]
    others = [(name, name, False, 1) for name in curves if name not in {panel[0] for panel in placed}]
    return [*placed, *others]


def _mean(runs: Sequence[Run], group: Sequence[Run], name: str) -> dict[str, Any] | None:
    """Returns mean and standard deviation of a curve over seeds, with its x-values on every axis, or None.

    Seeds that diverged are left out, and so are running ones if several others have ended.
    """
    having = [run for run in group if run.state != "diverged" and run.curve(name)[0]]
    ended = [run for run in having if run.state != "running"]
    members = ended if len(ended) > 1 else having
    if len(members) < 2 or not has(members, name):
        return None
    with np.errstate(all="ignore"):
        _, mean, spread = over_seeds(members, name)
    if not (np.isfinite(mean).all() and np.isfinite(spread).all()):
        return None  # the sum of finite values overflowed
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
