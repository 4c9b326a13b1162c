"""Opening somebody's run again: its parts from config.json, its models from a checkpoint."""

import dataclasses
import os
import pathlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import DamagedError, RunError
from saddle_jax.base.types import Params
from saddle_jax.core.trees import consensus
from saddle_jax.data.prepared import data_dir_or_default
from saddle_jax.data.sources import at_place, is_builtin, place_of
from saddle_jax.data.user_data import is_path
from saddle_jax.models import without_weights
from saddle_jax.runs.checkpoints import Checkpoints
from saddle_jax.runs.run_folder import is_locked, read_config
from saddle_jax.runs.source_files import source_refs, verified
from saddle_jax.settings import network
from saddle_jax.settings.settings import Settings
from saddle_jax.training import program
from saddle_jax.training.build import Trial
from saddle_jax.training.progress import Screen


def open_run(
    workdir: pathlib.Path,
    report: Callable[[str], None],
    data_dir: str | None = None,
    trial: int | None = None,
    code: Sequence[str] = (),
) -> tuple[Trial, int, Params]:
    """Returns the parts of a run, the step of its newest whole checkpoint, and all agents' models [A, ...].

    `report` is called with checkpoints that had to be passed over. `data_dir` says where the data lies
    here; without it only TFDS_DATA_DIR or its default is read, whatever config.json says. `trial` is the
    number of one run of a folder that holds several. `code` names the files FILE.py and modules of the
    user's own that the run was trained with and that may be imported.
    """
    _choose_trial(workdir, trial)  # before anything is built
    return open_program(workdir, program.build(_here(workdir, data_dir, code)), report, trial)


def open_program(
    workdir: pathlib.Path,
    whole: program.Program,
    report: Callable[[str], None],
    trial: int | None = None,
) -> tuple[Trial, int, Params]:
    """Does the same for a program that is built already, on one device."""
    number = _choose_trial(workdir, trial)
    step, carry = _newest(workdir, whole, report)
    return whole.trials[number], step, whole.models(whole.loaded(carry), number)


def _here(workdir: pathlib.Path, data_dir: str | None, code: Sequence[str]) -> Settings:
    """Returns the settings of a run, on one device, with data and code that this user, not the folder, says.

    The folder may be somebody else's, and its config.json could lead to any other place.
    """
    config = verified(workdir, read_config(workdir), code)
    if called := [f"{each.setting} {each.short}" for each in source_refs(config) if not each.is_data]:
        Screen().warn(f"{workdir} calls {', '.join(called)}, as --code allows")
    config = dataclasses.replace(
        config,
        devices="1",
        model=without_weights(config.model),
        timing=network.without_files(config.timing),
    )
    if (recorded := place_of(config.dataset)) is not None:
        dataset = at_place(config.dataset, _path_here(workdir, recorded, data_dir))
        return dataclasses.replace(config, dataset=dataset, data_dir="")
    default = os.path.realpath(data_dir_or_default(None))
    recorded = "" if is_builtin(config.dataset) else config.data_dir
    if recorded and not data_dir and os.path.realpath(data_dir_or_default(recorded)) != default:
        raise RunError(
            f"{workdir} was trained on data in {recorded!r}, which is read only when you say so: "
            f"add {shlex.quote('--data_dir=' + recorded) if recorded.isprintable() else '--data_dir=DIR'}"
        )
    return dataclasses.replace(config, data_dir=data_dir or "")


def _path_here(workdir: pathlib.Path, recorded: str, data_dir: str | None) -> str:
    """Returns the file or folder of a run's data: the user says where it is, or that it may be read."""
    if data_dir is None or pathlib.PurePath(data_dir).name != pathlib.PurePath(recorded).name:
        hint = shlex.quote(f"--data_dir={recorded}") if recorded.isprintable() else "--data_dir=PATH"
        raise RunError(
            f"{workdir} was trained on {recorded!r}, which is read only when you say so: add {hint}"
        )
    return data_dir if is_path(data_dir) else f"./{data_dir}"


