"""Which numbers one compiled step can take as arguments, instead of being compiled with them.

Nobody lists them: a step of a small model is traced with the number unknown. If the trace succeeds and the
step depends on the number, runs that differ in it can share a program.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array
from saddle_jax.settings.config import Config, build_topology
from saddle_jax.settings.sweep import in_settings, own_option, parse_sweep
from saddle_jax.training import methods
from saddle_jax.training.parts import Parts

# What a number is to a step: an argument of it; part of its program; nothing.
Role = Literal["argument", "program", "nothing"]
_SHAPE = (64, 64)  # of the small model: a matrix, which some compressors want, with many entries
_SAMPLES = 4  # of an agent's batch


def small_models(agents: int) -> dict[str, Any]:
    """Returns the shapes of all agents' small models, [A, ...], for traces that compute nothing."""
    return {"w": jax.ShapeDtypeStruct((agents, *_SHAPE), jnp.float32)}


def role(config: Config, name: str, shared: Parts | None = None) -> Role:
    """Tells what a number of the settings, or "method.NAME" of a spelling, is to the step of a run.

    `shared` are parts that are made already; None takes those that the settings name.

    Raises:
      ArgumentError: there is no such run, whatever the number.
    """
    make = methods.with_numbers if shared is None else shared.method
    topology = (build_topology if shared is None else shared.topology)(config)
    make(config, topology, 1, {})  # what is wrong without a sweep is told as ever

    def step(number: Array, x: Any, batch: Any, seed: Array) -> Any:
        method, schedule = make(config, topology, 1, {name: number})
        state = method.init(x)
        taken = method.step(_loss, x, state, batch, jax.random.key(seed), diagnostics=config.diagnostics)
        return state, taken[:2], dict(taken[2]), schedule and schedule(state.t)

    number = jax.ShapeDtypeStruct((), jnp.float32)
    samples = jax.ShapeDtypeStruct((config.agents, _SAMPLES), jnp.float32)
    batch = {"inputs": samples, "mask": samples}
    seed = jax.ShapeDtypeStruct((), jnp.int32)
    try:
        traced = jax.make_jaxpr(step)(number, small_models(config.agents), batch, seed).jaxpr
    except Exception:  # whatever a method does with a number that it wants to know
        return "program"
    unknown = traced.invars[0]
    used = any(unknown is operand for equation in traced.eqns for operand in equation.invars)
    return "argument" if used or any(unknown is result for result in traced.outvars) else "nothing"


def is_one_program(config: Config, name: str, values: Sequence[float], shared: Parts | None = None) -> bool:
    """Tells whether runs that differ in this number can be one program."""
    if not own_option(name):
        field = Config.__dataclass_fields__[name]
        if field.type is not float or field.metadata["no_number"] in values:
            return False
    return role(config, name, shared) == "argument"


def check_one_program(config: Config, shared: Parts) -> None:
    """Checks that everything which the settings sweep can be one program of these parts."""
    numbers = parse_sweep(config.sweep)
    # A number that is zero may be an option that is not there, and others with it.
    largest = in_settings(vars(config), {name: max(values) for name, values in numbers.items()})
    base = dataclasses.replace(config, seeds="", sweep="", **largest)
    for name, values in numbers.items():
        if not is_one_program(base, name, values, shared):
            raise ArgumentError(
                f"sweep must name numbers on which a step of {config.method} depends and which it need not "
                f"know in advance, got {name}: runs of their own can have it, as saddle train --sweep makes"
            )


def _loss(x: Any, batch: Any) -> Array:
    return jnp.sum(batch["inputs"] * batch["mask"]) * jnp.sum(x["w"] ** 2)
