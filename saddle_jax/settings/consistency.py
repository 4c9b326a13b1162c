"""Whether the settings of a run go together: one line for each that does not."""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from saddle_jax.base import brought
from saddle_jax.base.checks import ArgumentError, did_you_mean, is_traced
from saddle_jax.graphs import spelling as graphs
from saddle_jax.methods import options_of
from saddle_jax.methods import spelling as methods
from saddle_jax.methods.spelling import is_ours, leaves_open, parse_method
from saddle_jax.sam import spelling as ascents
from saddle_jax.settings import network
from saddle_jax.settings import sweep as replicas

if TYPE_CHECKING:
    from saddle_jax.settings.config import Config

_MOST_RUNS = 4_096  # that one program trains side by side
# Settings that are options of some methods and not of others.
OPTIONS = (
    "beta",
    "mu",
    "nesterov",
    "weight_decay",
    "gamma",
    "compressor",
    "order",
    "self_gradient",
    "local_steps",
)


def settings_without_meaning(
    method: str, settings: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the options that settings give and that a method does not have, with their defaults.

    A method that is not ours is imported.
    """
    return {
        name: defaults[name]
        for name in OPTIONS
        if _differs(settings[name], defaults[name]) and not leaves_open(method, name)
    }


def check_numbers(config: "Config") -> None:
    """Checks numbers whose limits depend on other settings, or are not one range."""
    if config.warmup_epochs >= config.epochs:
        raise ArgumentError(
            f"warmup_epochs must be below epochs = {config.epochs}, got {config.warmup_epochs}"
        )
    if not is_traced(config.mu) and config.mu != -1.0 and config.mu < 0:
        raise ArgumentError(f"mu must be -1 or a number >= 0 and < 1, got {config.mu}")


def check_method(config: "Config") -> None:
    """Checks that the method has the options that are set; of one that is not ours, `check_imported` does."""
    if is_ours(config.method):
        _check_options(config)


def check_imported(config: "Config") -> None:
    """Checks of things that are not ours, which are imported for it, what of ours is checked at once.

    Of objects of a Python program, which hands them over itself, nothing is known here.
    """
    if not is_ours(config.method) and not brought.is_object(config.method):
        _check_options(config)
    if not _are_ours(config) and not brought.is_object(config.method):
        _check_sweep(config)
    if not graphs.is_ours(config.topology) and not brought.is_object(config.topology):
        _check_seeds(config)


def _check_options(config: "Config") -> None:
    """Checks that the method has the options that are set, and that it needs the ascent that is named."""
    name, _ = parse_method(config.method)
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for option, default in settings_without_meaning(config.method, vars(config), defaults).items():
        raise ArgumentError(
            f"{option} must be {default} for {config.method}, which has no such option or sets it itself, "
            f"got {getattr(config, option)!r}"
        )
    if config.ascent in ("none", "plain") and "rho" in options_of(name):
        raise ArgumentError(f"ascent must not be none for {name}, which climbs: name the method without it")


def check_ascent(config: "Config") -> None:
    """Checks that the settings of SAM are not set beside another ascent, whose options its name carries."""
    name, options = ascents.parse_ascent(config.ascent)
    if name == "auto":
        return
    for option, setting in (("rho", "rho"), ("every", "ascent_every"), ("reuse", "ascent_reuse")):
        default = next(field.default for field in dataclasses.fields(config) if field.name == setting)
        if _differs(getattr(config, setting), default) and (name != "sam" or option in options):
            raise ArgumentError(
                f"{setting} must be {default} beside ascent {config.ascent}, which has options of its own, "
                f"got {getattr(config, setting)!r}"
            )


def check_network(config: "Config") -> None:
    """Checks that what goes wrong can go wrong for these agents, and that only a given time varies."""
    network.faults_of(config)
    if config.straggling and not config.compute_time:
        raise ArgumentError(
            f"straggling must be 0 without compute_time, of which it is the spread, got {config.straggling:g}"
        )


def check_replicas(config: "Config") -> None:
    """Checks that several runs fit into one program."""
    if config.seeds and config.seed:
        raise ArgumentError(f"seed must not be given beside seeds = {config.seeds}, got {config.seed}")
    _check_swept(config)
    if _are_ours(config):
        _check_sweep(config)
    if graphs.is_ours(config.topology):
        _check_seeds(config)
    if config.has_replicas:
        _check_count(config)
        config.each()  # which checks its numbers


def _check_count(config: "Config") -> None:
    """Checks that there are not more runs than one program can be made of."""
    sizes = [len(replicas.parse_seeds(config.seeds)) or 1]
    sizes += [len(values) for values in replicas.parse_sweep(config.sweep).values()]
    if (count := math.prod(sizes)) > _MOST_RUNS:
        raise ArgumentError(
            f"seeds and sweep must make at most {_MOST_RUNS:,} runs in one program, got {count:,}: "
            "train the others by another command"
        )


def _check_sweep(config: "Config") -> None:
    """Checks that the method has the options that are swept."""
    for name in replicas.parse_sweep(config.sweep):
        if not has(config, name):
            raise ArgumentError(
                f"sweep must not name {name} for {config.method}, which has none, got {config.sweep!r}"
            )


def _check_seeds(config: "Config") -> None:
    """Checks that all seeds have the same graph."""
    if graphs.is_random(config.topology) and len(replicas.parse_seeds(config.seeds)) > 1:
        raise ArgumentError(
            f"seeds must be one for topology {config.topology}, whose graph differs between seeds, "
            f"got {config.seeds!r}"
        )


def has(config: "Config", name: str) -> bool:
    """Tells whether a setting, or "method.NAME" of a spelling, means something to method and ascent.

    What is not ours is imported.
    """
    if own := replicas.own_option(name):
        whose, option = own
        return (leaves_open if whose == "method" else ascents.leaves_open)(getattr(config, whose), option)
    if name == "rho" and config.ascent != "auto":
        return ascents.parse_ascent(config.ascent)[0] == "sam" and ascents.leaves_open(config.ascent, name)
    return leaves_open(config.method, name) if name in (*OPTIONS, "rho") else True


def surely_lacks(config: "Config", name: str) -> bool:
    """Tells whether a setting is known to mean nothing; of what is not ours nothing is known."""
    return _are_ours(config) and not has(config, name)


def _are_ours(config: "Config") -> bool:
    return is_ours(config.method) and ascents.is_ours(config.ascent)


def is_whole(text: str, whose: str, option: str) -> bool:
    """Tells whether an option of a spelt method or ascent is a whole number or a truth, by its default."""
    parameter = (methods if whose == "method" else ascents).parameter(text, option)
    return isinstance(parameter.default, int) or parameter.annotation in (int, bool, "int", "bool")


def _check_swept(config: "Config") -> None:
    """Checks that numbers are swept, of settings or of options."""
    floats = [field.name for field in dataclasses.fields(config) if field.type is float]
    for name in replicas.parse_sweep(config.sweep):
        if name not in floats and not replicas.own_option(name):
            raise ArgumentError(
                f"{did_you_mean(name, floats)}sweep must name numbers that one program can try, "
                f"{', '.join(floats)}, or options such as method.NAME and ascent.NAME, got {name!r}"
            )


def _differs(value: Any, default: Any) -> bool:
    return not is_traced(value) and bool(value != default)
