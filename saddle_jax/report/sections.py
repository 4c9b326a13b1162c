"""The sections of a page in order; empty ones are left out."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from html import escape
from typing import Any, NamedTuple, TypeVar

import numpy as np

from saddle_jax.core.comm_cost import readable
from saddle_jax.core.topology import Graphs
from saddle_jax.report import graphs as graph_drawings
from saddle_jax.report.graphs import topology_of
from saddle_jax.runs.schema import Measure
from saddle_jax.runs.statistics import paired, summarise
from saddle_jax.runs.table import (
    Run,
    as_cell,
    cell_of,
    class_counts,
    class_names,
    differing,
    distinct_seeds,
    group_labels,
    grouped,
    labels,
    seeds_together,
)
from saddle_jax.settings.settings import IRRELEVANT
from saddle_jax.training.describe import of_faults, of_timing

Item = TypeVar("Item")
_ONE_BY_ONE = 4  # runs of several seeds that are listed without a click


class Section(NamedTuple):
    """A section of the page."""

    name: str
    title: str
    text: str  # HTML


def sections(runs: Sequence[Run]) -> list[Section]:
    """Returns the non-empty sections for these runs."""
    found = [Section(name, title, content(runs)) for name, title, content in _SECTIONS]
    return [section for section in found if section.text]


def _results(runs: Sequence[Run]) -> str:
    """Returns the table of means over seeds, if there are any, and that of every run."""
    means, each = seeds(runs), results(runs)
    if means and len(runs) > _ONE_BY_ONE:
        each = f"<details><summary>Every run by itself ({len(runs)})</summary>{each}</details>"
    elif means:
        each = f"<h3>Every run by itself</h3>{each}"
    return means + each


def _curves(runs: Sequence[Run]) -> str:
    if not any(run.metrics() for run in runs):
        return ""
    return (
        '<div id="controls"></div><div id="panels" class="panels"></div>'
        "<noscript><p>The curves are drawn by a script; the table has the evaluations.</p></noscript>"
        '<details class="screen"><summary>Evaluations as a table</summary>'
        f"{evaluations(runs)}</details>"
    )


def _landscape(runs: Sequence[Run]) -> str:
    return '<div id="landscapes" class="panels"></div>' if any(run.landscape for run in runs) else ""


def _contraction(runs: Sequence[Run]) -> str:
    names = ("zeta_by_layer", "gradient_zeta_by_layer")
    if not any(record.get(name) for run in runs for record in run.metrics() for name in names):
        return ""
    return (
        "<p>Measured &#950; = 1 &#8722; &#8214;Q(&#952;) &#8722; &#952;&#8214;&#178; / "
        "&#8214;&#952;&#8214;&#178; of each parameter "
        "tensor: 1 loses nothing, below 0 the compressor does not contract.</p>"
        '<div id="contractions" class="panels"></div>'
    )


def _more(runs: Sequence[Run]) -> str:
    """Returns the commands and settings that would show more of these runs."""
    hints = []
    if not any(run.sharpness for run in runs):
        hints.append(("how sharp the minima are", "saddle sharpness DIR"))
    if not any(run.landscape for run in runs):
        hints.append(("the loss around the models", "saddle landscape DIR"))
    evaluated = (len(run.curve(f"agent_{run.headline.name}_each")[0]) for run in runs)
    if not any(count > 1 for count in evaluated):
        hints.append(("the agents' own models over time", "saddle train --eval_agents=always"))
    if not hints:
        return ""
    items = "".join(f"<li>{escape(what)}: <code>{escape(how)}</code></li>" for what, how in hints)
    return f"<p>Not measured in these runs, and how to:</p><ul>{items}</ul>"


# Inline SVG drawings, which need no script.
#
# Everything that comes from a run's folder goes through `html.escape`.


# Limits for drawing; for larger ones the page has a sentence instead.
_MOST_BUBBLES = 40_000
_MOST_BARS = 10_000


def bubbles(counts: np.ndarray, names: Sequence[str]) -> str:
    """Draws the class allocation [A, C]: agents against classes, with area proportional to samples."""
    agents, classes = counts.shape
    places = np.argwhere(counts > 0)
    if len(places) > _MOST_BUBBLES:
        return f"<p>{agents:,} agents and {classes:,} classes are too many to draw.</p>"
    labels = classes <= 60
    step = 24.0 if labels else 6.0
    left = 16.0 + 6.2 * min(18, max(map(len, names), default=0)) if labels else 40.0
    width, height = left + 26.0 * agents + 20, step * classes + 50
    parts = [
        f'<svg class="bubbles" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'role="img" aria-label="class allocation: {agents} agents, {classes} classes">'
    ]
    most = counts.max()
    for agent, label in places.tolist():
        count = counts[agent, label]
        radius = max(0.48 * min(step, 26.0) * math.sqrt(count / most), 0.8)
        x, y = left + 26.0 * (agent + 0.5), height - 42 - step * (label + 0.5)
        title = f"agent {agent}, {escape(names[label])}: {count:,}"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.2f}"><title>{title}</title></circle>')
    for label in range(classes) if labels else []:
        y = height - 42 - step * (label + 0.5)
        parts.append(f'<text class="end" x="{left - 8:.0f}" y="{y:.1f}" dy="4">{_short(names[label])}</text>')
    every = math.ceil(agents / 50)
    parts += [
        f'<text x="{left + 26.0 * (agent + 0.5):.1f}" y="{height - 24:.0f}">{agent}</text>'
        for agent in range(0, agents, every)
    ]
    parts.append(f'<text x="{left + 13.0 * agents:.0f}" y="{height - 6:.0f}">agent</text></svg>')
    return "".join(parts)


def agent_bars(scores: Sequence[float], consensus: float | None, measure: Measure) -> str:
    """Draws each agent's result as a bar and the consensus model's as a line."""
    if len(scores) > _MOST_BARS:
        return f"<p>{len(scores):,} agents are too many to draw.</p>"
    step = 22.0 if len(scores) <= 40 else 8.0
    left, height = 44.0 if measure.percent else 64.0, 150.0
    width = left + step * len(scores) + 12
    top = 1.0 if measure.percent else max(*scores, consensus or 0.0, 1e-300)

    def level(value: float) -> float:
        return 12 + (height - 42) * (1 - min(max(value / top, 0.0), 1.0))

    def label(value: float) -> str:
        return f"{100 * value:.0f} %" if measure.percent else f"{value:.3g}"

    meaning = f"test {escape(measure.title)} of each agent's own model"
    parts = [
        f'<svg class="bars" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'role="img" aria-label="{meaning}">'
    ]
    for value in (0.0, 0.5 * top, top):
        y = level(value)
        parts.append(f'<path class="grid" d="M{left - 4:.0f} {y:.1f}H{width - 8:.0f}"/>')
        parts.append(f'<text class="end" x="{left - 8:.0f}" y="{y:.1f}" dy="4">{label(value)}</text>')
    for agent, value in enumerate(scores):
        x, y = left + step * agent, level(value)
        parts.append(
            f'<rect x="{x + 2:.1f}" y="{y:.1f}" width="{step - 4:.1f}" height="{level(0) - y:.1f}">'
            f"<title>agent {agent}: {measure.text(value)}</title></rect>"
        )
        if step > 10:
            parts.append(f'<text x="{x + step / 2:.1f}" y="{height - 16:.0f}">{agent}</text>')
    if consensus is not None:
        y = level(consensus)
        title = f"consensus model: {measure.text(consensus)}"
        parts.append(
            f'<path class="mean" d="M{left:.0f} {y:.1f}H{width - 8:.0f}"><title>{title}</title></path>'
        )
    return "".join([*parts, "</svg>"])


def _short(name: str) -> str:
    return escape(name if len(name) <= 18 else name[:17] + "…")


def sparkline(values: Sequence[float], meaning: str) -> str:
    """Draws a sparkline; nothing if there are fewer than two values."""
    if len(values) < 2:
        return ""
    wide, high = 96.0, 22.0
    is_log = min(values) > 0 and max(values) > 10 * min(values)
    heights = [math.log(value) if is_log else value for value in values]
    low, span = min(heights), max(heights) - min(heights) or 1.0
    points = " ".join(
        f"{2 + (wide - 4) * number / (len(heights) - 1):.1f},{2 + (high - 4) * (1 - (y - low) / span):.1f}"
        for number, y in enumerate(heights)
    )
    label = f"{escape(meaning)} from {values[0]:.3g} to {values[-1]:.3g}"
    return (
        f'<svg class="spark" viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}" height="{high:.0f}" '
        f'role="img" aria-label="{label}"><polyline points="{points}"/></svg>'
    )


# HTML tables, which need no script.
#
# Everything that comes from a run's folder goes through `html.escape`.


_MOST_EVALUATIONS = 1000  # in one table
_LONG = 44  # characters from which a text is wrapped
# Right-aligned cells: numbers, intervals, or "-".
_LIKE_NUMBER = re.compile(r"-|[-+]?[\d.,]+|\[.*\]|")


def table(name: str, rows: Iterable[Sequence[Any]]) -> str:
    """Makes an HTML table with a header; a cell is text, or (text, the value for its CSV).

    Columns of numbers are right-aligned.
    """
    head, *body = rows
    columns = list(zip(*body, strict=True)) if body else [()] * len(head)
    numeric = [
        bool(column) and all(isinstance(cell, tuple) or _LIKE_NUMBER.fullmatch(str(cell)) for cell in column)
        for column in columns
    ]
    classes = [' class="number"' if is_number else "" for is_number in numeric]

    def cell(content: Any, kind: str) -> str:
        text, value = content if isinstance(content, tuple) else (content, None)
        exact = "" if value is None else f' data-value="{escape(as_cell(value))}"'
        kind = kind or (' class="long"' if len(str(text)) > _LONG else "")
        return f"<td{kind}{exact}>{escape(str(text))}</td>"

    lines = "".join(f"<tr>{''.join(map(cell, row, classes))}</tr>" for row in body)
    top = "".join(
        f'<th scope="col"{kind}>{escape(str(one))}</th>' for one, kind in zip(head, classes, strict=True)
    )
    return (
        f'<div class="wide"><table data-csv="{escape(name)}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def notes(runs: Sequence[Run]) -> Iterable[str]:
    """Yields warnings about runs that did not finish."""
    for run in runs:
        if run.state == "finished":
            continue
        steps = run.fact("steps")
        where = f"at step {run.result.get('steps') or run.last_step:,}"
        where += f" of {steps:,}" if isinstance(steps, int) else ""
        state = {
            "diverged": f"diverged at step {run.result.get('diverged_at_step')}: not all numbers were finite",
            "interrupted": f"was interrupted {where}",
            "running": f"is still running, {where}",
        }.get(run.state, f"did not come to its end: it stopped {where}")
        kind = "note calm" if run.state == "running" else "note"
        yield f'<p class="{kind}"><strong>{escape(run.name)}</strong> {escape(state)}.</p>'


def _columns(
    items: Sequence[Item],
    columns: Sequence[tuple[str, Callable[[Item], Any]]],
    optional: Collection[str] = (),
) -> list[Sequence[Any]]:
    """Returns rows with a heading, one for each item; `optional` columns only where an item has a value."""
    filled = [[heading, *map(cell, items)] for heading, cell in columns]
    shown = [column for column in filled if column[0] not in optional or {*column[1:]} - {"-"}]
    return [*zip(*shown, strict=True)]


def _score(measure: Measure, value: Any) -> Any:
    return "-" if value is None else (measure.text(value), value)


def _exact(value: Any, text: str = "{:.4g}") -> Any:
    return "-" if value is None else (text.format(value), value)


def results(runs: Sequence[Run]) -> str:
    """Makes the table of final results, with the published figure of runs that reproduce one."""
    known = list(dict.fromkeys(one for run in runs for one in run.measures))
    headlines = list(dict.fromkeys(run.headline for run in runs))
    ends = {run: {**_last_evaluation(run), **run.result} for run in runs}

    def score(measure: Measure) -> Callable[[Run], Any]:
        return lambda run: _score(measure, ends[run].get(measure.key))

    def of_agents(what: str) -> Callable[[Run], Any]:
        return lambda run: _score(run.headline, ends[run].get(f"agent_{run.headline.name}_{what}"))

    def published(name: str) -> Callable[[Run], str]:
        return lambda run: run.paper[name] if run.paper else "-"

    def place(run: Run) -> str:
        paper = run.paper or {"table": "-", "row": "-"}
        return paper["row"] if paper["table"] == "-" else f"Table {paper['table']}, {paper['row']}"

    columns: list[tuple[str, Callable[[Run], Any]]] = [
        ("run", lambda run: run.name),
        ("state", lambda run: run.state),
        *((f"test {one.title}", score(one)) for one in headlines),
        ("the paper's", published("paper")),
        ("agents' mean", of_agents("mean")),
        ("std", of_agents("std")),
        *((f"test {one.title}", score(one)) for one in known if one not in headlines),
        ("consensus distance", lambda run: _exact(ends[run].get("consensus_distance"))),
        ("steps", lambda run: _exact(ends[run].get("steps", run.last_step), "{:,}")),
        ("seconds", lambda run: _exact(ends[run].get("seconds"), "{:.1f}")),
        ("simulated seconds", lambda run: _exact(run.result.get("simulated_seconds"))),
        ("where", place),
        ("our scale", published("scale")),
    ]
    optional = ("the paper's", "simulated seconds", "where", "our scale")
    return table("results", _columns(runs, columns, optional))


def _last_evaluation(run: Run) -> dict[str, Any]:
    return next((r for r in reversed(run.metrics()) if r.get(run.headline.key) is not None), {})


def seeds(runs: Sequence[Run]) -> str:
    """Makes the table of means over seeds, the best first; empty without several seeds."""
    groups = [group for group in seeds_together(runs) if len(group) > 1]
    if not groups:
        return ""
    names = differing([run.config.to_json() for run in runs])
    named = [name for name in names if name not in ("seed", *IRRELEVANT)]
    varied = [name for name in named if name != "method"]
    rows: list[list[Any]] = [["method", *varied, "seeds", "metric", "mean", "std", "95 % interval"]]
    for group in sorted(groups, key=_rank):
        shared, cell = group[0].config.to_json(), cell_of(group)
        found, headline = summarise(cell.values), cell.measure
        row = [shared["method"], *(as_cell(shared[n]) for n in varied), str(len(cell.values))]
        rows.append([*row, headline.title, _score(headline, found.mean), _score(headline, found.std)])
        rows[-1].append(cell.summary.interval(headline.form))
    note = "<p>Runs that differ in the seed alone; of those that finished. Intervals are Student's t.</p>"
    return f"<h3>Mean over seeds</h3>{note}{table('seeds', rows)}{_between(groups)}"


def _rank(group: Sequence[Run]) -> tuple[bool, float]:
    """Returns a sort key: groups with better means first, those without a mean last."""
    cell = cell_of(group)
    return cell.mean is None, cell.measure.ranked(cell.mean or 0.0)


# What makes losses and accuracies of runs comparable: the same samples, divided alike, and the same task.
_PROBLEM = ("dataset", "subset", "objective", "partition", "agents")


def _between(groups: Sequence[Sequence[Run]]) -> str:
    """Makes the table of differences over common seeds, from the first group of each problem."""
    problems = grouped(zip(groups, labels(groups), strict=True), lambda pair: _problem(pair[0][0]))
    rows: list[list[Any]] = [["run", "minus", "difference", "95 % interval", "seeds"]]
    for (headline, *_), ((first, subtracted), *others) in problems.items():
        base = cell_of(first).by_seed
        for group, label in others:
            difference = paired(cell_of(group).by_seed, base)
            digits = f"+{headline.form}"
            mean = "-" if difference.mean is None else (f"{difference.mean:{digits}}", difference.mean)
            rows.append([label, subtracted, mean, difference.interval(digits), str(difference.seeds)])
    if len(rows) == 1:
        return ""
    note = "<p>Seed by seed, between runs on the same data, partition and number of agents.</p>"
    return f"<h3>Differences over the same seeds</h3>{note}{table('differences', rows)}"


def _problem(run: Run) -> tuple[Any, ...]:
    """Returns what runs to be compared share; data from Python objects may share a name, but not its size."""
    sizes = (run.fact("dataset", "train"), run.fact("dataset", "test"))
    return (run.headline, *(getattr(run.config, name) for name in _PROBLEM), *sizes)


def _facts(run: Run) -> dict[str, str]:
    """Returns versions, devices and similar facts by name."""
    flat = {"devices": ", ".join(map(str, run.about["devices"])) or "not recorded"}
    for part in ("dataset", "objective", "partition", "topology", "versions"):
        for name, value in run.about[part].items():
            if name not in ("class_counts", "class_names", "metrics"):
                flat[f"{part}: {name}"] = as_cell(value)
    return flat | {name: as_cell(run.fact(name)) for name in ("parameters", "steps")}


def settings(runs: Sequence[Run]) -> str:
    """Makes the tables of settings: those that differ by run, and the common ones."""
    parts = []
    for title, name, many in (
        ("Settings", "settings", [run.config.to_json() for run in runs]),
        ("Versions, devices, data", "environment", [_facts(run) for run in runs]),
    ):
        names = differing(many)
        if names:
            rows = [["run", *names]]
            rows += [
                [run.name, *(as_cell(one.get(n)) for n in names)] for run, one in zip(runs, many, strict=True)
            ]
            parts.append(f"<h3>{title} that differ</h3>{table(f'{name}-differing', rows)}")
        shared = [["setting", "value"], *([n, as_cell(v)] for n, v in many[0].items() if n not in names)]
        heading = title if len(runs) == 1 else f"{title} in common"
        parts.append(f"<details><summary>{heading}</summary>{table(name, shared)}</details>")
    return "".join(parts)


def evaluations(runs: Sequence[Run]) -> str:
    """Makes the table of evaluations, an alternative to curves; a selection if there are many."""
    known = list(dict.fromkeys(one for run in runs for one in run.measures))
    rows = [["run", "epoch", *(f"test {one.title}" for one in known), "consensus distance"]]
    for run in runs:
        records = [r for r in run.metrics() if r.get(run.headline.key) is not None]
        every = -(-len(records) * len(runs) // _MOST_EVALUATIONS) or 1
        for r in records[::-every][::-1]:  # always with the last one
            scores = [_score(one, r.get(one.key)) for one in known]
            rows.append([run.name, f"{r['epoch']:g}", *scores, _exact(r.get("consensus_distance"))])
    return table("evaluations", rows)


def traffic(runs: Sequence[Run]) -> str:
    """Makes the table of bytes sent, with lost messages and simulated time if these were simulated.

    Runs that differ only in the seed are one row of means.
    """
    groups = distinct_seeds(runs)
    names = [
        label if len(group) == 1 else f"{label}, {len(group)} seeds"
        for group, label in zip(groups, group_labels(groups), strict=True)
    ]

    def sent(name: str) -> Callable[[list[Run]], Any]:
        return lambda group: _bytes(_spent(group, name))

    def per_step(group: list[Run]) -> Any:
        count, steps = _spent(group, "bytes_sent_per_agent"), _spent(group, "step")
        return _bytes(count / steps if count is not None and steps else None)

    columns: list[tuple[str, Callable[[list[Run]], Any]]] = [
        ("sent per agent", sent("bytes_sent_per_agent")),
        ("as the paper counts", sent("paper_bytes_sent_per_agent")),
        ("per step", per_step),
        ("messages lost", _lost),
        ("simulated seconds", lambda group: _exact(_spent(group, "simulated_seconds"))),
        ("what goes wrong", lambda group: of_faults(group[0].config) or "-"),
        ("network", lambda group: of_timing(group[0].config) or "-"),
    ]
    optional = ("messages lost", "simulated seconds", "what goes wrong", "network")
    said = "<p>Bytes that one agent sent: of the real encodings, and as the paper's tables count them.</p>"
    head, *rows = _columns(groups, columns, optional)
    named = [[name, *row] for name, row in zip(names, rows, strict=True)]
    return said + table("traffic", [["run", *head], *named])


def _bytes(count: float | None) -> Any:
    return "-" if count is None else (readable(round(count)), round(count))


def _spent(group: Sequence[Run], name: str) -> float | None:
    """Returns the mean of a cumulative metric at the end of the runs; None if none recorded it."""
    ends = [{**(run.metrics()[-1] if run.metrics() else {}), **run.result} for run in group]
    ends = [{**end, "step": end.get("steps", end.get("step"))} for end in ends]
    return summarise([end[name] for end in ends if end.get(name) is not None]).mean


def _lost(group: Sequence[Run]) -> Any:
    """Returns the fraction of messages lost in the logged steps."""
    mean = summarise([share for run in group for share in run.curve("messages_lost")[1]]).mean
    return "-" if mean is None else (f"{100 * mean:.1f} %", mean)


def sharpness(runs: Sequence[Run]) -> str:
    """Makes the place of the plots and the table of all measurements of Hessians; empty without any."""
    names = ("step", "epoch", "whose", "lambda_max", "lambda_min", "residual", "trace", "trace_error")
    rows: list[list[Any]] = [["run", "data", "images", *names]]
    for run in runs:
        about = run.sharpness or {"stages": []}
        for stage in about["stages"]:
            cells = (stage[n] if isinstance(stage[n], str) else _exact(stage[n]) for n in names)
            rows.append([run.name, about["data"], about["images"], *cells])
    if not any(run.sharpness for run in runs):
        return ""
    return f'<div id="sharpness-panels" class="panels"></div>{table("sharpness", rows)}'


# HTML figures that need no script: agents, graphs and partitions.
#
# Everything that comes from a run's folder goes through `html.escape`.


_LARGEST_MATRIX = 16
_MOST_OPEN = 6  # charts of agents that are shown without a click
_TOO_LARGE = "<p>Not drawn: the graph is too large to be recorded.</p>"


def agents(runs: Sequence[Run]) -> str:
    """Makes the place of the viewer, and draws each agent's final result; empty if no agent was evaluated."""
    parts, evaluated = [], False
    for run in runs:
        name = f"agent_{run.headline.name}_each"
        evaluated = evaluated or any(_is_list(record.get(name)) for record in (run.result, *run.metrics()))
        scores: Any = run.result.get(name)
        if _is_list(scores):
            drawing = agent_bars(scores, run.result.get(run.headline.key), run.headline)
            parts.append(f"<figure><figcaption>{escape(run.name)}</figcaption>{drawing}</figure>")
    said = "<p>Test result of each agent's own model at the end; the line is the consensus model.</p>"
    drawn = f"{said}{_tiles(parts)}" if parts else ""
    if len(parts) > _MOST_OPEN:
        drawn = f"<details><summary>The end of each of the {len(parts)} runs</summary>{drawn}</details>"
    return f'<div id="viewer"></div>{drawn}' if evaluated else ""


