"""Methods as settings spell them: qgm, gradient_tracking(variant=diging), gut(mu=0.5), mine.py:method."""

import functools
from collections.abc import Callable
from typing import Any

from saddle_jax.base import brought, calls, spelt
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


def make_method(text: str, topology: Graphs, learning_rate: Callable[[Any], Any], **settings: Any) -> Method:
    """Makes the method that a text spells, on a graph; `settings` are options that the text leaves open."""
    name, options = parse_method(text)
    factory = spelt.factory("method", name, METHODS)
    if is_ours(text):
        return factory(topology, learning_rate=learning_rate, **settings | options)
    _check_options(name, options)
    given = {"learning_rate": learning_rate} | settings | options
    made: Method = brought.call("method", name, factory, given, Method, topology)
    return made


def _check_options(name: str, options: dict[str, Any]) -> None:
    calls.check_options("method", name, options, sorted(options_of(name) - set(_ELSEWHERE)))
