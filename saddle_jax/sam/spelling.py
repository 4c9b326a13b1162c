"""Gradient estimators as settings spell them: none, sam, looksam(every=10, alpha=0.5), mine.py:estimator."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from saddle_jax.base import brought, calls, spelt, tables
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.estimator import GradientEstimator
from saddle_jax.sam import GRADIENTS

# Options that are functions, which a text cannot give.
_FUNCTIONS = ("share",)
_NONE = ("auto", "none")


def parse_gradient(text: str) -> tuple[str, dict[str, Any]]:
    """Returns the name of an estimator and the options that its spelling gives, both checked.

    The options of what is not ours are checked when it is made.
    """
    name, options = spelt.parse("gradient", text, GRADIENTS, _NONE)
    if name in _NONE or spelt.is_ours(name, GRADIENTS):
        calls.check_options("gradient", name, options, _options(name))
    return name, options


def is_ours(text: str) -> bool:
    """Tells whether an estimator is of this package; of others nothing is known before they are imported."""
    name, _ = parse_gradient(text)
    return name in _NONE or spelt.is_ours(name, GRADIENTS)


def leaves_open(text: str, option: str) -> bool:
    """Tells whether a spelt estimator has an option that is left open; imports what is not ours."""
    name, options = parse_gradient(text)
    return option in _options(name) and option not in options


def parameter(text: str, option: str) -> inspect.Parameter:
    """Returns the parameter of a spelt estimator's factory that an option is; imports what is not ours."""
    return tables.options(spelt.factory("gradient", parse_gradient(text)[0], GRADIENTS))[option]


def make_gradient(
    text: str,
    share: Callable[[Any], Any] | None = None,
    instead: Mapping[str, Any] | None = None,
    **settings: Any,
) -> GradientEstimator[Any]:
    """Makes the estimator that a text spells.

    Args:
      text: such as "looksam(every=10)"; "none" is the plain gradient.
      share: the learning rate as a share of its largest, for GSAM's radius.
      instead: values in place of those that the text gives; they may be traced.
      settings: options that the text leaves open; those that the estimator does not have are left out, and
        all of them if it is not ours.
    """
    name, options = parse_gradient(text)
    if name in _NONE:
        return GRADIENTS["plain"]()
    if not spelt.is_ours(name, GRADIENTS):
        return _brought(text, instead or {}, share)
    options = {**options, **(instead or {})}
    open_options = {
        key: value for key, value in settings.items() if leaves_open(text, key) and key not in options
    }
    functions = {"share": share} if "share" in tables.options(GRADIENTS[name]) else {}
    if name == "sam" and "rho" not in {**open_options, **options}:
        raise ArgumentError(f"gradient must say the rho of sam, as sam(rho=0.1), got {text!r}")
    return GRADIENTS[name](**functions, **open_options, **options)


def _brought(text: str, instead: Mapping[str, Any], share: Any) -> GradientEstimator[Any]:
    made: GradientEstimator[Any]
    if not instead:
        made = spelt.make("gradient", text, GRADIENTS, GradientEstimator, share=share)
    else:
        name, options = parse_gradient(text)
        factory = spelt.factory("gradient", name, GRADIENTS)
        made = brought.call("gradient", name, factory, {**options, **instead}, GradientEstimator, share=share)
    return made


def _options(name: str) -> list[str]:
    if name in _NONE:
        return []
    factory = spelt.factory("gradient", name, GRADIENTS)
    return sorted(option for option in tables.options(factory) if option not in _FUNCTIONS)
