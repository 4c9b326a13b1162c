"""More seeds for a finished run: they are trained beside it, and then joined with it.

    seeds3,4/    the run of the new seeds, in the run's folder; the same command goes on with it
    .joined/     the files of all seeds together, complete; they then take the places of the run's own

A process that dies in between leaves what the same command goes on with.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base.errors import RunError
from saddle_jax.core.comm_cost import table
from saddle_jax.devices import hosts
from saddle_jax.runs import source_files
from saddle_jax.runs.checkpoints import Checkpoints
from saddle_jax.runs.metrics import read_metrics
from saddle_jax.runs.run_folder import Metrics, claim, locked, read_about, read_config, write_json
from saddle_jax.runs.run_name import differing
from saddle_jax.runs.schema import read_result
from saddle_jax.settings import sweep
from saddle_jax.settings.config import IRRELEVANT, Config
from saddle_jax.training import describe, evaluation
from saddle_jax.training.build import Parts, of_settings
from saddle_jax.training.program import Program, build

_JOINED = ".joined"
_MOVED = ("checkpoints", "tensorboard", "metrics.jsonl", "result.json", "config.json")
_OF_ALL = ("steps", "seconds", "ready_seconds", "profile")  # what result.json says of a program


class _Half(NamedTuple):
    """One of the two runs that are joined."""

    workdir: pathlib.Path
    program: Program
    result: dict[str, Any]


def missing(workdir: pathlib.Path, config: Config) -> Config | None:
    """Returns the settings of the seeds that a finished run lacks; None if it is no run with fewer seeds.

    What a process has left that died while it joined seeds is ended first.

    Raises:
      RunError: it has fewer seeds, and they have not finished.
    """
    if hosts.writes() and (workdir / _JOINED).is_dir():
        with locked(workdir):
            _move(workdir)
    if not config.seeds or not (workdir / "config.json").exists():
        return None
    before = read_config(workdir)
    if not differing(before, config) or not {*differing(before, config)} <= {"seed", "seeds"}:
        return None
    had, wanted = _seeds(before), _seeds(config)
    if not {*had} < {*wanted}:
        return None
    result = read_result(workdir)
    if result is None or result["status"] != "finished":
        state = "unfinished" if result is None else result["status"]
        raise RunError(
            f"{workdir} can have more seeds when those that it has are finished, and it is {state}: "
            f"its seeds are {','.join(map(str, had))}"
        )
    if jax.process_count() > 1:
        raise RunError(f"{workdir} can have more seeds in one process only, got {jax.process_count()}")
    return dataclasses.replace(config, seeds=",".join(str(seed) for seed in wanted if seed not in had))


def folder_of(workdir: pathlib.Path, lacking: Config) -> pathlib.Path:
    """Returns the folder in which the seeds that a run lacks are trained."""
    return workdir / f"seeds{lacking.seeds}"


def join(workdir: pathlib.Path, lacking: Config, config: Config, parts: Parts | None) -> None:
    """Joins a run with that of the seeds that it lacked; from here on it is the run of all of them."""
    beside = folder_of(workdir, lacking)
    with locked(workdir):
        shared = of_settings(config) if parts is None else parts
        halves = [
            _half(workdir, read_config(workdir), shared),
            _half(beside, lacking, shared),
        ]
        claim(
            workdir,
            halves[0].program.config,
            describe.record(halves[0].program),
            source_files.collect(config),
        )
        partial = workdir / f"{_JOINED}-partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        _write(partial, halves, build(config, shared))
        partial.rename(workdir / _JOINED)
        _move(workdir)
    shutil.rmtree(beside, ignore_errors=True)


def _half(workdir: pathlib.Path, config: Config, shared: Parts) -> _Half:
    result = read_result(workdir)
    if result is None or result["status"] != "finished":
        state = "unfinished" if result is None else result["status"]
        raise RunError(f"{workdir} must be finished to be joined with other seeds, and it is {state}")
    return _Half(workdir, build(config, shared), result)


def _write(partial: pathlib.Path, halves: Sequence[_Half], program: Program) -> None:
    """Writes the files of all seeds into an empty folder."""
    first, config = halves[0], program.config
    known = {_key(each): (half, k) for half in halves for k, each in enumerate(half.program.config.each())}
    places = [known[_key(each)] for each in config.each()]
    seconds = {
        name: sum(half.result.get(name, 0.0) for half in halves) for name in ("seconds", "ready_seconds")
    }
    before = read_about(first.workdir)
    had = {"seeds": ",".join(map(str, _seeds(first.program.config)))}
    history = [*before.get("continued", []), {"from": had, "at_step": first.result["steps"]}]
    content = {**before, "config": config.to_json(), **describe.record(program), "continued": history}
    write_json(partial / "config.json", content)  # first: checkpoints say whose they are
    _write_checkpoints(partial, halves, places, program, seconds)
    metrics = Metrics(partial, resume_at=0, last_step=-1)
    with contextlib.closing(metrics):
        for record in _lines(halves, places):
            metrics.write(record)
    steps = first.result["steps"]
    ends = [_end(half, k) for half, k in places]
    summary = evaluation.summary(config, ends, program.trial.objective.metrics)
    result = {"steps": steps, **table(program.comm_cost, steps), **summary, **seconds}
    write_json(partial / "result.json", result)


def _write_checkpoints(
    partial: pathlib.Path,
    halves: Sequence[_Half],
    places: Sequence[tuple[_Half, int]],
    program: Program,
    notes: dict[str, Any],
) -> None:
    stored = [Checkpoints(half.workdir, 1, agent_axis=half.program.agent_axis) for half in halves]
    steps = sorted(set(stored[0].steps()) & set(stored[1].steps()))
    if halves[0].result["steps"] not in steps:
        raise RunError(
            f"{halves[0].workdir} and its new seeds have no checkpoint of their last step in common"
        )
    counts = [len(half.program.trials) for half in halves]
    rows = jnp.array([k + (counts[0] if half is halves[1] else 0) for half, k in places])

    def joined(*leaves: Any) -> Any:
        stacked = [leaf[None] if count == 1 else leaf for leaf, count in zip(leaves, counts, strict=True)]
        return jnp.concatenate(stacked)[rows]

    written = Checkpoints(partial, len(steps), agent_axis=program.agent_axis)
    for step in steps:
        trees = [
            each.restore(step, half.program.saved_like) for each, half in zip(stored, halves, strict=True)
        ]
        written.save(step, jax.tree.map(joined, *trees), notes)


def _lines(halves: Sequence[_Half], places: Sequence[tuple[_Half, int]]) -> list[dict[str, Any]]:
    """Returns the lines of metrics.jsonl of all seeds; both halves logged the same things after a step."""
    logged = [read_metrics(half.workdir) for half in halves]
    if [record["step"] for record in logged[0]] != [record["step"] for record in logged[1]]:
        raise RunError(
            f"{halves[0].workdir} and its new seeds did not log the same steps: they cannot be joined"
        )
    lines = []
    for records in zip(*logged, strict=True):
        each = [sweep.of_trial(records[half is halves[1]], k) for half, k in places]
        own = [{name: value for name, value in one.items() if name not in ("step", "epoch")} for one in each]
        own = [{name: value for name, value in one.items() if value is not None} for one in own]
        lines.append({name: records[0][name] for name in ("step", "epoch")} | sweep.in_one_line(own))
    return lines


def _end(half: _Half, number: int) -> dict[str, Any]:
    """Returns how one run ended, as `evaluation.ending` says it."""
    if "trials" not in half.result:
        return {name: value for name, value in half.result.items() if name not in _OF_ALL}
    config = half.program.config
    setting = sweep.settings_of(config.seeds, config.sweep)[number]
    return {name: value for name, value in half.result["trials"][number].items() if name not in setting}


def _move(workdir: pathlib.Path) -> None:
    """Puts the joined files in their places; those that are there already have been put."""
    for name in _MOVED:
        source, target = workdir / _JOINED / name, workdir / name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        if source.exists():
            os.replace(source, target)
    shutil.rmtree(workdir / _JOINED, ignore_errors=True)


def _seeds(config: Config) -> list[int]:
    return sweep.parse_seeds(config.seeds) or [config.seed]


def _key(config: Config) -> str:
    return json.dumps({name: value for name, value in config.to_json().items() if name not in IRRELEVANT})
