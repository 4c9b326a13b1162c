"""The runs of a comparison or a sweep: their settings and folders, and which of them share a program.

Numbers that a compiled step can take as arguments (see `build.is_argument`) are runs of one program. All the
rest, whole numbers and choices such as methods and graphs, are runs with a folder of their own.
"""

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import optax

from saddle_jax.base import registry
from saddle_jax.base.checks import ArgumentError, is_integer_text, suggestion
from saddle_jax.base.errors import RunError
from saddle_jax.base.registry import split
from saddle_jax.base.user_code import UserCodeError
from saddle_jax.runs import source_files
from saddle_jax.runs.run_name import safe
from saddle_jax.settings.config import (
    IRRELEVANT,
    Config,
    build_topology,
    check_setting,
    has,
    is_whole,
    settings_without_meaning,
    value_of,
)
from saddle_jax.settings.sweep import SPEC_SETTINGS, in_settings, own_option, parse_axes
from saddle_jax.training.build import build_method, is_one_program, small_models
from saddle_jax.training.memory import fits
from saddle_jax.training.program import build

DROP = "faults.drop"  # the option that --drop_rates varies


@dataclasses.dataclass(frozen=True)
class Grid:
    """A grid holds lists of settings; an empty list leaves the setting to what all runs share."""

    methods: Sequence[str]
    compressors: Sequence[str]
    seeds: Sequence[str]
    gradients: Sequence[str] = ()
    topologies: Sequence[str] = ()
    drop_rates: Sequence[float] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        """The settings that tell cells apart, in the order of the folders' names."""
        return tuple(self._lists)

    def without_drops(self) -> list[dict[str, Any]]:
        """Lists the settings of all combinations, apart from seeds and shares of lost messages."""
        return self._product({name: values for name, values in self._lists.items() if name != DROP})

    def rows(self) -> list[dict[str, Any]]:
        """Lists what the rows of a table stand for: methods, on every graph."""
        return self._product({k: v for k, v in self._lists.items() if k in ("method", "topology")})

    def columns(self) -> list[dict[str, Any]]:
        """Lists what the columns of a table stand for: all the rest."""
        return self._product({k: v for k, v in self._lists.items() if k not in ("method", "topology")})

    @property
    def _lists(self) -> dict[str, Sequence[Any]]:
        lists: dict[str, Sequence[Any]] = {
            "method": self.methods,
            "compressor": self.compressors,
            "gradient": self.gradients,
            "topology": self.topologies,
            DROP: self.drop_rates,
        }
        return {name: values for name, values in lists.items() if values}

    @staticmethod
    def _product(lists: dict[str, Sequence[Any]]) -> list[dict[str, Any]]:
        return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def parse_grid(
    methods: str,
    compressors: str,
    seeds: str,
    gradients: str = "",
    topologies: str = "",
    drop_rates: str = "",
) -> Grid:
    """Reads the lists of a grid, whose elements have commas between them; each is checked and kept once."""
    grid = Grid(
        methods=_once(split(methods)),
        compressors=_once(split(compressors)),
        seeds=_seeds(split(seeds)),
        gradients=_once(split(gradients)),
        topologies=_once(split(topologies)),
        drop_rates=_drop_rates(split(drop_rates)),
    )
    for name in ("methods", "compressors", "seeds"):
        if not getattr(grid, name):
            raise ArgumentError(f"{name} must list at least one, got nothing")
    for setting in ("method", "compressor", "gradient", "topology"):
        for text in grid._lists.get(setting, ()):
            check_setting(setting, text)
    return grid


def number(value: float) -> str:
    """Writes a share of lost messages as folders are named: 0.1, 0."""
    return f"{value:.12g}"


