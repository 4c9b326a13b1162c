"""How a setting is declared: its default, its meaning and its check."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from saddle_jax.base import brought, checks


def setting(
    default: Any, meaning: str, check: Callable[[str, Any], Any] | None = None, no_number: float | None = None
) -> Any:
    """Declares a setting; its help is `meaning` and, unless that names it, the default.

    `no_number` is a value that stands for something else than this number.
    """
    if "(default" not in meaning:
        value = str(default).lower() if isinstance(default, bool) else default
        meaning = f"{meaning} (default {value})"
    return dataclasses.field(
        default=default, metadata={"meaning": meaning, "check": check, "no_number": no_number}
    )


def one_of(allowed: Any) -> Callable[[str, Any], Any]:
    """Makes a check that a setting is one of the allowed names."""
    return lambda name, value: checks.known(name, value, allowed)


def any_name(name: str, value: Any) -> None:
    """Passes every name: one that nobody knows is told when it is looked up."""


def or_brought(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """Makes a check that passes what is brought by its form alone, and what else passes `check`."""

    def checked(name: str, value: Any) -> None:
        if brought.is_brought(value):
            brought.parse(name, value)
        else:
            check(name, value)

    return checked


def whole(at_least: int, at_most: float = math.inf) -> Callable[[str, Any], Any]:
    """Makes a check that a setting is an integer inside the given bounds."""
    return lambda name, value: checks.whole(name, value, at_least=at_least, at_most=at_most)


def real(**bounds: float) -> Callable[[str, Any], Any]:
    """Makes a check that a setting is a number inside the given bounds."""
    return lambda name, value: checks.real(name, value, **bounds)
