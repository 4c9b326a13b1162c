"""The parts of a page that need no script: tables and drawings as HTML text.

Everything that comes from a run's folder goes through `html.escape`.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from saddle_jax.core.ledger import readable
from saddle_jax.core.mixing import Graphs
from saddle_jax.report import drawings, graph_drawings
from saddle_jax.report.gathered import Run, class_counts, class_names
from saddle_jax.report.measures import Measure
from saddle_jax.report.seeds import labels, seeds_together
from saddle_jax.report.statistics import paired, summarise
from saddle_jax.report.topologies import topology_of
from saddle_jax.training.config import IRRELEVANT

_LARGEST_MATRIX = 16
_UNRECORDED = "<p>Not recorded: the run was made by an older version.</p>"
_TOO_LARGE = "<p>Not drawn: the graph is too large to be recorded.</p>"


def table(name: str, rows: Iterable[Sequence[Any]]) -> str:
    """Makes an HTML table with a header; a cell is text, or (text, the number that its CSV has)."""

    def cell(content: Any) -> str:
        text, value = content if isinstance(content, tuple) else (content, None)
        exact = "" if value is None else f' data-value="{escape(str(value))}"'
        return f"<td{exact}>{escape(str(text))}</td>"

    head, *body = rows
    lines = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in body)
    top = "".join(f'<th scope="col">{escape(str(one))}</th>' for one in head)
    return (
        f'<div class="wide"><table data-csv="{escape(name)}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def notes(runs: Sequence[Run]) -> Iterable[str]:
    """Yields what a reader must know first: runs that did not come to their end."""
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
        yield f'<p class="note"><strong>{escape(run.name)}</strong> {escape(state)}.</p>'


def _score(measure: Measure, value: Any) -> Any:
    return "-" if value is None else (measure.text(value), value)


def _exact(value: Any, text: str = "{:.4g}") -> Any:
    return "-" if value is None else (text.format(value), value)


def results(runs: Sequence[Run]) -> str:
    """Makes the table of how every run ended, beside the published figure where it reproduces one."""
    known = list(dict.fromkeys(one for run in runs for one in run.measures))
    headlines = list(dict.fromkeys(run.headline for run in runs))
    others = [one for one in known if one not in headlines]
    published = any(run.paper for run in runs)
    named = [f"test {one.title}" for one in headlines]
    head = ["run", "state", *named, *(["the paper's"] if published else []), "agents' mean", "std"]
    timed = any(run.result.get("simulated_seconds") is not None for run in runs)
    head += [*(f"test {one.title}" for one in others), "consensus distance", "steps", "seconds"]
    head += ["simulated seconds"] if timed else []
    rows: list[list[Any]] = [head + (["where", "our scale"] if published else [])]
    for run in runs:
        result = {**_last_evaluation(run), **run.result}
        paper = run.paper or {"paper": "-", "table": "", "row": "-", "scale": "-"}
        row = [run.name, run.state, *(_score(one, result.get(one.key)) for one in headlines)]
        row += [paper["paper"]] if published else []
        mean, std = (result.get(f"agent_{run.headline.name}_{what}") for what in ("mean", "std"))
        row += [_score(run.headline, mean), _score(run.headline, std)]
        row += [_score(one, result.get(one.key)) for one in others]
        row += [_exact(result.get("consensus_distance")), str(result.get("steps", run.last_step))]
        row += [_exact(result.get("seconds"), "{:.1f}")]
        row += [_exact(result.get("simulated_seconds"))] if timed else []
        table_name = f"Table {paper['table']}, " if paper["table"] else ""
        rows.append(row + ([table_name + paper["row"], paper["scale"]] if published else []))
    return table("results", rows)


def _last_evaluation(run: Run) -> dict[str, Any]:
    return next((r for r in reversed(run.metrics) if r.get(run.headline.key) is not None), {})


def seeds(runs: Sequence[Run]) -> str:
    """Makes the table of means over seeds, where there are several."""
    groups = [group for group in seeds_together(runs) if len(group) > 1]
    if not groups:
        return ""
    names = _differing([run.config.to_json() for run in runs])
    named = [name for name in names if name not in ("seed", *IRRELEVANT)]
    varied = [name for name in named if name != "method"]
    rows: list[list[Any]] = [["method", *varied, "seeds", "metric", "mean", "std", "95 % interval"]]
    for group in groups:
        shared = group[0].config.to_json()
        headline = group[0].headline
        scores = [score for run in group if (score := run.score()) is not None]
        found = summarise(scores)
        scaled = summarise([headline.factor * score for score in scores])
        row = [shared["method"], *(_text(shared[n]) for n in varied), str(len(scores))]
        rows.append([*row, headline.title, _score(headline, found.mean), _score(headline, found.std)])
        rows[-1].append(scaled.interval(".2f" if headline.percent else ".4g"))
    note = "<p>Runs that differ in the seed alone; of those that finished. Intervals are Student's t.</p>"
    return f"<h3>Mean over seeds</h3>{note}{table('seeds', rows)}{_between(groups)}"


def _between(groups: Sequence[Sequence[Run]]) -> str:
    """Makes the table of differences from the first group, over the seeds that both have."""
    first, *others = groups
    rows: list[list[Any]] = [["minus the first", "difference", "95 % interval", "seeds"]]
    factor, percent = first[0].headline.factor, first[0].headline.percent
    base = {run.config.seed: factor * score for run in first if (score := run.score()) is not None}
    for group, label in zip(others, labels(groups)[1:], strict=True):
        if group[0].headline != first[0].headline:
            continue
        found = paired({r.config.seed: factor * s for r in group if (s := r.score()) is not None}, base)
        digits = "+.2f" if percent else "+.4g"
        mean = "-" if found.mean is None else (f"{found.mean:{digits}}", found.mean)
        rows.append([label, mean, found.interval(digits), str(found.seeds)])
    if len(rows) == 1:
        return ""
    note = f"<p>Seed by seed, from the first: {escape(labels(groups)[0])}.</p>"
    return f"<h3>Differences over the same seeds</h3>{note}{table('differences', rows)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _differing(many: Sequence[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for one in many for name in one)
    return [name for name in names if any(one.get(name) != many[0].get(name) for one in many)]


def _facts(run: Run) -> dict[str, str]:
    """Returns versions, devices and the like in one flat table."""
    flat = {"devices": ", ".join(map(str, run.about["devices"])) or "not recorded"}
    for part in ("dataset", "objective", "partition", "topology", "versions"):
        for name, value in run.about[part].items():
            if name not in ("class_counts", "class_names", "metrics"):
                flat[f"{part}: {name}"] = _text(value)
    return flat | {name: _text(run.fact(name)) for name in ("parameters", "steps")}


def settings(runs: Sequence[Run]) -> str:
    """Makes tables of settings: what differs run by run, what they share once."""
    parts = []
    for title, name, many in (
        ("Settings", "settings", [run.config.to_json() for run in runs]),
        ("Versions, devices, data", "environment", [_facts(run) for run in runs]),
    ):
        names = _differing(many)
        if names:
            rows = [["run", *names]]
            rows += [
                [run.name, *(_text(one.get(n)) for n in names)] for run, one in zip(runs, many, strict=True)
            ]
            parts.append(f"<h3>{title} that differ</h3>{table(f'{name}-differing', rows)}")
        shared = [["setting", "value"], *([n, _text(v)] for n, v in many[0].items() if n not in names)]
        heading = title if len(runs) == 1 else f"{title} in common"
        parts.append(f"<details><summary>{heading}</summary>{table(name, shared)}</details>")
    return "".join(parts)


def evaluations(runs: Sequence[Run]) -> str:
    """Makes the table of every evaluation, for readers without a script."""
    known = list(dict.fromkeys(one for run in runs for one in run.measures))
    rows = [["run", "epoch", *(f"test {one.title}" for one in known), "consensus distance"]]
    for run in runs:
        for r in run.metrics:
            if r.get(run.headline.key) is not None:
                scores = [_score(one, r.get(one.key)) for one in known]
                rows.append([run.name, f"{r['epoch']:g}", *scores, _exact(r.get("consensus_distance"))])
    return table("evaluations", rows)


def agents(runs: Sequence[Run]) -> str:
    """Draws every agent's own result at the end, a small chart for each run."""
    parts = []
    for number, run in enumerate(runs):
        scores = run.result.get(f"agent_{run.headline.name}_each")
        drawing = "<p>Not recorded: the agents' own models were not evaluated one by one.</p>"
        if isinstance(scores, list) and scores and all(isinstance(a, int | float) for a in scores):
            drawing = drawings.agent_bars(scores, run.result.get(run.headline.key), number, run.headline)
        parts.append(f"<figure><figcaption>{escape(run.name)}</figcaption>{drawing}</figure>")
    return _tiles(parts)


