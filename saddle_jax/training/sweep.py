"""The runs of a sweep or a comparison: their settings and folders, and which of them share a program.

Numbers that a compiled step can take as arguments (see `build.is_argument`) are runs of one program. All the
rest, whole numbers and choices such as methods and graphs, are runs with a folder of their own.
"""

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import optax

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError
from saddle_jax.base.registry import parse, split
from saddle_jax.base.user_code import UserCodeError
from saddle_jax.runs import source_files
from saddle_jax.runs.run_name import safe
from saddle_jax.settings.settings import (
    IRRELEVANT,
    Settings,
    build_topology,
    check_setting,
    is_whole,
    lacks,
    unknown_name,
)
from saddle_jax.settings.sweep import SPEC_SETTINGS, in_settings, option_value, own_option, parse_axes
from saddle_jax.training.build import build_method, is_one_program, small_models
from saddle_jax.training.memory import fits
from saddle_jax.training.program import build

Axes = Mapping[str, Sequence[Any]]  # values of settings, or of options such as "method.rho", by name


class Runs(NamedTuple):
    """Runs by their folders, and what is to be said before they start."""

    runs: dict[pathlib.Path, Settings]
    notes: list[str]  # which options a method does not have
    refused: list[str]  # what cannot be run, and why


_FIELDS = Settings.__dataclass_fields__
_TRUTHS = {"true": True, "false": False}


def read_axes(text: str) -> dict[str, list[Any]]:
    """Reads "method=qgm,gut(mu=0.5) method.rho=0,0.1 batch_size=16,32"; each value is checked by itself."""
    return {name: _values(name, texts) for name, texts in parse_axes(text).items()}


def product(axes: Axes) -> list[dict[str, Any]]:
    """Lists all combinations, the last axis varying fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def runs_of_sweep(
    settings: Settings,
    axes: Axes,
    folder: pathlib.Path,
    *,
    fixed: Mapping[str, Any] | None = None,
    single_program: bool = True,
    below: bool = False,
) -> Runs:
    """Lists the runs of all combinations by their folders: `folder` itself if all are one program.

    Args:
      settings: those of all runs.
      axes: what is varied; a method without a varied option is run once, without it.
      folder: of the sweep.
      fixed: options such as "method.rho" of what is varied, for those that have them.
      single_program: whether numbers that a step can take as arguments are runs of one program.
      below: whether all runs have folders below `folder`.

    Raises:
      ArgumentError: there can be no run, or the user's own code cannot be used in any.
    """
    if not axes:
        return Runs({folder: settings}, [], [])
    # What is named, and seeds of random graphs, before the numbers and options of what is named.
    choices = {name: values for name, values in axes.items() if name in _FIELDS and not _is_float(name)}
    numbers, fixed = {name: values for name, values in axes.items() if name not in choices}, fixed or {}
    found, had = Runs({}, [], []), set(choices)
    for place in product(choices):
        try:
            bare = _changed(settings, place)
            lacking = [name for name in (*fixed, *numbers) if lacks(bare, name)]
            if lacking and not place:  # nor can another method have it
                raise unknown_name(bare, lacking[0])
            bare = _changed(bare, {name: value for name, value in fixed.items() if name not in lacking})
            own = {name: values for name, values in numbers.items() if name not in lacking}
            together = _shared(bare, own) if single_program else {}
            apart = {name: values for name, values in own.items() if name not in together}
        except ArgumentError as error:
            _refuse(found, _name(axes, place), place, error)
            continue
        for combination in product(apart):
            here = {**place, **combination}
            path = folder / _name(axes, here, together) if below or here else folder
            try:
                _add(found, path, _changed(bare, combination), together)
            except ArgumentError as error:
                _refuse(found, path.name, here, error)
        had |= {*fixed, *numbers} - {*lacking}
        if lacking and place:
            whose = ", ".join(map(str, place.values()))
            found.notes.extend(f"{whose} has no {name}: run without it" for name in lacking)
    if found.runs and (missing := [name for name in (*fixed, *numbers) if name not in had]):
        raise unknown_name(settings, missing[0])
    return found


def over_seeds(found: Runs, seeds: Sequence[int], *, single_program: bool) -> Runs:
    """Lists the runs of a comparison with each of the seeds.

    Runs whose folders exist keep them. With `single_program`, the other seeds of a run share a program and a
    folder, where memory suffices.
    """
    joint: dict[pathlib.Path, Settings] = {}
    single: dict[int, dict[pathlib.Path, Settings]] = {seed: {} for seed in seeds}  # a table fills evenly
    for path, config in found.runs.items():
        joint_runs, remaining = _joint_runs(config, path.parent, path.name, seeds, single_program)
        joint |= joint_runs
        for seed in remaining:
            single[seed][path.with_name(f"{path.name}-seed{seed}")] = dataclasses.replace(config, seed=seed)
    return found._replace(
        runs=joint | {path: config for runs in single.values() for path, config in runs.items()}
    )


def checked(config: Settings) -> Settings:
    """Returns the settings of a run; an ArgumentError tells why there can be no such run.

    A method may refuse its graph, and its step what goes wrong on the network. A trace of the step, which
    computes nothing, finds that before any data is loaded and once for all seeds.
    """
    for each in config.each()[-1:]:
        method = build_method(each, build_topology(each), optax.constant_schedule(each.learning_rate))
        jax.eval_shape(method.init, small_models(each.agents))
    return config


def _is_users(value: Any) -> bool:
    """Returns whether a value names a user's code or file."""
    return isinstance(value, str) and any(
        each.is_code or each.is_path for each in parse("text", value).walk()
    )


