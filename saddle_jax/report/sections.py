"""The sections of a page, in their order; one that has nothing to show is not there."""

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from saddle_jax.report import section_figures, section_tables
from saddle_jax.report.gathered import Run

_ONE_BY_ONE = 4  # runs of several seeds that are listed at once


class Section(NamedTuple):
    """A part of the page with a heading."""

    name: str
    title: str
    text: str  # HTML


def sections(runs: Sequence[Run]) -> list[Section]:
    """Returns the sections that these runs fill."""
    found = [Section(name, title, content(runs)) for name, title, content in _SECTIONS]
    return [section for section in found if section.text]


def _results(runs: Sequence[Run]) -> str:
    """Returns the means over seeds first, if there are any, and every run by itself."""
    means, each = section_tables.seeds(runs), section_tables.results(runs)
    if means and len(runs) > _ONE_BY_ONE:
        each = f"<details><summary>Every run by itself ({len(runs)})</summary>{each}</details>"
    elif means:
        each = f"<h3>Every run by itself</h3>{each}"
    return means + each


def _curves(runs: Sequence[Run]) -> str:
    if not any(run.metrics for run in runs):
        return ""
    return (
        '<div id="controls"></div><div id="panels" class="panels"></div>'
        "<noscript><p>The curves are drawn by a script; the table has the evaluations.</p></noscript>"
        '<details class="screen"><summary>Evaluations as a table</summary>'
        f"{section_tables.evaluations(runs)}</details>"
    )


def _agents(runs: Sequence[Run]) -> str:
    if not any(section_figures.has_agents(run) for run in runs):
        return ""
    return f'<div id="viewer"></div>{section_figures.agents(runs)}'


def _traffic(runs: Sequence[Run]) -> str:
    said = "<p>Bytes that one agent sent: of the real encodings, and as the paper's tables count them.</p>"
    return said + section_tables.traffic(runs)


def _sharpness(runs: Sequence[Run]) -> str:
    text = section_tables.sharpness(runs)
    return text and f'<div id="sharpness-panels" class="panels"></div>{text}'


def _landscape(runs: Sequence[Run]) -> str:
    return '<div id="landscapes" class="panels"></div>' if any(run.landscape for run in runs) else ""


def _contraction(runs: Sequence[Run]) -> str:
    names = ("zeta_by_layer", "gradient_zeta_by_layer")
    if not any(record.get(name) for run in runs for record in run.metrics for name in names):
        return ""
    return (
        "<p>Measured &#950; = 1 &#8722; &#8214;Q(&#952;) &#8722; &#952;&#8214;&#178; / "
        "&#8214;&#952;&#8214;&#178; of each parameter "
        "tensor: 1 loses nothing, below 0 the compressor does not contract.</p>"
        '<div id="contractions" class="panels"></div>'
    )


def _more(runs: Sequence[Run]) -> str:
    """Returns what would show more of these runs: the commands and settings that measure it."""
    hints = []
    if not any(run.sharpness for run in runs):
        hints.append(("how sharp the minima are", "saddle sharpness DIR"))
    if not any(run.landscape for run in runs):
        hints.append(("the loss around the models", "saddle landscape DIR"))
    evaluated = (len(run.curve(f"agent_{run.headline.name}_each")[0]) for run in runs)
    if not any(count > 1 for count in evaluated):
        hints.append(("the agents' own models over time", "saddle train --config.eval_agents=always"))
    if not hints:
        return ""
    items = "".join(f"<li>{escape(what)}: <code>{escape(how)}</code></li>" for what, how in hints)
    return f"<p>Not measured in these runs, and how to:</p><ul>{items}</ul>"


_SECTIONS: tuple[tuple[str, str, Callable[[Sequence[Run]], str]], ...] = (
    ("results", "Results", _results),
    ("curves", "Curves", _curves),
    ("agents", "Agents", _agents),
    ("traffic", "Traffic", _traffic),
    ("graph", "Graph", section_figures.graphs),
    ("partition", "Partition", section_figures.partitions),
    ("sharpness", "Sharpness", _sharpness),
    ("landscape", "Loss landscape", _landscape),
    ("contraction", "Contraction by layer", _contraction),
    ("settings", "Settings", section_tables.settings),
    ("more", "More", _more),
)
