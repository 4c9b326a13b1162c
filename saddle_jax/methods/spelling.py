"""Methods as settings spell them: qgm, gradient_tracking(variant=diging), gut(mu=0.5), mine.py:method."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from saddle_jax.base import brought, calls, spelt, tables
from saddle_jax.core.method import Method
from saddle_jax.core.mixing import Graphs
from saddle_jax.methods import METHODS, options_of

# What the settings of a run say elsewhere, and a spelling does not.
_ELSEWHERE = ("topology", "learning_rate", "compressor")


@functools.lru_cache(maxsize=256)
def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """Returns the name of a method and the options that its spelling gives, both checked.

    The options of what is not ours are checked when it is made.
    """
    name, options = spelt.parse("method", text, METHODS)
    if spelt.is_ours(name, METHODS):
        _check_options(name, options)
    return name, options


def is_ours(text: str) -> bool:
    """Tells whether a method is of this package; of others nothing is known before they are imported."""
    return spelt.is_ours(parse_method(text)[0], METHODS)


def leaves_open(text: str, option: str) -> bool:
    """Tells whether a spelt method has an option that its spelling leaves open; imports what is not ours."""
    name, options = parse_method(text)
    return option in options_of(name) and option not in options


def parameter(text: str, option: str) -> inspect.Parameter:
    """Returns the parameter of a spelt method's factory that an option is; imports what is not ours."""
    return tables.options(spelt.factory("method", parse_method(text)[0], METHODS))[option]


def make_method(
    text: str,
    topology: Graphs,
    learning_rate: Callable[[Any], Any],
    instead: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Method:
    """Makes the method that a text spells, on a graph.

    Args:
      text: such as "gut(mu=0.5)".
      topology: who hears whom.
      learning_rate: a function of the step.
      instead: values in place of those that the text gives; they may be traced.
      settings: options that the text leaves open.
    """
    name, options = parse_method(text)
    options = {**options, **(instead or {})}
    factory = spelt.factory("method", name, METHODS)
    if is_ours(text):
        return factory(topology, learning_rate=learning_rate, **settings | options)
    _check_options(name, options)
    given = {"learning_rate": learning_rate} | settings | options
    made: Method = brought.call("method", name, factory, given, Method, topology)
    return made


def _check_options(name: str, options: dict[str, Any]) -> None:
    calls.check_options("method", name, options, sorted(options_of(name) - set(_ELSEWHERE)))
