"""The tables of a page, which need no script, as HTML text.

Everything that comes from a run's folder goes through `html.escape`.
"""

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from saddle_jax.core.ledger import readable
from saddle_jax.report.gathered import Run
from saddle_jax.report.measures import Measure
from saddle_jax.report.seeds import distinct_seeds, group_labels, labels, seeds_together
from saddle_jax.report.statistics import paired, summarise
from saddle_jax.settings.config import IRRELEVANT
from saddle_jax.training.describe import of_faults, of_timing

_MOST_EVALUATIONS = 1000  # in one table
_LONG = 44  # letters from which on a text takes several lines
# What stands at the right of a column: numbers, intervals of them, or that there is none.
_LIKE_NUMBER = re.compile(r"-|[-+]?[\d.,]+|\[.*\]|")


def table(name: str, rows: Iterable[Sequence[Any]]) -> str:
    """Makes an HTML table with a header; a cell is text, or (text, the number that its CSV has).

    Columns of numbers are aligned at the right.
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
        exact = "" if value is None else f' data-value="{escape(str(value))}"'
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
        kind = "note calm" if run.state == "running" else "note"
        yield f'<p class="{kind}"><strong>{escape(run.name)}</strong> {escape(state)}.</p>'


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
        row += [_exact(result.get("consensus_distance")), _exact(result.get("steps", run.last_step), "{:,}")]
        row += [_exact(result.get("seconds"), "{:.1f}")]
        row += [_exact(result.get("simulated_seconds"))] if timed else []
        table_name = f"Table {paper['table']}, " if paper["table"] else ""
        rows.append(row + ([table_name + paper["row"], paper["scale"]] if published else []))
    return table("results", rows)


def _last_evaluation(run: Run) -> dict[str, Any]:
    return next((r for r in reversed(run.metrics) if r.get(run.headline.key) is not None), {})


def seeds(runs: Sequence[Run]) -> str:
    """Makes the table of means over seeds, the best first, where there are several."""
    groups = [group for group in seeds_together(runs) if len(group) > 1]
    if not groups:
        return ""
    names = _differing([run.config.to_json() for run in runs])
    named = [name for name in names if name not in ("seed", *IRRELEVANT)]
    varied = [name for name in named if name != "method"]
    rows: list[list[Any]] = [["method", *varied, "seeds", "metric", "mean", "std", "95 % interval"]]
    for group in sorted(groups, key=_rank):
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


def _rank(group: Sequence[Run]) -> tuple[bool, float]:
    """Returns what puts groups with the better mean first, and those without any last."""
    mean = summarise([score for run in group if (score := run.score()) is not None]).mean
    sign = -1.0 if group[0].headline.better == "higher" else 1.0
    return mean is None, sign * (mean or 0.0)


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
    """Makes the table of evaluations, for readers who do not look at curves; of many, some of each run."""
    known = list(dict.fromkeys(one for run in runs for one in run.measures))
    rows = [["run", "epoch", *(f"test {one.title}" for one in known), "consensus distance"]]
    for run in runs:
        records = [r for r in run.metrics if r.get(run.headline.key) is not None]
        every = -(-len(records) * len(runs) // _MOST_EVALUATIONS) or 1
        for r in records[::-every][::-1]:  # the last one always
            scores = [_score(one, r.get(one.key)) for one in known]
            rows.append([run.name, f"{r['epoch']:g}", *scores, _exact(r.get("consensus_distance"))])
    return table("evaluations", rows)


def traffic(runs: Sequence[Run]) -> str:
    """Makes the table of bytes sent, and of what the network loses and how long it takes, if it says so.

    Runs that differ in the seed alone are one row, with their means.
    """
    groups = distinct_seeds(runs)
    lossy = [of_faults(group[0].config) or "-" for group in groups]
    slow = [of_timing(group[0].config) or "-" for group in groups]
    has_lost = any(text != "-" for text in lossy)
    has_time = any(_spent(group, "simulated_seconds") is not None for group in groups)
    head = ["run", "compressor", "sent per agent", "as the paper counts", "per step"]
    head += ["messages lost"] if has_lost else []
    head += ["simulated seconds"] if has_time else []
    head += ["what goes wrong"] if has_lost else []
    head += ["network"] if has_time else []
    rows: list[list[Any]] = [head]
    for group, label, wrong, times in zip(groups, group_labels(groups), lossy, slow, strict=True):
        name = label if len(group) == 1 else f"{label}, {len(group)} seeds"
        wire, paper, steps = (
            _spent(group, key) for key in ("bytes_sent_per_agent", "paper_bytes_sent_per_agent", "step")
        )
        counts = (wire, paper, wire / steps if wire is not None and steps else None)
        cells: list[Any] = [
            "-" if count is None else (readable(round(count)), round(count)) for count in counts
        ]
        cells += [_lost(group)] if has_lost else []
        cells += [_exact(_spent(group, "simulated_seconds"))] if has_time else []
        cells += [wrong] if has_lost else []
        cells += [times] if has_time else []
        rows.append([name, group[0].config.compressor, *cells])
    return table("traffic", rows)


def _spent(group: Sequence[Run], name: str) -> float | None:
    """Returns how much of something the runs had spent in the end, their mean; None if none says it."""
    ends = [{**(run.metrics[-1] if run.metrics else {}), **run.result} for run in group]
    ends = [{**end, "step": end.get("steps", end.get("step"))} for end in ends]
    return summarise([end[name] for end in ends if end.get(name) is not None]).mean


def _lost(group: Sequence[Run]) -> Any:
    """Returns the share of messages that were lost in the steps that were logged."""
    mean = summarise([share for run in group for share in run.curve("messages_lost")[1]]).mean
    return "-" if mean is None else (f"{100 * mean:.1f} %", mean)


def sharpness(runs: Sequence[Run]) -> str:
    """Makes the table of every stage at which a Hessian was measured; nothing if none was."""
    measured = [run for run in runs if run.sharpness]
    if not measured:
        return ""
    names = ("step", "epoch", "whose", "lambda_max", "lambda_min", "residual", "trace", "trace_error")
    rows: list[list[Any]] = [["run", "data", "images", *names]]
    for run in measured:
        about = run.sharpness or {}
        for stage in about["stages"]:
            cells = (stage[n] if isinstance(stage[n], str) else _exact(stage[n]) for n in names)
            rows.append([run.name, about["data"], about["images"], *cells])
    return table("sharpness", rows)
