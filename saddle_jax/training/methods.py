"""From settings to a method: its options, its ascent, what wraps it, and its network."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import optax

from saddle_jax.base import brought, spelt, tables
from saddle_jax.base.checks import ArgumentError, is_traced
from saddle_jax.compression.spelling import parse_compressor
from saddle_jax.core.method import Method
from saddle_jax.core.mixing import Graphs
from saddle_jax.methods import METHODS
from saddle_jax.methods.saddle import climbs, saddle
from saddle_jax.methods.slowmo import slowmo
from saddle_jax.methods.spelling import make_method, parse_method
from saddle_jax.sam.spelling import make_ascent, parse_ascent
from saddle_jax.settings import consistency, network
from saddle_jax.settings.config import Config
from saddle_jax.settings.sweep import own_option
from saddle_jax.training.schedules import build_schedule

# The settings that reach a method whose factory has a parameter of the same name. Not `missing`: of RelaySGD
# it is what stands in the place of a model, and as a setting what becomes of a lost message's weight.
SETTINGS = (*consistency.OPTIONS, "rho", "ascent_every", "ascent_reuse", "form")


def with_numbers(
    config: Config, topology: Graphs, steps_per_epoch: int, numbers: Mapping[str, Any]
) -> tuple[Method, optax.Schedule]:
    """Returns method and learning rate on a graph; `numbers`, which may be traced, replace swept settings."""
    own = {name: value for name, value in numbers.items() if own_option(name)}
    config = dataclasses.replace(config, **{name: numbers[name] for name in numbers if name not in own})
    schedule = build_schedule(config, steps_per_epoch)
    return build(config, topology, schedule, own), schedule


def build(
    config: Config, topology: Graphs, schedule: optax.Schedule, numbers: Mapping[str, Any] | None = None
) -> Method:
    """Returns the method that the settings name, on a graph; numbers of the settings may be traced.

    `numbers` replace options that the spelling of the method or ascent gives, such as "method.mu".
    """
    own = {own_option(option): value for option, value in (numbers or {}).items()}
    consistency.check_imported(config)
    name, _ = parse_method(config.method)
    options = _options(config, spelt.factory("method", name, METHODS))
    method = make_method(config.method, topology, schedule, _of("method", own), **options)
    if method.topology.size != topology.size:
        raise ArgumentError(
            f"method {config.method} must be on the graph that it is given, of {topology.size} agents, got "
            f"one of {method.topology.size}"
        )
    if config.ascent != "auto":
        ascent = make_ascent(
            config.ascent,
            share=lambda t: schedule(t) / config.learning_rate,
            instead=_of("ascent", own),
            **_options_of_sam(config),
        )
        # The settings name it beside the method: here it takes the place of an ascent that the method has.
        instead = config.ascent == "none" or climbs(method)
        method = dataclasses.replace(method, ascent=ascent) if instead else saddle(method, ascent)
    if config.slowmo_every:
        method = slowmo(method, schedule, every=config.slowmo_every, beta=config.slowmo_beta)
    return dataclasses.replace(method, faults=network.faults_of(config), timing=network.timing_of(config))


def _of(whose: str, own: Mapping[Any, Any]) -> dict[str, Any]:
    return {option: value for (spelt, option), value in own.items() if spelt == whose}


def weight_decay_of(config: Config) -> float:
    """Returns the weight decay that the method of a run applies: none if it has no such option."""
    if brought.is_object(config.method):
        return config.weight_decay  # which the program says
    _, given = parse_method(config.method)
    return float(given.get("weight_decay", in_force(config).get("weight_decay") or 0.0))


def in_force(config: Config) -> dict[str, Any]:
    """Returns the options that the method has and its spelling leaves open, with the values they have."""
    name, given = parse_method(config.method)
    factory = spelt.factory("method", name, METHODS)
    own = {option: parameter.default for option, parameter in tables.options(factory).items()}
    in_force = own | _options(config, factory)
    return {option: value for option, value in in_force.items() if option not in given}


def _options(config: Config, factory: Callable[..., Method]) -> dict[str, Any]:
    """Returns the options of a method that are settings; mu and local_steps may be left to the method."""
    names = [name for name in tables.options(factory) if name in SETTINGS]
    options = {name: getattr(config, name) for name in names}
    if "mu" in options and not is_traced(config.mu) and config.mu < 0:
        del options["mu"]
    if "local_steps" in options and not config.local_steps:
        del options["local_steps"]
    if "compressor" in options:
        options["compressor"] = parse_compressor(config.compressor)
    return options


def _options_of_sam(config: Config) -> dict[str, Any]:
    """Returns the settings of SAM; the options of other ascents are said where they are named."""
    name, _ = parse_ascent(config.ascent)
    if name != "sam":
        return {}
    return {"rho": config.rho, "every": config.ascent_every, "reuse": config.ascent_reuse}
