"""The runs of a sweep over anything: which of them share a program and a folder, and which have their own.

Numbers that a compiled step can take as arguments (`swept.py` finds out which) are replicas of one program.
All the rest, whole numbers and choices such as methods and graphs, are runs with a folder of their own.
"""

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from saddle_jax.base import calls, tables
from saddle_jax.base.checks import ArgumentError, did_you_mean
from saddle_jax.data import make_partition
from saddle_jax.runs.run_name import safe
from saddle_jax.settings import consistency
from saddle_jax.settings.config import IRRELEVANT, Config, check_setting
from saddle_jax.settings.sweep import SPELT, in_settings, own_option, parse_axes
from saddle_jax.training.comparison import Runs, checked, own_settings
from saddle_jax.training.grid import split_graphs
from saddle_jax.training.swept import is_one_program, role

_FIELDS = Config.__dataclass_fields__
_TRUTHS = {"true": True, "false": False}


class _Divided(NamedTuple):
    """The numbers of one choice: those of one program, as `Config.sweep` writes them, and those apart."""

    together: list[str]
    apart: dict[str, Sequence[Any]]


def runs_of(settings: Mapping[str, Any], folder: pathlib.Path) -> Runs:
    """Lists the runs of a sweep by their folders: `folder` itself if all are one program, or those below.

    Args:
      settings: those of all runs, which need not have a meaning for each method. Their "sweep" says what is
        varied, such as "method:qgm,gut(mu=0.5) rho:0,0.1 batch_size:16,32", or nothing.
      folder: of the sweep.

    Raises:
      ArgumentError: the text is no sweep, or no run has what it names.
    """
    if not settings["sweep"]:
        return Runs({folder: Config(**settings)}, [], [])
    axes = {name: _values(name, texts) for name, texts in parse_axes(settings["sweep"]).items()}
    choices = {name: values for name, values in axes.items() if name in _FIELDS and not _is_float(name)}
    numbers = {name: values for name, values in axes.items() if name not in choices}
    found, had = Runs({}, [], []), set(choices)
    settings = {**settings, "sweep": ""}
    for place in _product(choices):
        lacking: list[str] = []
        try:
            values = {**settings, **place}
            if "method" in place:
                values = own_settings(values, place["method"], found)
            divided = _divided(values, numbers, lacking)
            if lacking and not place:
                raise ArgumentError(_unknown(lacking[0], settings, choices))
            for combination in _product(divided.apart):
                _add(found, folder, {**place, **combination}, values, divided.together)
        except ArgumentError as error:
            if not place:
                raise
            found.refused.append(f"{_name(place)}: {error}")
            continue
        had |= set(numbers) - set(lacking)
        whose = ", ".join(str(value) for value in place.values()) or settings["method"]
        found.notes.extend(f"{whose} has no {name}: not swept for it" for name in lacking)
    for name in numbers if found.runs else ():
        if name not in had:
            raise ArgumentError(_unknown(name, settings, choices))
    return found._replace(notes=list(dict.fromkeys(found.notes)))


def _values(name: str, text: str) -> Sequence[Any]:
    """Returns what is listed for a setting, each value checked; options of spellings stay as they are."""
    texts = split_graphs(text) if name == "topology" else calls.split(text)
    if name in ("seeds", "sweep", *IRRELEVANT):
        instead = "seed" if name == "seeds" else "what changes a number of a run"
        raise ArgumentError(f"sweep must name {instead}, got {name!r}")
    values = [_value(name, each) if name in _FIELDS else each for each in texts]
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
    return value


def _divided(values: Mapping[str, Any], numbers: Mapping[str, Sequence[Any]], lacking: list[str]) -> _Divided:
    """Tells which of the numbers can be one program; adds to `lacking` those that these runs do not have."""
    bare = Config(**values)
    named = {name: _candidates(bare, name) for name in numbers}
    # A number that is zero may be an option that is not there, and others with it.
    largest = {names[0]: max(numbers[name], key=_size) for name, names in named.items() if names}
    base = dataclasses.replace(bare, **in_settings(values, largest))
    together, apart = [], {}
    for name, candidates in named.items():
        meant = next((each for each in candidates if _means_something(base, each)), None)
        if meant is None:
            lacking.append(name)
        elif _is_shared(bare, base, meant, numbers[name]):
            together.append(f"{meant}:{','.join(_text(value) for value in numbers[name])}")
        else:
            apart[meant] = numbers[name]
    return _Divided(together, apart)


def _candidates(config: Config, name: str) -> list[str]:
    """Returns what a name may mean: a setting, or an option of the spelt method or ascent, in this order."""
    own = [name] if own_option(name) else [f"{whose}.{name}" for whose in SPELT]
    names = [*([name] if name in _FIELDS else []), *own]
    return [each for each in names if consistency.has(config, each)]


def _means_something(base: Config, name: str) -> bool:
    if own_option(name) or name in tables.options(make_partition):
        return True
    return role(base, name) != "nothing"


def _is_shared(bare: Config, base: Config, name: str, values: Sequence[Any]) -> bool:
    if own := own_option(name):
        if consistency.is_whole(getattr(bare, own[0]), *own):
            return False
        try:
            [float(value) for value in values]
        except ValueError:
            return False
    return is_one_program(base, name, values)


def _add(
    found: Runs,
    folder: pathlib.Path,
    place: Mapping[str, Any],
    values: Mapping[str, Any],
    together: Sequence[str],
) -> None:
    settings = {**values, **in_settings(values, place), "sweep": " ".join(together)}
    path = folder / _name(place) if place else folder
    if path in found.runs:  # settings that differ in letters which a folder's name cannot have
        path = path.with_name(f"{path.name}-{hashlib.sha256(repr(place).encode()).hexdigest()[:6]}")
    try:
        found.runs[path] = checked(settings)
    except ArgumentError as error:
        if not place:
            raise
        found.refused.append(f"{_name(place)}: {error}")


def _name(place: Mapping[str, Any]) -> str:
    return "-".join(safe(f"{name}={_text(value)}") for name, value in place.items())


def _unknown(name: str, settings: Mapping[str, Any], choices: Mapping[str, Sequence[Any]]) -> str:
    methods = ", ".join(choices.get("method", [settings["method"]]))
    if name in _FIELDS:
        return f"sweep must not name {name} for {methods}, which has none"
    hint = did_you_mean(name, _FIELDS)
    return f"{hint}sweep must name a setting, or an option of {methods}, got {name!r}"


def _size(value: Any) -> float:
    """Returns a value as a number; one that is none counts as zero."""
    try:
        return float(value)
    except ValueError:
        return 0.0


def _is_float(name: str) -> bool:
    return _FIELDS[name].type is float


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _product(lists: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