def _changed(settings: Settings, place: Mapping[str, Any]) -> Settings:
    return dataclasses.replace(settings, **in_settings(vars(settings), place)) if place else settings


def _joint_runs(
    config: Settings, folder: pathlib.Path, name: str, seeds: Sequence[int], single_program: bool
) -> tuple[dict[pathlib.Path, Settings], list[int]]:
    """Lists the runs of several seeds each, and returns them with the seeds that they do not cover."""
    joint: dict[pathlib.Path, Settings] = {}
    remaining = list(seeds)
    for path in sorted(folder.glob(f"{name}-seeds*/config.json")):
        recorded = list(map(int, path.parent.name.removeprefix(f"{name}-seeds").split(",")))
        if set(recorded) <= set(remaining):
            joint[path.parent] = dataclasses.replace(config, seeds=_listed(recorded))
            remaining = [seed for seed in remaining if seed not in recorded]
    new = [seed for seed in remaining if not (folder / f"{name}-seed{seed}" / "config.json").exists()]
    if single_program and len(new) > 1 and _fit_together(config, _listed(new)):
        joint[folder / f"{name}-seeds{_listed(new)}"] = dataclasses.replace(config, seeds=_listed(new))
        remaining = [seed for seed in remaining if seed not in new]
    return joint, remaining


def _fit_together(config: Settings, seeds: str) -> bool:
    """Tells whether these seeds can be one program, and whether memory suffices for it."""
    try:
        return fits(build(dataclasses.replace(config, seeds=seeds)))
    except (ValueError, RunError, OSError):  # random graphs, unequal epochs; or the run itself will say it
        return False


def _listed(values: Sequence[Any]) -> str:
    return ",".join(map(_text, values))


def _values(name: str, text: str) -> list[Any]:
    """Returns what is listed for a setting or an option, each value checked."""
    texts = split(text)
    if name in ("seeds", "sweep", *IRRELEVANT):
        instead = "seed" if name == "seeds" else "what changes a number of a run"
        raise ArgumentError(f"sweep must name {instead}, got {name!r}")
    if name not in _FIELDS and not own_option(name):
        raise unknown_name(Settings(), name)
    values = [_value(name, each) if name in _FIELDS else option_value(each) for each in texts]
    for value in values:
        if values.count(value) > 1:
            raise ArgumentError(f"sweep of {name} must name each value once, got {text!r}")
    if not values:
        raise ArgumentError(f"sweep must list values of {name}, got {text!r}")
    return values


def _value(name: str, text: str) -> Any:
    kind = _FIELDS[name].type
    try:
        value = _TRUTHS[text.lower()] if kind is bool else kind(text)  # type: ignore[operator]
    except (KeyError, ValueError) as error:
        wanted = {bool: "true or false", int: "an integer", float: "a number"}[kind]  # type: ignore[index]
        raise ArgumentError(f"sweep: {name} must be {wanted}, got {text!r}") from error
    check_setting(name, value)
    return str(parse(name, str(value))) if name in SPEC_SETTINGS else value


def _shared(config: Settings, numbers: Axes) -> dict[str, Sequence[float]]:
    """Returns those of the numbers that one program can take as arguments."""
    floats = {name: values for name, values in numbers.items() if _are_floats(config, name, values)}
    base = _changed(config, {name: values[0] for name, values in numbers.items() if name not in floats})
    return {name: values for name, values in floats.items() if is_one_program(base, name, floats)}


def _are_floats(config: Settings, name: str, values: Sequence[Any]) -> bool:
    """Returns whether the values are numbers of what is a number and no whole one."""
    if (own := own_option(name)) and is_whole(getattr(config, own[0]), *own):
        return False
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _add(found: Runs, path: pathlib.Path, config: Settings, together: Mapping[str, Sequence[float]]) -> None:
    """Adds the run of some settings, whose program takes some numbers together."""
    if path in found.runs:  # settings that differ in letters which a folder's name cannot have
        path = path.with_name(f"{path.name}-{hashlib.sha256(repr(config).encode()).hexdigest()[:6]}")
    sweep = " ".join(f"{name}={_listed(values)}" for name, values in together.items())
    found.runs[path] = checked(dataclasses.replace(config, sweep=sweep))


def _refuse(found: Runs, name: str, place: Mapping[str, Any], error: ArgumentError) -> None:
    """Notes what cannot be run, unless it is all there is, or user code that would fail for every value."""
    if not place or isinstance(error, UserCodeError) or any(map(_is_users, place.values())):
        raise error
    found.refused.append(f"{name}: {error}")


def _name(axes: Axes, place: Mapping[str, Any], together: Axes | None = None) -> str:
    """Returns the folder's name of a run, with the values of its axes in their order."""
    shown = {name: _text(source_files.short(name, value)) for name, value in place.items()}
    shown |= {name: _listed(values) for name, values in (together or {}).items()}
    return "-".join(safe(f"{name}={shown[name]}") for name in axes if name in shown)


def _is_float(name: str) -> bool:
    return _FIELDS[name].type is float


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)
