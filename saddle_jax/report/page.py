"""One HTML page for a run or a comparison of several: it opens from disk, without network or server.

Names in a run's folder may come from anybody. They reach the page as escaped text or inside one JSON
element whose < > & are escaped; the script only ever sets textContent; and a content security policy lets
no script run but the one whose hash the page states.
"""

import base64
import hashlib
import importlib.resources
import json
import pathlib
import string
from collections.abc import Sequence
from html import escape
from typing import Any

from saddle_jax.base.files import in_one_go
from saddle_jax.report import graph_drawings, sections
from saddle_jax.report.gathered import Run, class_counts, class_names, gather
from saddle_jax.report.measures import Measure
from saddle_jax.report.topologies import topology_of
from saddle_jax.version import __version__

# The curves that have a place of their own: metric, title, logarithmic at first, factor to what is drawn.
_PANELS = (
    ("consensus_distance", "Consensus distance", True, 1),
    ("learning_rate", "Learning rate", True, 1),
    ("gradient_norm", "Gradient norm", True, 1),
    ("update_norm", "Update norm", True, 1),
    ("compression_error", "Compression error ‖Q(θ) - θ‖ of models", True, 1),
    ("compression_input", "‖θ‖ before compression, of models", True, 1),
    ("gradient_compression_error", "Compression error ‖Q(θ) - θ‖ of gradients", True, 1),
    ("gradient_compression_input", "‖θ‖ before compression, of gradients", True, 1),
)
# What curves are drawn against, which page.js offers, and what goes with another curve.
_NO_CURVES = {
    "step",
    "epoch",
    "bytes_sent_per_agent",
    "paper_bytes_sent_per_agent",
    "backward_passes",
    "simulated_seconds",
}


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


def write_page(
    workdirs: Sequence[pathlib.Path], path: pathlib.Path, names: Sequence[str] | None = None
) -> None:
    """Writes the page of one or more runs, in one go; `names` go before those of their folders."""
    text = page(gather(workdirs, names))
    with in_one_go(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")  # names may be no UTF-8


def page(runs: Sequence[Run]) -> str:
    """Returns the whole page as text."""
    files = importlib.resources.files("saddle_jax.report")
    shell, style, *scripts = (
        (files / name).read_text(encoding="utf-8")
        for name in ("page.html", "page.css", "page_charts.js", "page_heat.js", "page.js")
    )
    script = "".join(scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    title = runs[0].name if len(runs) == 1 else f"comparison of {len(runs)} runs"
    return string.Template(shell).substitute(
        title=escape(title),
        version=escape(__version__),
        style=style,
        script=script,
        script_hash=f"sha256-{digest}",
        notes="".join(sections.notes(runs)),
        results=sections.results(runs),
        seeds=sections.seeds(runs),
        settings=sections.settings(runs),
        evaluations=sections.evaluations(runs),
        agents=sections.agents(runs),
        traffic=sections.traffic(runs),
        graphs=sections.graphs(runs),
        partitions=sections.partitions(runs),
        sharpness=sections.sharpness(runs),
        data=embed(page_data(runs)),
    )


def embed(content: Any) -> str:
    """Encodes JSON that may stand inside a script element, whatever its texts say."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 is escaped too
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns what the script draws and writes as CSV: every number of every run, by column."""
    metrics = dict.fromkeys(name for run in runs for record in run.metrics for name in record)
    known = list(dict.fromkeys(one for run in runs for one in run.measures))
    left_out = _NO_CURVES | {f"agent_{one.name}_std" for one in known}
    curves = [name for name in metrics if name not in left_out and _is_scalar(runs, name)]
    for name in [f"agent_{one.name}_mean" for one in known]:
        if all(len(run.curve(name)[0]) < 2 for run in runs):
            curves = [curve for curve in curves if curve != name]  # the results say it
    placed = [panel for panel in panels(known) if panel[0] in curves]
    others = [(name, name, False, 1) for name in curves if name not in {panel[0] for panel in placed}]
    return {
        "panels": [
            {"key": key, "title": title, "log": log, "factor": factor}
            for key, title, log, factor in [*placed, *others]
        ],
        "runs": [
            {
                "name": run.name,
                "columns": {
                    name: [record.get(name) for record in run.metrics]
                    for name in metrics
                    if any(name in record for record in run.metrics)
                },
                "layers": [str(name) for name in run.about["layers"]],
                "agents": run.result.get(f"agent_{run.headline.name}_each"),
                "class_counts": None if (counts := class_counts(run)) is None else counts.tolist(),
                "class_names": [] if counts is None else class_names(run, counts.shape[1]),
                "edges": graph_drawings.edges(graph) if (graph := topology_of(run)) else [],
                "sharpness": run.sharpness,
                "landscape": run.landscape,
            }
            for run in runs
        ],
    }


def _is_scalar(runs: Sequence[Run], name: str) -> bool:
    values = [record[name] for run in runs for record in run.metrics if record.get(name) is not None]
    return bool(values) and not any(isinstance(value, list) for value in values)
