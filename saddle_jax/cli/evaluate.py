"""saddle evaluate: a run's models again, by its own metrics or by others that training did without."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from saddle_jax.base import calls
from saddle_jax.cli.runs import model_options, warn
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.report.tables import as_text


def run(arguments: Sequence[str]) -> None:
    """Evaluates a run's newest checkpoint again, or others, by the metrics that are named."""
    options = _options()
    (name,) = parse(options, arguments, ["DIR"])
    workdir = pathlib.Path(name)
    if not (options.metrics or options.epochs or options.json):
        _newest(workdir, options)
        return

    from saddle_jax.training import evaluations, reopen

    with mistakes():
        whole = reopen.open_whole(workdir, options.data_dir, options.replica, options.code)
        names = calls.split(options.metrics or "")
        records, measures = evaluations.evaluate(
            workdir, whole, names, options.epochs, warn, options.replica, options.agent
        )
    if options.json:
        print(json.dumps(records, indent=1))
        return
    labels = {each: measure.labels and measure.labels(whole.replica) for each, measure in measures.items()}
    percents = {each for each, measure in measures.items() if measure.percent}
    print(as_text(_rows(records, labels, percents)))
    print(f"written: {workdir / evaluations.FILE}")


def _newest(workdir: pathlib.Path, options: flags.FlagValues) -> None:
    """Prints the metrics of the objective of one model at the newest checkpoint, in one line."""
    from saddle_jax.training.phrases import score
    from saddle_jax.training.reopen import choose, open_run

    with mistakes():
        replica, step, params = open_run(workdir, warn, options.data_dir, options.replica, options.code)
        found = {
            f"test_{name}": value for name, value in replica.evaluate(choose(params, options.agent)).items()
        }
    whose = "consensus model" if options.agent is None else f"agent {options.agent}"
    metrics = [metric.record() for metric in replica.objective.metrics]
    shown = ", ".join(f"{metric['title']} {score(found, metric)}" for metric in metrics)
    print(f"{whose} at step {step:,}: test {shown}")


def _rows(
    records: Sequence[Mapping[str, Any]], labels: Mapping[str, Any], percents: set[str]
) -> list[list[str]]:
    """Lists a metric a row and a model a column; the numbers of a list have rows of their own."""
    table = [["metric", *map(_heading, records)]]
    for name in records[0]["metrics"]:
        values = [record["metrics"][name] for record in records]
        if not isinstance(values[0], list):
            table.append([name, *(_text(value, name in percents) for value in values)])
            continue
        for number, label in enumerate(labels[name] or map(str, range(len(values[0])))):
            cells = [_text(value[number], name in percents) for value in values]
            table.append([f"{name} {label}", *cells])
    return table


def _heading(record: Mapping[str, Any]) -> str:
    from saddle_jax.training.sweep import name_of

    parts = [name_of(record["run"]), "" if record["whose"] == "consensus" else f"agent {record['whose']}"]
    return ", ".join([*filter(None, parts), f"epoch {record['epoch']:g}"])


def _text(value: Any, percent: bool) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if value is None:
        return "-"
    return f"{100 * value:.2f} %" if percent else f"{value:.4g}"


def _options() -> flags.FlagValues:
    from saddle_jax.training.measuring import MEASURES

    options = model_options()
    meaning = (
        "Metrics, with commas between them: of the run's objective, such as loss or train_loss; "
        f"{', '.join(MEASURES)}; or your own (params, batch) -> number as FILE.py:NAME."
    )
    flags.DEFINE_string("metrics", None, meaning, flag_values=options)
    meaning = "Epochs with a checkpoint, or all (default: the newest)."
    flags.DEFINE_list("epochs", [], meaning, flag_values=options)
    flags.DEFINE_bool("json", False, "Print JSON.", flag_values=options)
    return options
