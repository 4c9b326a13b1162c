"""Ascents as settings spell them: none, sam, asam(rho=0.5), looksam(every=10, alpha=0.5), mine.py:ascent."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from saddle_jax.base import brought, calls, spelt, tables
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.ascent import Ascent
from saddle_jax.sam import ASCENTS

# Options that are functions, which a text cannot give.
_FUNCTIONS = ("share",)
_NONE = ("auto", "none")


def parse_ascent(text: str) -> tuple[str, dict[str, Any]]:
    """Returns the name of an ascent and the options that its spelling gives, both checked.

    The options of what is not ours are checked when it is made.
    """
    name, options = spelt.parse("ascent", text, ASCENTS, _NONE)
    if name in _NONE or spelt.is_ours(name, ASCENTS):
        calls.check_options("ascent", name, options, _options(name))
    return name, options


def is_ours(text: str) -> bool:
    """Tells whether an ascent is of this package; of others nothing is known before they are imported."""
    name, _ = parse_ascent(text)
    return name in _NONE or spelt.is_ours(name, ASCENTS)


def leaves_open(text: str, option: str) -> bool:
    """Tells whether a spelt ascent has an option that its spelling leaves open; imports what is not ours."""
    name, options = parse_ascent(text)
    return option in _options(name) and option not in options


def parameter(text: str, option: str) -> inspect.Parameter:
    """Returns the parameter of a spelt ascent's factory that an option is; imports what is not ours."""
    return tables.options(spelt.factory("ascent", parse_ascent(text)[0], ASCENTS))[option]


def make_ascent(
    text: str,
    share: Callable[[Any], Any] | None = None,
    instead: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Ascent[Any]:
    """Makes the ascent that a text spells.

    Args:
      text: such as "looksam(every=10)"; "none" is the plain gradient.
      share: the learning rate as a share of its largest, for GSAM's radius.
      instead: values in place of those that the text gives; they may be traced.
      settings: options that the text leaves open; those that the ascent does not have are left out, and all
        of them if it is not ours.
    """
    name, options = parse_ascent(text)
    if name in _NONE:
        return ASCENTS["plain"]()
    if not spelt.is_ours(name, ASCENTS):
        return _brought(text, instead or {}, share)
    options = {**options, **(instead or {})}
    open_options = {
        key: value for key, value in settings.items() if leaves_open(text, key) and key not in options
    }
    functions = {"share": share} if "share" in tables.options(ASCENTS[name]) else {}
    if name == "sam" and "rho" not in {**open_options, **options}:
        raise ArgumentError(f"ascent must say the rho of sam, as sam(rho=0.1), got {text!r}")
    return ASCENTS[name](**functions, **open_options, **options)


def _brought(text: str, instead: Mapping[str, Any], share: Any) -> Ascent[Any]:
    made: Ascent[Any]
    if not instead:
        made = spelt.make("ascent", text, ASCENTS, Ascent, share=share)
    else:
        name, options = parse_ascent(text)
        factory = spelt.factory("ascent", name, ASCENTS)
        made = brought.call("ascent", name, factory, {**options, **instead}, Ascent, share=share)
    return made


def _options(name: str) -> list[str]:
    if name in _NONE:
        return []
    factory = spelt.factory("ascent", name, ASCENTS)
    return sorted(option for option in tables.options(factory) if option not in _FUNCTIONS)
