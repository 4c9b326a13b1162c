"""The figures of a page that need no script: agents, graphs and partitions, as HTML text.

Everything that comes from a run's folder goes through `html.escape`.
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from saddle_jax.core.mixing import Graphs
from saddle_jax.report import drawings, graph_drawings
from saddle_jax.report.gathered import Run, class_counts, class_names
from saddle_jax.report.section_tables import table
from saddle_jax.report.topologies import topology_of

_LARGEST_MATRIX = 16
_MOST_BARS = 6  # charts of agents that are open at first
_TOO_LARGE = "<p>Not drawn: the graph is too large to be recorded.</p>"


def has_agents(run: Run) -> bool:
    """Tells whether the agents' own models of a run were evaluated one by one, at the end or before."""
    name = f"agent_{run.headline.name}_each"
    return any(_is_list(record.get(name)) for record in (run.result, *run.metrics))


def agents(runs: Sequence[Run]) -> str:
    """Draws every agent's own result at the end, a small chart for each run; nothing if none was recorded."""
    parts = []
    for run in runs:
        scores = run.result.get(f"agent_{run.headline.name}_each")
        if scores is not None and _is_list(scores):
            drawing = drawings.agent_bars(scores, run.result.get(run.headline.key), run.headline)
            parts.append(f"<figure><figcaption>{escape(run.name)}</figcaption>{drawing}</figure>")
    if not parts:
        return ""
    said = "<p>Test result of each agent's own model at the end; the line is the consensus model.</p>"
    if len(parts) <= _MOST_BARS:
        return said + _tiles(parts)
    summary = f"<summary>The end of each of the {len(parts)} runs</summary>"
    return f"<details>{summary}{said}{_tiles(parts)}</details>"


def _is_list(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(a, int | float) for a in values)


def _grouped(runs: Sequence[Run], key: Callable[[Run], Any]) -> list[tuple[list[Run], str]]:
    """Groups the runs with equal keys, each with the text that names its runs; one group has none."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    users = groups.values()
    return [(group, "" if len(users) == 1 else f" ({', '.join(r.name for r in group)})") for group in users]


def _tiles(figures: Iterable[str]) -> str:
    return f'<div class="tiles">{"".join(figures)}</div>'


def _matrices(graphs: Graphs) -> str:
    """Makes the tables of a small graph's mixing matrix, one for each turn, which open on a click."""
    if graphs.size > _LARGEST_MATRIX or graphs.period > _LARGEST_MATRIX:
        return ""
    parts = []
    for turn, topology in enumerate(graphs.graphs):
        rows: list[list[Any]] = [["", *map(str, range(topology.size))]]
        rows += [
            [str(i), *((f"{w:.3g}" if w else "·", repr(float(w))) for w in row)]
            for i, row in enumerate(topology.mixing)
        ]
        number = "" if graphs.period == 1 else f"-{turn}"
        said = "" if graphs.period == 1 else f" of step {turn}"
        parts.append(
            f"<details><summary>mixing matrix W{said}</summary>{table(f'mixing{number}', rows)}</details>"
        )
    return "".join(parts)


def graphs(runs: Sequence[Run]) -> str:
    """Draws each graph once, with the runs that used it."""

    def key(run: Run) -> bytes:
        topology = topology_of(run)
        if topology is None:
            return repr((run.config.topology, run.config.agents, run.fact("topology"))).encode()
        links = b"".join(part.tobytes() for graph in topology.graphs for part in graph.links)
        return topology.name.encode() + links

    figures = []
    for group, users in _grouped(runs, key):
        topology = topology_of(group[0])
        if topology is None:
            name = str(group[0].fact("topology", "name") or group[0].config.topology)
            figures.append(f"<figure><figcaption>{escape(name + users)}</figcaption>{_TOO_LARGE}</figure>")
            continue
        figures.append(
            f'<figure data-edges="{runs.index(group[0])}" '
            f'data-runs="{" ".join(str(runs.index(run)) for run in group)}">'
            f"<figcaption>{escape(str(topology) + users)}</figcaption>"
            f"{graph_drawings.graph(topology)}{_matrices(topology)}</figure>"
        )
    return _tiles(figures)


def partitions(runs: Sequence[Run]) -> str:
    """Draws each partition once, with the runs that used it; nothing if none was recorded."""
    figures = []
    for group, users in _grouped(runs, lambda run: str(run.fact("partition", "fingerprint") or run.name)):
        run = group[0]
        counts = class_counts(run)
        if counts is None:
            continue
        drawing = drawings.bubbles(counts, class_names(run, counts.shape[1]))
        title = f"{run.fact('partition', 'name') or run.config.partition}{users}"
        figures.append(
            f'<figure data-partition="{runs.index(run)}">'
            f"<figcaption>{escape(title)}<br>{_skew(run)}</figcaption>{drawing}</figure>"
        )
    if not figures:
        return ""
    said = "<p>Who holds which classes; a bubble's area is the number of samples.</p>"
    first, rest = figures[:_MOST_BARS], figures[_MOST_BARS:]
    more = f"<details><summary>{len(rest)} more</summary>{_tiles(rest)}</details>" if rest else ""
    return said + _tiles(first) + more


def _skew(run: Run) -> str:
    """Describes how unequal a run's agents are, as far as it was recorded."""
    measures = {
        "classes_per_agent": "classes per agent",
        "entropy": "nats of entropy",
        "earth_movers_distance": "earth-mover distance",
    }
    values = {meaning: run.fact("partition", name) for name, meaning in measures.items()}
    return ", ".join(f"{v:.2f} {meaning}" for meaning, v in values.items() if isinstance(v, int | float))