def _is_list(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(a, int | float) for a in values)


def _with_users(runs: Sequence[Run], key: Callable[[Run], Any]) -> list[tuple[list[Run], str]]:
    """Groups the runs by key, each group with a text that names its runs, empty if there is only one."""
    users = grouped(runs, key).values()
    return [(group, "" if len(users) == 1 else f" ({', '.join(r.name for r in group)})") for group in users]


def _tiles(figures: Iterable[str]) -> str:
    return f'<div class="tiles">{"".join(figures)}</div>'


def _matrices(graphs: Graphs) -> str:
    """Makes collapsible tables of a small graph's mixing matrices, one per step of a period."""
    if graphs.size > _LARGEST_MATRIX or graphs.period > _LARGEST_MATRIX:
        return ""
    parts = []
    for turn, topology in enumerate(graphs.graphs):
        rows: list[list[Any]] = [["", *map(str, range(topology.size))]]
        rows += [
            [str(i), *((f"{w:.3g}" if w else "·", float(w)) for w in row)]
            for i, row in enumerate(topology.mixing)
        ]
        number = "" if graphs.period == 1 else f"-{turn}"
        said = "" if graphs.period == 1 else f" of step {turn}"
        parts.append(
            f"<details><summary>mixing matrix W{said}</summary>{table(f'mixing{number}', rows)}</details>"
        )
    return "".join(parts)