def _once(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _seeds(texts: Sequence[str]) -> tuple[str, ...]:
    if not all(is_integer_text(text) for text in texts):
        raise ArgumentError(f"seeds must be whole numbers, got {','.join(texts)}")
    return _once([str(int(text)) for text in texts])


def _drop_rates(texts: Sequence[str]) -> tuple[float, ...]:
    try:
        drops = [float(text) for text in texts]
    except ValueError:
        drops = [-1.0]
    if not all(0 <= drop < 1 for drop in drops):
        raise ArgumentError(f"drop_rates must be numbers >= 0 and < 1, got {','.join(texts)}")
    return tuple(dict.fromkeys(drops))


# ---- comparisons: lists of methods, compressors, graphs and so on ----


class Runs(NamedTuple):
    """The runs of a grid by their folders, and what is to be said before they start."""

    runs: dict[pathlib.Path, Config]
    notes: list[str]  # which settings a method does without
    refused: list[str]  # what cannot be run, and why


class _Group(NamedTuple):
    """The runs of one method on one graph and so on, before seeds: the beginning of their folders' names."""

    name: str
    config: Config


def runs_of_grid(
    settings: Mapping[str, Any], grid: Grid, folder: pathlib.Path, *, single_program: bool
) -> Runs:
    """Lists the runs of a grid by their folders.

    Runs whose folders exist keep them. With `single_program`, the other seeds of a cell share a program and a
    folder, where memory suffices, and so do the shares of lost messages, which a program can sweep.

    Args:
      settings: those of all runs, which need not have a meaning for each method.
      grid: what is varied.
      folder: of the comparison.
      single_program: whether several runs may be one program.

    Raises:
      ArgumentError: user code, such as a method in a file that is missing, cannot be used in any run.
    """
    joint: dict[pathlib.Path, Config] = {}
    single: dict[str, dict[pathlib.Path, Config]] = {seed: {} for seed in grid.seeds}  # a table fills evenly
    found = Runs({}, [], [])
    groups = list(_groups(settings, grid, folder, single_program, found))
    _check_brought(settings, grid, groups)
    for group in groups:
        joint_runs, remaining = _joint_runs(group.config, folder, group.name, grid.seeds, single_program)
        joint |= joint_runs
        for seed in remaining:
            config = dataclasses.replace(group.config, seed=int(seed))
            single[seed][folder / f"{group.name}-seed{seed}"] = config
    return found._replace(
        runs=joint | {path: config for runs in single.values() for path, config in runs.items()}
    )


def _groups(
    settings: Mapping[str, Any], grid: Grid, folder: pathlib.Path, single_program: bool, found: Runs
) -> Iterator[_Group]:
    """Yields all that differs in more than the seed; adds to the notes and to what is refused."""
    settings = {**settings, "compressor": "none"}  # which the grid says
    own = {method: own_settings(settings, method, found) for method in grid.methods}
    for place in grid.without_drops():
        values = {**own[place["method"]], **place}
        name = "-".join(safe(str(source_files.short(setting, value))) for setting, value in place.items())
        many = _swept(values, name, grid, folder, single_program)
        drops = [drop for drop in grid.drop_rates if not (many and drop)]
        changes = [(f"-drop{number(drop)}", {DROP: drop}) for drop in drops]
        changes = changes if grid.drop_rates else [("", {})]
        for ending, change in changes:
            group = _group(name + ending, {**values, **in_settings(values, change)}, found)
            if group:
                yield group
        if many:
            yield many


def _check_brought(settings: Mapping[str, Any], grid: Grid, groups: Sequence[_Group]) -> None:
    """Checks that all user code can be used, as reading the grid has checked the names of ours."""
    used = {value_of(group.config, setting) for group in groups for setting in grid.axes}
    for place in grid.without_drops():
        if any(text not in used and _is_users(text) for text in place.values()):
            own = own_settings({**settings, "compressor": "none"}, place["method"], Runs({}, [], []))
            checked({**own, **place})  # raises what there is to say


def _is_users(text: str) -> bool:
    """Tells whether a text names a user's code or file."""
    return any(each.is_code or each.is_path for each in registry.parse("text", text).walk())


def own_settings(settings: Mapping[str, Any], method: str, found: Runs) -> dict[str, Any]:
    """Returns the settings without those that mean nothing to a method; notes which these are."""
    without = settings_without_meaning(method, settings, Config().to_json())
    if without:
        found.notes.append(f"{method} has no {', '.join(without)}, or sets it itself: left at its default")
    return {**settings, **without}


def _group(name: str, values: Mapping[str, Any], found: Runs) -> _Group | None:
    try:
        return _Group(name, checked(values))
    except UserCodeError:  # it would be reported for every value
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
        method = build_method(each, build_topology(each), optax.constant_schedule(each.learning_rate))
        jax.eval_shape(method.init, small_models(each.agents))
    return config


def _swept(
    values: Mapping[str, Any], name: str, grid: Grid, folder: pathlib.Path, single_program: bool
) -> _Group | None:
    """Returns the settings that sweep over all shares of lost messages but zero, if one program can."""
    drops = [number(drop) for drop in grid.drop_rates if drop]
    if len(drops) < 2 or values["sweep"]:
        return None
    name_of_all = f"{name}-drops{','.join(drops)}"
    exists = any(folder.glob(f"{name_of_all}-seed*/config.json"))
    apart = any(any(folder.glob(f"{name}-drop{drop}-seed*/config.json")) for drop in drops)
    if not exists and (apart or not single_program):
        return None
    try:
        config = checked({**values, "sweep": f"{DROP}:{','.join(drops)}"})
    except UserCodeError:
        raise
    except ArgumentError:  # each drop by itself will tell
        return None
    return _Group(name_of_all, config) if exists or _fit(config) else None


def _joint_runs(
    config: Config, folder: pathlib.Path, name: str, seeds: Sequence[str], single_program: bool
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
    if single_program and len(new) > 1 and _fit_together(config, ",".join(new)):
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


# ---- sweeps over anything ----


_FIELDS = Config.__dataclass_fields__
_TRUTHS = {"true": True, "false": False}


class _Divided(NamedTuple):
    """The numbers of one choice: those of one program, as `Config.sweep` writes them, and those apart."""

    together: list[str]
    apart: dict[str, Sequence[Any]]


def runs_of_sweep(settings: Mapping[str, Any], folder: pathlib.Path) -> Runs:
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
    """Returns what is listed for a setting, each value checked; options of specs stay text."""
    texts = split(text)
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
    named = {name: _meant(bare, name) for name in numbers}
    lacking.extend(name for name, meant in named.items() if meant is None)
    meant = {each: numbers[name] for name, each in named.items() if each is not None}
    floats = {name: found for name, each in meant.items() if (found := _floats(bare, name, each))}
    choices = {name: each[0] for name, each in meant.items() if name not in floats}
    base = dataclasses.replace(bare, **in_settings(values, choices))
    shared = {name for name in floats if is_one_program(base, name, floats)}
    together = [
        f"{name}:{','.join(_text(value) for value in meant[name])}" for name in meant if name in shared
    ]
    return _Divided(together, {name: each for name, each in meant.items() if name not in shared})


def _meant(config: Config, name: str) -> str | None:
    """Returns what a name means: a setting, or an option of method or gradient; None if nothing."""
    own = [name] if own_option(name) else [f"{whose}.{name}" for whose in SPEC_SETTINGS]
    names = [*([name] if name in _FIELDS else []), *own]
    return next((each for each in names if has(config, each)), None)


def _floats(config: Config, name: str, values: Sequence[Any]) -> list[float] | None:
    """Returns the values of what is a number and no whole one, else None."""
    if (own := own_option(name)) and is_whole(getattr(config, own[0]), *own):
        return None
    try:
        return [float(value) for value in values]
    except ValueError:
        return None


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
    hint = suggestion(name, _FIELDS)
    return f"{hint}sweep must name a setting, or an option of {methods}, got {name!r}"


def _is_float(name: str) -> bool:
    return _FIELDS[name].type is float


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _product(lists: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
