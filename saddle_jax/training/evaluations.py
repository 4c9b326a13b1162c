"""New metrics of old runs: which models they are asked of, and evaluation.json, which keeps them."""

import json
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from saddle_jax.base.reading import damaged, read_object
from saddle_jax.runs.run_folder import write_json
from saddle_jax.settings.sweep import settings_of
from saddle_jax.training import reopen
from saddle_jax.training.measuring import Look, Measure, measures_of
from saddle_jax.training.program import Program

FILE = "evaluation.json"
_KEY = ("run", "whose", "step")  # what tells evaluations apart


def evaluate(
    workdir: pathlib.Path,
    whole: Program,
    names: Sequence[str],
    epochs: Sequence[str],
    report: Callable[[str], None],
    replica: int | None = None,
    agent: int | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Measure]]:
    """Computes metrics of a run's models, or of all runs' in a folder, and writes them to evaluation.json.

    Args:
      workdir: the folder.
      whole: its program, on one device.
      names: of the metrics, see `measuring.MEASURES`; none takes those of the objective.
      epochs: ["all"] or some of those with a checkpoint; none takes the newest checkpoint.
      report: is told of checkpoints that had to be passed over.
      replica: the number of one run of a folder that holds several; None takes all of them.
      agent: whose model; None takes the consensus model.

    Returns:
      One record for each model: its run, whose it is, step, epoch and metrics; and how each is measured.
    """
    first = whole.replica
    chosen = names or [metric.name for metric in first.objective.metrics]
    measures = measures_of(first, chosen)
    numbers = range(len(whole.replicas)) if replica is None else [replica]
    own = settings_of(whole.config.seeds, whole.config.sweep)
    records = []
    for step, models in reopen.stages_of(workdir, whole, epochs, report):
        for number in numbers:
            look = Look(whole.replicas[number], models(number), agent)
            found = {name: _plain(measure.function(look)) for name, measure in measures.items()}
            about = {"run": own[number], "whose": "consensus" if agent is None else agent, "step": step}
            epoch = step / first.batches.steps_per_epoch
            records.append({**about, "epoch": epoch, "metrics": found})
    _write(workdir, records)
    return records, measures


def read(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the evaluations that a folder keeps; there may be none."""
    path = workdir / FILE
    content = read_object(path)
    if content is None:
        return []
    kept = content.get("evaluations")
    if not isinstance(kept, list) or not all(_is_sound(each) for each in kept):
        raise damaged(path, "it has no evaluations", "remove it to write a new one")
    return kept


def _is_sound(record: Any) -> bool:
    return (
        isinstance(record, dict) and {*_KEY, "metrics"} <= set(record) and isinstance(record["metrics"], dict)
    )


def _write(workdir: pathlib.Path, records: Sequence[dict[str, Any]]) -> None:
    """Adds records to those that the folder keeps; a metric that is there already is replaced."""
    kept = {_key(record): record for record in read(workdir)}
    for record in records:
        before = kept.get(_key(record), {"metrics": {}})
        kept[_key(record)] = {**record, "metrics": {**before["metrics"], **record["metrics"]}}
    write_json(workdir / FILE, {"evaluations": list(kept.values())})


def _key(record: dict[str, Any]) -> str:
    return json.dumps([record[name] for name in _KEY], sort_keys=True)


def _plain(value: Any) -> Any:
    """Returns numbers as JSON has them: what is not finite becomes null."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if math.isfinite(value) else None
