"""Methods as settings spell them: qgm, gradient_tracking(variant=diging), gut(mu=0.5), mine.py:method."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from saddle_jax.base import brought, calls, spelt, tables
from saddle_jax.core.gossip import choco, exact
from saddle_jax.core.method import Method
from saddle_jax.core.topology import Graphs
from saddle_jax.methods import METHODS, options_of

# What the settings of a run say elsewhere, and a spelling does not.
_ELSEWHERE = ("topology", "learning_rate", "compressor")
# Settings that are no options of their own where a method has a gossip, which says them.
OF_GOSSIP = ("order", "mixing")


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
    takes = options_of(name)
    if option in OF_GOSSIP and option not in takes:
        return "gossip" in takes and "gossip" not in options
    return option in takes and option not in options


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
    given = {"learning_rate": learning_rate} | settings | options
    if "gossip" in tables.options(factory):
        given = with_gossip(given)
    if is_ours(text):
        return factory(topology, **given)
    _check_options(name, options)
    made: Method = brought.call("method", name, factory, given, Method, topology)
    return made


def with_gossip(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a method's options with one `gossip` in the place of the settings that say parts of it."""
    rest = dict(options)
    order, mixing = rest.pop("order", "choco"), rest.pop("mixing", "auto")
    if "gossip" in rest or (order, mixing) == ("choco", "auto"):
        return rest
    compressor, gamma = rest.pop("compressor", None), rest.pop("gamma", 1.0)
    rest["gossip"] = exact(gamma, mixing) if compressor is None else choco(compressor, gamma, order, mixing)
    return rest


def _check_options(name: str, options: dict[str, Any]) -> None:
    calls.check_options("method", name, options, sorted(options_of(name) - set(_ELSEWHERE)))