def _choose_trial(workdir: pathlib.Path, trial: int | None) -> int:
    """Returns the number of the run that is meant; a single one is number 0."""
    config = read_config(workdir)
    count = len(config.each())
    if trial is None and config.has_trials:
        raise RunError(f"{workdir} holds {count} runs: --trial=0 to {count - 1} chooses one of them")
    if not 0 <= (trial or 0) < count:
        raise RunError(f"trial must be 0 to {count - 1} in {workdir}, got {trial}")
    return trial or 0


def stages(workdir: pathlib.Path, trial: Trial) -> dict[int, float]:
    """Returns the steps of which a run has a checkpoint, in order, and the epoch of each."""
    steps = Checkpoints(workdir, trial.config.keep_checkpoints).steps()
    if not steps:
        raise RunError(f"{workdir} has no whole checkpoint: train it first")
    return {step: step / trial.batches.steps_per_epoch for step in steps}


def steps_at(epochs: Sequence[str], workdir: pathlib.Path, trial: Trial) -> list[int]:
    """Returns the steps of the checkpoints at these epochs."""
    saved_at = stages(workdir, trial)
    if epochs == ["all"]:
        return list(saved_at)
    steps = []
    for text in epochs:
        try:
            step = round(float(text) * trial.batches.steps_per_epoch)
        except (ValueError, OverflowError) as error:
            raise ArgumentError(f"epochs must be all or numbers, got {','.join(epochs)}") from error
        if step not in saved_at:
            saved = ", ".join(f"{epoch:.6g}" for epoch in saved_at.values())
            raise ArgumentError(
                f"epochs must be among those with a checkpoint in {workdir}, {saved}, got {text}"
            )
        steps.append(step)
    if not steps:
        raise ArgumentError("epochs must be all or numbers, got nothing")
    return list(dict.fromkeys(steps))


def open_whole(
    workdir: pathlib.Path, data_dir: str | None, trial: int | None, code: Sequence[str]
) -> program.Program:
    """Returns the program of a folder's run or runs, on one device; the arguments are as of `open_run`."""
    if trial is not None:
        _choose_trial(workdir, trial)
    return program.build(_here(workdir, data_dir, code))


def stages_of(
    workdir: pathlib.Path, whole: program.Program, epochs: Sequence[str], report: Callable[[str], None]
) -> Iterator[tuple[int, Callable[[int], Params]]]:
    """Yields the steps of checkpoints, with a function that gives all agents' models [A, ...] of a trial.

    Without epochs it is the newest whole checkpoint alone; `report` is called with those that it passes over.
    """
    kept = _checkpoints(workdir, whole)

    def models(tree: Any) -> Callable[[int], Params]:
        carry = whole.loaded(tree)
        return lambda number: whole.models(carry, number)

    for step in steps_at(epochs, workdir, whole.trial) if epochs else ():
        yield step, models(kept.restore(step, whole.saved_like))
    if not epochs:
        step, tree = _newest(workdir, whole, report)
        yield step, models(tree)


def open_models(workdir: pathlib.Path, whole: program.Program, step: int, number: int) -> Params:
    """Returns all agents' models [A, ...] of one run of a folder, at the checkpoint of one step."""
    carry = whole.loaded(_checkpoints(workdir, whole).restore(step, whole.saved_like))
    return whole.models(carry, number)


def _newest(workdir: pathlib.Path, whole: program.Program, report: Callable[[str], None]) -> tuple[int, Any]:
    """Returns the step and the tree of the newest whole checkpoint."""
    kept = _checkpoints(workdir, whole)
    restored = kept.read_newest(whole.saved_like, report)
    if restored is None:
        remedy = "wait for its first" if is_locked(workdir) else "train it first"
        kind = DamagedError if kept.steps() else RunError
        raise kind(f"{workdir} has no whole checkpoint: {remedy}")
    return restored[0], restored[1]


def _checkpoints(workdir: pathlib.Path, whole: program.Program) -> Checkpoints:
    return Checkpoints(workdir, whole.config.keep_checkpoints, agent_axis=whole.agent_axis)


def choose(params: Params, agent: int | None) -> Params:
    """Returns the consensus model, or one agent's own."""
    if agent is None:
        return consensus(params)
    size = jax.tree.leaves(params)[0].shape[0]
    if not 0 <= agent < size:
        raise ArgumentError(f"agent must be 0 to {size - 1}, got {agent}")
    return jax.tree.map(lambda x: x[agent], params)
