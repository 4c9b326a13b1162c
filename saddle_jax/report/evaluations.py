"""New metrics of old runs as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from saddle_jax.settings.sweep import name_of
from saddle_jax.training.build import Replica
from saddle_jax.training.evaluation import Measure


def evaluation_rows(
    records: Sequence[Mapping[str, Any]], measures: Mapping[str, Measure], replica: Replica
) -> list[list[str]]:
    """Lists a metric a row and a model a column; the numbers of a list have rows of their own."""
    table = [["metric", *map(_heading, records)]]
    for name, measure in measures.items():
        values = [record["metrics"][name] for record in records]
        if not isinstance(values[0], list):
            table.append([name, *(_text(value, measure.percent) for value in values)])
            continue
        labels = (
            measure.labels(replica) if measure.labels else [str(number) for number in range(len(values[0]))]
        )
        for number, label in enumerate(labels):
            table.append([f"{name} {label}", *(_text(value[number], measure.percent) for value in values)])
    return table


def _heading(record: Mapping[str, Any]) -> str:
    parts = [name_of(record["run"]), "" if record["whose"] == "consensus" else f"agent {record['whose']}"]
    return ", ".join([*filter(None, parts), f"epoch {record['epoch']:g}"])


def _text(value: Any, percent: bool) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if value is None:
        return "-"
    return f"{100 * value:.2f} %" if percent else f"{value:.4g}"
