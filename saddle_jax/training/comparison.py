"""The runs of a comparison: which folder and which settings each cell of the grid has."""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import optax

from saddle_jax.base import brought
from saddle_jax.base.brought import BroughtError
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError
from saddle_jax.graphs import files
from saddle_jax.runs import source_files
from saddle_jax.runs.run_name import safe
from saddle_jax.settings import consistency
from saddle_jax.settings.config import Config, build_topology
from saddle_jax.training import methods
from saddle_jax.training.grid import Grid, number
from saddle_jax.training.memory import fits
from saddle_jax.training.program import build
from saddle_jax.training.swept import small_models


class Runs(NamedTuple):
    """The runs of a grid by their folders, and what is to be said before they start."""

    runs: dict[pathlib.Path, Config]
    notes: list[str]  # which settings a method does without
    refused: list[str]  # what cannot be run, and why


class _Group(NamedTuple):
    """The runs of one method on one graph and so on, before seeds: the beginning of their folders' names."""

    name: str
    config: Config


def runs_of(settings: Mapping[str, Any], grid: Grid, folder: pathlib.Path, *, together: bool) -> Runs:
    """Lists the runs of a grid by their folders.

    Runs whose folders exist keep them. With `together`, the other seeds of a cell share a program and a
    folder, where memory suffices, and so do the shares of lost messages, which a program can sweep.

    Args:
      settings: those of all runs, which need not have a meaning for each method.
      grid: what is varied.
      folder: of the comparison.
      together: whether several runs may be one program.

    Raises:
      ArgumentError: something brought, such as a method in a file that is not there, is in no run.
    """
    joint: dict[pathlib.Path, Config] = {}
    single: dict[str, dict[pathlib.Path, Config]] = {seed: {} for seed in grid.seeds}  # a table fills evenly
    found = Runs({}, [], [])
    groups = list(_groups(settings, grid, folder, together, found))
    _check_brought(settings, grid, groups)
    for group in groups:
        joint_runs, remaining = _joint_runs(group.config, folder, group.name, grid.seeds, together)
        joint |= joint_runs
        for seed in remaining:
            config = dataclasses.replace(group.config, seed=int(seed))
            single[seed][folder / f"{group.name}-seed{seed}"] = config
    return found._replace(
        runs=joint | {path: config for runs in single.values() for path, config in runs.items()}
    )


def _groups(
    settings: Mapping[str, Any], grid: Grid, folder: pathlib.Path, together: bool, found: Runs
) -> Iterator[_Group]:
    """Yields all that differs in more than the seed; adds to the notes and to what is refused."""
    settings = {**settings, "compressor": "none"}  # which the grid says
    own = {method: own_settings(settings, method, found) for method in grid.methods}
    for place in grid.without_drops():
        values = {**own[place["method"]], **place}
        name = "-".join(safe(str(source_files.short(setting, value))) for setting, value in place.items())
        many = _swept(values, name, grid, folder, together)
        drops = [drop for drop in grid.drops if not (many and drop)]
        changes = [(f"-drop{number(drop)}", {"drop": drop}) for drop in drops] if grid.drops else [("", {})]
        for ending, change in changes:
            group = _group(name + ending, {**values, **change}, found)
            if group:
                yield group
        if many:
            yield many


def _check_brought(settings: Mapping[str, Any], grid: Grid, groups: Sequence[_Group]) -> None:
    """Checks that all that is brought can be used, as reading the grid has checked the names of ours."""
    used = {getattr(group.config, setting) for group in groups for setting in grid.axes}
    for place in grid.without_drops():
        if any(text not in used and _is_brought(text) for text in place.values()):
            own = own_settings({**settings, "compressor": "none"}, place["method"], Runs({}, [], []))
            checked({**own, **place})  # raises what there is to say


def _is_brought(text: str) -> bool:
    return brought.is_brought(text) or files.is_file(text)


def own_settings(settings: Mapping[str, Any], method: str, found: Runs) -> dict[str, Any]:
    """Returns the settings without those that mean nothing to a method; notes which these are."""
    without = consistency.settings_without_meaning(method, settings, Config().to_json())
    if without:
        found.notes.append(f"{method} has no {', '.join(without)}, or sets it itself: left at its default")
    return {**settings, **without}


def _group(name: str, values: Mapping[str, Any], found: Runs) -> _Group | None:
    try:
        return _Group(name, checked(values))
    except BroughtError:  # it would be told again and again
        raise
    except ArgumentError as error:
        found.refused.append(f"{name}: {error}")
        return None


def checked(values: Mapping[str, Any]) -> Config:
    """Makes the settings of a run; an ArgumentError tells why there can be no such run.

    A method may refuse its graph, and its step what goes wrong on the network. A trace of the step, which
    computes nothing, finds that before any data is loaded and once for all seeds.
    """
    config = Config(**values)
    for each in config.each()[-1:]:
        method = methods.build(each, build_topology(each), optax.constant_schedule(each.learning_rate))
        jax.eval_shape(method.init, small_models(each.agents))
    return config


def _swept(
    values: Mapping[str, Any], name: str, grid: Grid, folder: pathlib.Path, together: bool
) -> _Group | None:
    """Returns the settings that sweep over all shares of lost messages but zero, if one program can."""
    drops = [number(drop) for drop in grid.drops if drop]
    if len(drops) < 2 or values["sweep"]:
        return None
    name_of_all = f"{name}-drops{','.join(drops)}"
    exists = any(folder.glob(f"{name_of_all}-seed*/config.json"))
    apart = any(any(folder.glob(f"{name}-drop{drop}-seed*/config.json")) for drop in drops)
    if not exists and (apart or not together):
        return None
    try:
        config = checked({**values, "sweep": f"drop:{','.join(drops)}"})
    except BroughtError:
        raise
    except ArgumentError:  # each drop by itself will tell
        return None
    return _Group(name_of_all, config) if exists or _fit(config) else None


def _joint_runs(
    config: Config, folder: pathlib.Path, name: str, seeds: Sequence[str], together: bool
) -> tuple[dict[pathlib.Path, Config], list[str]]:
    """Lists the runs of several seeds each, and returns them with the seeds that they do not cover."""
    joint: dict[pathlib.Path, Config] = {}
    remaining = list(seeds)
    for path in sorted(folder.glob(f"{name}-seeds*/config.json")):
        recorded = path.parent.name.removeprefix(f"{name}-seeds").split(",")
        if set(recorded) <= set(remaining):
            joint[path.parent] = dataclasses.replace(config, seeds=",".join(recorded))
            remaining = [seed for seed in remaining if seed not in recorded]
    new = [seed for seed in remaining if not (folder / f"{name}-seed{seed}" / "config.json").exists()]
    if together and len(new) > 1 and _fit_together(config, ",".join(new)):
        joint[folder / f"{name}-seeds{','.join(new)}"] = dataclasses.replace(config, seeds=",".join(new))
        remaining = [seed for seed in remaining if seed not in new]
    return joint, remaining


def _fit_together(config: Config, seeds: str) -> bool:
    """Tells whether these seeds can be one program, and whether memory suffices for it."""
    try:
        return _fit(dataclasses.replace(config, seeds=seeds))
    except ValueError:  # random graphs
        return False


def _fit(config: Config) -> bool:
    try:
        return fits(build(config))
    except (ValueError, RunError, OSError):  # unequal epochs; or the run itself will say it
        return False