def graphs(runs: Sequence[Run]) -> str:
    """Draws each distinct graph with the runs that use it."""

    def key(run: Run) -> bytes:
        topology = topology_of(run)
        if topology is None:
            return repr((run.config.topology, run.config.agents, run.fact("topology"))).encode()
        links = b"".join(part.tobytes() for graph in topology.graphs for part in graph.links)
        return topology.name.encode() + links

    figures = []
    for group, users in _with_users(runs, key):
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
    """Draws each distinct partition with the runs that use it; empty if none was recorded."""
    figures = []
    for group, users in _with_users(runs, lambda run: str(run.fact("partition", "fingerprint") or run.name)):
        run = group[0]
        counts = class_counts(run)
        if counts is None:
            continue
        drawing = bubbles(counts, class_names(run, counts.shape[1]))
        title = f"{run.fact('partition', 'name') or run.config.partition}{users}"
        figures.append(
            f'<figure data-partition="{runs.index(run)}">'
            f"<figcaption>{escape(title)}<br>{_skew(run)}</figcaption>{drawing}</figure>"
        )
    if not figures:
        return ""
    said = "<p>Who holds which classes; a bubble's area is the number of samples.</p>"
    first, rest = figures[:_MOST_OPEN], figures[_MOST_OPEN:]
    more = f"<details><summary>{len(rest)} more</summary>{_tiles(rest)}</details>" if rest else ""
    return said + _tiles(first) + more


def _skew(run: Run) -> str:
    """Describes the label skew of a run's partition, if it was recorded."""
    measures = {
        "classes_per_agent": "classes per agent",
        "entropy": "nats of entropy",
        "earth_movers_distance": "earth-mover distance",
    }
    values = {meaning: run.fact("partition", name) for name, meaning in measures.items()}
    return ", ".join(f"{v:.2f} {meaning}" for meaning, v in values.items() if isinstance(v, int | float))


_SECTIONS: tuple[tuple[str, str, Callable[[Sequence[Run]], str]], ...] = (
    ("results", "Results", _results),
    ("curves", "Curves", _curves),
    ("agents", "Agents", agents),
    ("traffic", "Traffic", traffic),
    ("graph", "Graph", graphs),
    ("partition", "Partition", partitions),
    ("sharpness", "Sharpness", sharpness),
    ("landscape", "Loss landscape", _landscape),
    ("contraction", "Contraction by layer", _contraction),
    ("settings", "Settings", settings),
    ("more", "More", _more),
)
