"""Ascents as settings spell them: none, sam, asam(rho=0.5), looksam(every=10, alpha=0.5), mine.py:ascent."""

from collections.abc import Callable
from typing import Any

from saddle_jax.ascents import ASCENTS
from saddle_jax.base import calls, spelt, tables
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.ascent import Ascent

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


def leaves_open(text: str, option: str) -> bool:
    """Tells whether a spelt ascent has an option that its spelling leaves open."""
    name, options = parse_ascent(text)
    return option in _options(name) and option not in options


def make_ascent(text: str, share: Callable[[Any], Any] | None = None, **settings: Any) -> Ascent[Any]:
    """Makes the ascent that a text spells.

    Args:
      text: such as "looksam(every=10)"; "none" is the plain gradient.
      share: the learning rate as a share of its largest, for GSAM's radius.
      settings: options that the text leaves open; those that the ascent does not have are left out, and all
        of them if it is not ours.
    """
    name, options = parse_ascent(text)
    if name in _NONE:
        return ASCENTS["plain"]()
    if not spelt.is_ours(name, ASCENTS):
        other: Ascent[Any] = spelt.make("ascent", text, ASCENTS, Ascent, share=share)
        return other
    open_options = {key: value for key, value in settings.items() if leaves_open(text, key)}
    functions = {"share": share} if "share" in tables.options(ASCENTS[name]) else {}
    if name == "sam" and "rho" not in {**open_options, **options}:
        raise ArgumentError(f"ascent must say the rho of sam, as sam(rho=0.1), got {text!r}")
    return ASCENTS[name](**functions, **open_options, **options)


def _options(name: str) -> list[str]:
    if name in _NONE:
        return []
    return sorted(option for option in tables.options(ASCENTS[name]) if option not in _FUNCTIONS)
