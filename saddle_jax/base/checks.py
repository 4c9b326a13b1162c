"""Argument checks, whose one-line errors name the argument, what is allowed and the value that was passed."""

import difflib
import inspect
import math
import operator
import sys
from collections.abc import Callable, Collection
from typing import Any

_DIGITS = 18  # of a whole number in a user's text
# What other libraries and papers call our settings and options.
ALSO_CALLED = {
    "lr": "learning_rate",
    "eta": "learning_rate",
    "wd": "weight_decay",
    "l2": "weight_decay",
    "bs": "batch_size",
    "batch": "batch_size",
    "momentum": "beta",
    "num_epochs": "epochs",
    "num_agents": "agents",
    "nodes": "agents",
    "workers": "agents",
    "clients": "agents",
    "graph": "topology",
    "network": "model",
    "arch": "model",
    "optimizer": "method",
    "algorithm": "method",
    "compression": "compressor",
    "data": "dataset",
}


class ArgumentError(ValueError):
    """A mistake by the user, described in one line. Any other error is a bug.

    >>> sj.ring(0)
    Traceback (most recent call last):
    saddle_jax.base.checks.ArgumentError: n must be an integer >= 2, got 0
    """


def real(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
) -> Any:
    """Checks that `value` is a finite number inside the given bounds and returns it as a Python float.

    JAX arrays are returned unchecked: inside jit or vmap a hyperparameter may be traced, without a known
    value. The result is a Python float because it, unlike a NumPy float, does not promote the dtype of the
    parameters.
    """
    if is_array(value):
        return value
    try:
        number = math.nan if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (above < number < below and at_least <= number <= at_most and math.isfinite(number)):
        raise ArgumentError(
            f"{name} must be a number {_interval(above, at_least, below, at_most)}, got {value!r}"
        )
    return number


def is_array(value: Any) -> bool:
    """Returns whether a value is a JAX array, traced or not, such as a hyperparameter in a method's state."""
    jax = sys.modules.get("jax")  # without JAX there are no such values
    return jax is not None and isinstance(value, jax.Array)


def whole(name: str, value: Any, *, at_least: int, at_most: float = math.inf) -> int:
    """Checks that `value` is an integer in [at_least, at_most] and returns it as a Python int."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not at_least <= number <= at_most:
        upper = "" if at_most == math.inf else f" and <= {at_most}"
        raise ArgumentError(f"{name} must be an integer >= {at_least}{upper}, got {value!r}")
    return number


def is_integer_text(text: str) -> bool:
    """Returns whether a text is a non-negative integer in digits 0-9, short enough for Python to parse."""
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS


def choice(name: str, value: Any, allowed: Collection[str]) -> None:
    """Checks that `value` is one of the allowed names."""
    if value not in allowed:
        names = ", ".join(repr(option) for option in allowed)
        raise ArgumentError(f"{name} must be one of {names}, got {value!r}")


def known(name: str, value: Any, allowed: Collection[str]) -> None:
    """Checks that `value` is one of the allowed names, and suggests the nearest one otherwise."""
    if value not in allowed:
        raise ArgumentError(
            f"{suggestion(value, allowed)}{name} must be one of {', '.join(allowed)}, got {value!r}"
        )


def suggestion(value: Any, names: Collection[str]) -> str:
    """Returns "did you mean ...?" with the nearest allowed name, or an empty text if none is near.

    Messages begin with it, because the list of allowed names that follows may be long.
    """
    found = nearest(value, names)
    return "" if found is None else f"did you mean {found!r}? "


def nearest(value: Any, names: Collection[str]) -> str | None:
    """Returns the name that the user may have meant: a synonym from the field, or the most similar name."""
    usual = ALSO_CALLED.get(str(value))
    if usual in names:
        return usual
    return next(iter(difflib.get_close_matches(str(value), list(names), n=1)), None)


def instance(name: str, value: Any, kind: type | tuple[type, ...], examples: str) -> None:
    """Checks that `value` is an instance of `kind`; the error suggests `examples`."""
    if not isinstance(value, kind):
        first = kind[0] if isinstance(kind, tuple) else kind
        raise ArgumentError(f"{name} must be a {first.__name__}, such as {examples}, got {value!r}")


def schedule(value: Any, name: str = "learning_rate", at_most: float = math.inf) -> Callable[[Any], Any]:
    """Converts a positive number or a function of the step into a function of the step."""
    if callable(value):
        rate_at: Callable[[Any], Any] = value
        return rate_at
    rate = real(name, value, above=0.0, at_most=at_most)
    return lambda step: rate


def argument_text(value: Any) -> str:
    """Formats an argument of a call in one line; traced numbers and long values become "..."."""
    if is_array(value) and isinstance(value, sys.modules["jax"].core.Tracer):
        return "..."
    if inspect.isfunction(value):  # an optax schedule is named after its factory
        maker = value.__qualname__.split(".<locals>")[0].rpartition(".")[2]
        return f"{maker}(...)" if value.__closure__ else value.__name__
    is_number = hasattr(value, "item") and getattr(value, "ndim", None) == 0
    text = repr(value.item() if is_number else value)
    return text if text.isprintable() and " at 0x" not in text else f"{type(value).__name__}(...)"


def _interval(above: float, at_least: float, below: float, at_most: float) -> str:
    bounds = [
        f"{sign} {bound:g}"
        for sign, bound in ((">", above), (">=", at_least), ("<", below), ("<=", at_most))
        if math.isfinite(bound)
    ]
    return " and ".join(bounds) if bounds else "that is finite"


def shown(thing: Any) -> str:
    """Describes an object of the wrong type in one line, however large it is."""
    text = repr(thing)
    return text if len(text) < 100 and text.isprintable() else f"a {type(thing).__name__}"
