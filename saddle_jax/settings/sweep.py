"""Several runs in one program: their settings, and how their numbers are written down together.

`seeds` and `sweep` in the settings name them: every seed with every combination of the swept numbers. Each of
these runs, a trial, is a run like any other with its own settings. No shape differs between trials.
"""

import collections
import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from saddle_jax.base import registry
from saddle_jax.base.checks import ArgumentError, is_integer_text

# Settings whose specs have options of their own: `method.mu` is an option of the method that is named.
SPEC_SETTINGS = ("method", "gradient", "partition", "faults", "timing")
# What stands for a thing that has options, until one of them is given.
_USUAL = {
    "partition": ("auto", "dirichlet"),
    "faults": ("none", "faults"),
    "timing": ("none", "timing"),
}
_WORDS = {"true": True, "false": False, "none": None}
_LIST = "_by_trial"
_STD = "_std"
_SEED_MOST = 2**32 - 1


def parse_seeds(text: str) -> list[int]:
    """Returns the seeds in a text such as "0,1,2"; an empty text has none."""
    words = text.split(",") if text else []
    for word in words:
        if not (is_integer_text(word) and int(word) <= _SEED_MOST):
            raise ArgumentError(
                f"seeds must be whole numbers >= 0 with commas between them, such as 0,1,2, got {text!r}"
            )
    seeds = [int(word) for word in words]
    _refuse_twice("seeds", seeds, text)
    return seeds


def parse_sweep(text: str) -> dict[str, list[float]]:
    """Returns the numbers in "learning_rate=0.05,0.1 method.rho=0,0.1" by name; an empty text has none."""
    numbers: dict[str, list[float]] = {}
    for name, values in parse_axes(text).items():
        try:
            numbers[name] = [float(value) for value in values.split(",")]
        except ValueError as error:
            raise ArgumentError(
                f"sweep must give numbers for {name}, such as {name}=0.1,0.2, got {f'{name}={values}'!r}"
            ) from error
        _refuse_twice(f"sweep of {name}", numbers[name], f"{name}={values}")
    return numbers


def parse_axes(text: str) -> dict[str, str]:
    """Returns what "method=qgm,gut(mu=0.5) faults.drop=0,0.1" lists, as text, by name."""
    axes: dict[str, str] = {}
    for part in registry.split(text, " "):
        name, equals, values = part.partition("=")
        if not name or not equals or not values:
            raise ArgumentError(
                f"sweep must be SETTING=VALUE,VALUE,..., such as learning_rate=0.05,0.1, got {part!r}"
            )
        if name in axes:
            raise ArgumentError(f"sweep must name {name} once, got {text!r}")
        axes[name] = values
    return axes


def own_option(name: str) -> tuple[str, str] | None:
    """Returns ("method", "mu") of the swept "method.mu", an option of a spec; None of a setting."""
    whose, dot, option = name.partition(".")
    return (whose, option) if dot and whose in SPEC_SETTINGS else None