def traffic(runs: Sequence[Run]) -> str:
    """Makes the table of bytes sent, by the real encodings and in the paper's accounting."""
    rows: list[list[Any]] = [["run", "compressor", "sent per agent", "as the paper counts", "per step"]]
    for run in runs:
        last = {**(run.metrics[-1] if run.metrics else {}), **run.result}
        wire, paper = last.get("bytes_sent_per_agent"), last.get("paper_bytes_sent_per_agent")
        steps = run.result.get("steps") or run.last_step
        per_step = None if wire is None or not steps else wire // steps
        cells = ("-" if value is None else (readable(value), value) for value in (wire, paper, per_step))
        rows.append([run.name, run.config.compressor, *cells])
    return table("traffic", rows)


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
            f'<figure data-edges="{runs.index(group[0])}">'
            f"<figcaption>{escape(str(topology) + users)}</figcaption>"
            f"{graph_drawings.graph(topology)}{_matrices(topology)}</figure>"
        )
    return _tiles(figures)


def partitions(runs: Sequence[Run]) -> str:
    """Draws each partition once, with the runs that used it."""
    figures = []
    for group, users in _grouped(runs, lambda run: str(run.fact("partition", "fingerprint") or run.name)):
        run = group[0]
        counts = class_counts(run)
        names = [] if counts is None else class_names(run, counts.shape[1])
        drawing = _UNRECORDED if counts is None else drawings.bubbles(counts, names)
        title = f"{run.fact('partition', 'name') or run.config.partition}{users}"
        figures.append(
            f'<figure data-partition="{runs.index(run)}">'
            f"<figcaption>{escape(title)}<br>{_skew(run)}</figcaption>{drawing}</figure>"
        )
    return _tiles(figures)


def _skew(run: Run) -> str:
    """Describes how unequal a run's agents are, as far as it was recorded."""
    measures = {
        "classes_per_agent": "classes per agent",
        "entropy": "nats of entropy",
        "earth_movers_distance": "earth-mover distance",
    }
    values = {meaning: run.fact("partition", name) for name, meaning in measures.items()}
    return ", ".join(f"{v:.2f} {meaning}" for meaning, v in values.items() if isinstance(v, int | float))


def sharpness(runs: Sequence[Run]) -> str:
    """Makes the table of every stage at which a Hessian was measured."""
    measured = [run for run in runs if run.sharpness]
    if not measured:
        return "<p>Not measured.</p>"
    names = ("step", "epoch", "whose", "lambda_max", "lambda_min", "residual", "trace", "trace_error")
    rows: list[list[Any]] = [["run", "data", "images", *names]]
    for run in measured:
        about = run.sharpness or {}
        for stage in about["stages"]:
            cells = (stage[n] if isinstance(stage[n], str) else _exact(stage[n]) for n in names)
            rows.append([run.name, about["data"], about["images"], *cells])
    return table("sharpness", rows)
