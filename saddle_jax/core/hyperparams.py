"""Hyperparameters of a method as leaves of its state, as in optax's `inject_hyperparams`.

    method = sj.inject_hyperparams(sj.qgm)(sj.ring(8), 0.1, beta=0.9)
    state = method.init(params)
    state.hyperparams["beta"]           an array [], which may be read, set, annealed and vmapped over

All other numbers are constants of the compiled step. R runs that differ in injected hyperparameters are R
states of one compiled step. Their values are checked when the method is made; arrays are not checked.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.method import Hyperparams, Method


def inject_hyperparams(
    factory: Callable[..., Method], static_args: str | Iterable[str] = ()
) -> Callable[..., Method]:
    """Puts the hyperparameters of a method into its state, as optax.inject_hyperparams does.

    Args:
      factory: a function that makes a method, such as `sj.qgm` or your own; faults and gradient estimator
        may depend on its arguments, too.
      static_args: names of arguments that stay constants of the compiled step.

    Returns:
      A function with the arguments of the factory. Floats become entries of `state.hyperparams`; so do
      functions of the step, such as optax schedules, evaluated in each step. Only a schedule of the learning
      rate stays inside the method. Integers and all other arguments are constants.

    >>> method = sj.inject_hyperparams(sj.qgm)(sj.ring(2), 0.1, beta=0.9)
    >>> {name: float(number) for name, number in method.init(jnp.zeros(2)).hyperparams.items()}
    {'learning_rate': 0.10000000149011612, 'beta': 0.8999999761581421}
    """
    static = {static_args} if isinstance(static_args, str) else set(static_args)
    signature = inspect.signature(factory)
    for name in static - set(signature.parameters):
        raise ArgumentError(f"static_args must be arguments of {_name(factory)}, got {name!r}")

    def is_number(name: str, value: Any) -> bool:
        if name in static:
            return False
        return isinstance(value, float) or (callable(value) and name != "learning_rate")

    @functools.wraps(factory)
    def make(*args: Any, **kwargs: Any) -> Method:
        bound = signature.bind(*args, **kwargs)
        variable = {
            name
            for name, each in signature.parameters.items()
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        }
        numbers = {
            name: value
            for name, value in bound.arguments.items()
            if name not in variable and is_number(name, value)
        }

        def of_numbers(**numbers: Any) -> Method:
            own = signature.bind(*args, **kwargs)
            own.arguments.update(numbers)
            return factory(*own.args, **own.kwargs)

        return with_hyperparams(of_numbers, numbers)

    return make


def with_hyperparams(make: Callable[..., Method], numbers: Mapping[str, Any]) -> Method:
    """Makes a method whose state holds these numbers (or functions of the step), and checks them."""
    with jax.ensure_compile_time_eval():
        firsts = {name: float(each(0) if callable(each) else each) for name, each in numbers.items()}
        checked = make(**firsts)
        if not numbers:
            return checked
        # As arrays, like those in the state: a Python zero would leave parts of the method out.
        made = make(**{name: jnp.asarray(number) for name, number in firsts.items()})
    call = checked.call and checked.call._replace(rule=made.rule)
    return dataclasses.replace(made, call=call, hyperparams=Hyperparams(make, dict(numbers), made))


def _name(factory: Any) -> str:
    return getattr(factory, "__name__", type(factory).__name__)
