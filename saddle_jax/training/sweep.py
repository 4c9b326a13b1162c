"""Several runs in one program: which they are, and how their numbers are written down together.

`seeds` and `sweep` of the settings name them: every seed with every combination of the swept numbers. Each of
them, a replica, is a run like any other, with settings of its own; they differ in nothing that has a shape.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError

# Numbers that a compiled step can be given, in place of being compiled with them.
SWEPT = ("learning_rate", "rho", "gamma", "beta", "weight_decay")
_LIST = "_by_replica"
_STD = "_std"
_SEED_MOST = 2**32 - 1


def parse_seeds(text: str) -> list[int]:
    """The seeds of "0,1,2"; of "" none."""
    words = text.split(",") if text else []
    for word in words:
        if not (word.isdecimal() and int(word) <= _SEED_MOST):
            raise ArgumentError(
                f"seeds must be whole numbers >= 0 with commas between, such as 0,1,2, got {text!r}"
            )
    seeds = [int(word) for word in words]
    _refuse_twice("seeds", seeds, text)
    return seeds


def parse_sweep(text: str) -> dict[str, list[float]]:
    """The numbers of "learning_rate:0.05,0.1 rho:0,0.1" by the setting; of "" none."""
    found: dict[str, list[float]] = {}
    for part in text.split():
        name, _, values = part.partition(":")
        if name not in SWEPT:
            hint = checks.did_you_mean(name, SWEPT)
            raise ArgumentError(
                f"sweep must be SETTING:NUMBER,NUMBER,... with one of {', '.join(SWEPT)}, got {part!r}{hint}"
            )
        if name in found:
            raise ArgumentError(f"sweep must name {name} once, got {text!r}")
        try:
            found[name] = [float(value) for value in values.split(",")]
        except ValueError as error:
            raise ArgumentError(
                f"sweep must give numbers for {name}, such as {name}:0.1,0.2, got {part!r}"
            ) from error
        _refuse_twice(f"sweep of {name}", found[name], part)
    return found


def settings_of(seeds: str, sweep: str) -> list[dict[str, Any]]:
    """What each replica has of its own, in order: all seeds with the first numbers, and so on."""
    swept, numbers = parse_sweep(sweep), parse_seeds(seeds)
    seeded: list[dict[str, Any]] = [{"seed": seed} for seed in numbers] or [{}]
    combinations = itertools.product(*swept.values())
    return [
        seed | dict(zip(swept, combination, strict=True)) for combination in combinations for seed in seeded
    ]


def name_of(setting: Mapping[str, Any]) -> str:
    """A replica in words, such as "seed 1, rho 0.1"."""
    return ", ".join(f"{name} {value:.12g}" for name, value in setting.items())


def together(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One record of all replicas' [R]: for every number its mean, its spread and all of them.

    A number NAME becomes NAME, NAME_std and NAME_by_replica; lists only have the last. Replicas that lack a
    number, or whose number is not finite, have no part in mean and spread and a NaN among all.
    """
    names = dict.fromkeys(name for record in records for name in record)
    joined: dict[str, Any] = {}
    for name in names:
        values = [record.get(name, math.nan) for record in records]
        if not any(isinstance(value, list) for value in values):
            joined[name], joined[f"{name}{_STD}"] = mean_and_std(values)
        joined[f"{name}{_LIST}"] = values
    return joined


def mean_and_std(values: Iterable[Any]) -> tuple[float, float]:
    """Of those that are finite numbers; the standard deviation of one is 0, of none there is neither: NaN."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return math.nan, math.nan
    return statistics.fmean(finite), statistics.stdev(finite) if len(finite) > 1 else 0.0


def of_replica(record: Mapping[str, Any], number: int) -> dict[str, Any]:
    """One replica's part of a record that `together` made, under the names that a single run has."""
    joined = {name.removesuffix(_LIST) for name in record if name.endswith(_LIST)}
    found = {}
    for name, value in record.items():
        if name.endswith(_LIST):
            found[name.removesuffix(_LIST)] = value[number] if number < len(value) else None
        elif name not in joined and name.removesuffix(_STD) not in joined:
            found[name] = value
    return found


def without_lists(record: Mapping[str, Any]) -> dict[str, Any]:
    """Means and spreads alone."""
    return {name: value for name, value in record.items() if not name.endswith(_LIST)}


def _refuse_twice(what: str, values: Sequence[Any], text: str) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ArgumentError(f"{what} must name each number once, got {text!r} with {value:.12g} twice")