def options_among(whose: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the numbers that are options of a thing: {"mu": 0.1} of {"method.mu": 0.1}."""
    own = {own_option(name): value for name, value in numbers.items()}
    return {name[1]: value for name, value in own.items() if name and name[0] == whose}


def in_settings(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the changes of settings that swept values mean; options of specs are written into them."""
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if own := own_option(name):
            whose, option = own
            text = changes.get(whose, settings[whose])
            spec = spec_with_options(whose, text)
            if spec is None:
                raise ArgumentError(f"{name} must not be given for {whose} {text}, which has no options")
            chosen = option_value(value)
            given = {**dict(spec.kwargs), option: chosen}
            kept = tuple((name, each) for name, each in given.items() if name != option or chosen is not None)
            changes[whose] = str(spec._replace(kwargs=kept))
        else:
            changes[name] = value
    return changes


def spec_with_options(whose: str, text: str) -> registry.Spec | None:
    """Returns the spec of a setting that can have options; None if it names nothing that has."""
    word, usual = _USUAL.get(whose, ("", ""))
    if text == word:
        return registry.Spec(usual)
    return None if text in ("auto", "none", "given") else registry.parse(whose, text)


def without(settings: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Returns settings without some of them, and without options such as "method.rho" of what they name."""
    left = {name: value for name, value in settings.items() if name not in names}
    for whose, option in filter(None, map(own_option, names)):
        if whose in left and (spec := spec_with_options(whose, left[whose])):
            kwargs = tuple(pair for pair in spec.kwargs if pair[0] != option)
            left[whose] = str(spec._replace(kwargs=kwargs)) if kwargs != spec.kwargs else left[whose]
    return left


def option_value(value: Any) -> Any:
    """Returns the value of an option: a text that is no literal and no spec, such as 10ms, is itself."""
    if not isinstance(value, str):
        return value
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    try:
        return registry.parse_value("option", value)
    except ArgumentError:
        return value


def settings_of(seeds: str, sweep: str) -> list[dict[str, Any]]:
    """Returns the settings of each trial, in order: all seeds with the first numbers, and so on."""
    swept, numbers = parse_sweep(sweep), parse_seeds(seeds)
    seeded: list[dict[str, Any]] = [{"seed": seed} for seed in numbers] or [{}]
    combinations = itertools.product(*swept.values())
    return [
        seed | dict(zip(swept, combination, strict=True)) for combination in combinations for seed in seeded
    ]


def name_of(setting: Mapping[str, Any]) -> str:
    """Returns the name of a trial, such as "seed 1, rho 0.1"."""
    return ", ".join(f"{name.rpartition('.')[2]} {value:.12g}" for name, value in setting.items())


def together(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Joins the records [R] of all trials: for every number its mean, its deviation and the list of all.

    A number NAME becomes NAME, NAME_std and NAME_by_trial; a list has only the last. Trials that lack a
    number, or whose number is not finite, do not count in the mean and deviation and are NaN in the list.
    """
    names = dict.fromkeys(name for record in records for name in record)
    joined: dict[str, Any] = {}
    for name in names:
        values = [record.get(name, math.nan) for record in records]
        if not any(isinstance(value, list) for value in values):
            joined[name], joined[f"{name}{_STD}"] = mean_and_std(values)
        joined[f"{name}{_LIST}"] = values
    return joined


def in_one_line(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Joins the records [R] of a step as metrics.jsonl has them: what all have sent alike stands there once.

    Where agents come and go, each trial has sent another number of messages.
    """
    counts = {
        name: {record[name] for record in records if name in record}
        for name in ("bytes_sent_per_agent", "paper_bytes_sent_per_agent")
    }
    same = {name: values.pop() for name, values in counts.items() if len(values) == 1}
    rest = [{name: value for name, value in record.items() if name not in same} for record in records]
    return {**together(rest), **same}


def mean_and_std(values: Iterable[Any]) -> tuple[float, float]:
    """Returns mean and standard deviation of the finite numbers: (x, 0) for one of them, NaN for none."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return math.nan, math.nan
    return statistics.fmean(finite), statistics.stdev(finite) if len(finite) > 1 else 0.0


def of_trial(record: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Returns one trial's part of a record that `together` made, with the names of a single run."""
    joined = {name.removesuffix(_LIST) for name in record if name.endswith(_LIST)}
    own: dict[str, Any] = {}
    for name, value in record.items():
        if name.endswith(_LIST):
            own[name.removesuffix(_LIST)] = value[number] if number < len(value) else None
        elif name not in joined and name.removesuffix(_STD) not in joined:
            own[name] = value
    return own


def without_lists(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the record without its lists: means and deviations only."""
    return {name: value for name, value in record.items() if not name.endswith(_LIST)}


def _refuse_twice(what: str, values: Sequence[Any], text: str) -> None:
    for value, count in collections.Counter(values).items():
        if count > 1:
            raise ArgumentError(f"{what} must name each number once, got {text!r} with {value:.12g} twice")
