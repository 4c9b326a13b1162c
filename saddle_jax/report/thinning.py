"""Runs as small open files that can be kept beside a text: settings, results, and metrics in means.

A run's folder has checkpoints of megabytes and a line for every few steps. What tables and most pictures
need is little: config.json, result.json, paper.json and sharpness.json as they are, and metrics.jsonl with
one line in place of several.
"""

import json
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from saddle_jax.base.errors import RunError
from saddle_jax.base.files import in_one_go
from saddle_jax.base.reading import read_object
from saddle_jax.runs.metrics import FILE, Record, read_metrics
from saddle_jax.runs.run_folder import all_ended, check_same, read_about, read_config

_COPIED = ("result.json", "paper.json", "sharpness.json")
_DIGITS = 6  # that are kept of a number, all that pictures and tables can show
# Where a run had come to at the last of some lines: these are not averaged.
_PLACES = ("step", "epoch", "learning_rate", "simulated_seconds")
_COUNTS = "bytes_sent_per_agent"
_LISTS = "_by_layer"  # as long as a network is deep: left out


def thin(workdir: pathlib.Path, folder: pathlib.Path, every: int) -> pathlib.Path:
    """Writes the small files of a run that has ended into a folder of its name below another; returns it.

    Means are of `every` logged lines each; evaluations are kept one by one. A copy that is there already is
    replaced. config.json says how many lines became one, and no longer where the data lay.

    Raises:
      RunError: the run has not ended, the copy would replace it, or another run's copy is there.
    """
    all_ended([workdir])
    copy = folder / workdir.resolve().name
    if copy.resolve() == workdir.resolve():
        raise RunError(f"output must be another folder than that of the run, got {folder}")
    if (copy / "config.json").exists():
        check_same(copy, read_config(workdir))
    copy.mkdir(parents=True, exist_ok=True)
    about = read_about(workdir)
    settings, data = {**about["config"], "data_dir": ""}, about["dataset"]
    told = {"config": settings, "dataset": {**data, "source": _placeless(data["source"])}}
    _write(copy / "config.json", [{**about, **told, "thinned": every}])
    for name in _COPIED:
        content = read_object(workdir / name)
        if content is None:
            (copy / name).unlink(missing_ok=True)  # of the copy before: it is not this run's
        else:
            _write(copy / name, [content])
    _write(copy / FILE, means(read_metrics(workdir), every))
    return copy


def _placeless(source: str) -> str:
    """Returns what data is from without the place where it lay: of DIR/cifar10/3.0.2 the last two names."""
    path = pathlib.PurePath(source)
    return "/".join(path.parts[-2:]) if path.is_absolute() else source


def means(records: Sequence[Record], every: int) -> list[Record]:
    """Returns one line for each `every` lines of training, evaluations between them where they stood."""
    training = [record for record in records if "train_loss" in record]
    found = [_mean(training[start : start + every]) for start in range(0, len(training), every)]
    found += [_short(record) for record in records if "train_loss" not in record]
    return sorted(found, key=lambda record: (record["step"], "train_loss" not in record))


def _mean(records: Sequence[Record]) -> Record:
    last = records[-1]
    names = [name for name in last if _LISTS not in name]
    return {
        name: _short_value(last[name] if _is_place(name) else _averaged([r.get(name) for r in records]))
        for name in names
    }


def _is_place(name: str) -> bool:
    return name.removesuffix("_by_replica") in _PLACES or _COUNTS in name


def _averaged(values: Sequence[Any]) -> Any:
    """Returns the mean, of lists number by number; None if one is missing: a mean must not hide it."""
    if any(value is None for value in values):
        return None
    if isinstance(values[0], list):
        return [_averaged(numbers) for numbers in zip(*values, strict=True)]
    return statistics.fmean(values)


def _short(record: Record) -> Record:
    return {name: _short_value(value) for name, value in record.items() if _LISTS not in name}


def _short_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_short_value(one) for one in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _write(path: pathlib.Path, objects: Sequence[Any]) -> None:
    with in_one_go(path) as partial:
        partial.write_text("".join(json.dumps(one, allow_nan=False) + "\n" for one in objects))
