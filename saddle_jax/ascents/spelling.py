"""Ascents as settings spell them: none, sam, asam(rho=0.5), looksam(every=10, alpha=0.5)."""

from collections.abc import Callable
from typing import Any

from saddle_jax.ascents import ASCENTS
from saddle_jax.base import calls, checks, tables
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.ascent import Ascent

# Options that are functions, which a text cannot give.
_FUNCTIONS = ("share",)
_NAMES = ["auto", "none", *ASCENTS]


def parse_ascent(text: str) -> tuple[str, dict[str, Any]]:
    """Returns the name of an ascent and the options that its spelling gives, both checked."""
    name, options = calls.parse("ascent", text)
    checks.known("ascent", name, _NAMES)
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
      settings: options that the text leaves open; those that the ascent does not have are left out.
    """
    name, options = parse_ascent(text)
    if name in ("auto", "none"):
        return ASCENTS["plain"]()
    open_options = {key: value for key, value in settings.items() if leaves_open(text, key)}
    functions = {"share": share} if "share" in tables.options(ASCENTS[name]) else {}
    if name == "sam" and "rho" not in {**open_options, **options}:
        raise ArgumentError(f"ascent must say the rho of sam, as sam(rho=0.1), got {text!r}")
    return ASCENTS[name](**functions, **open_options, **options)


def _options(name: str) -> list[str]:
    if name in ("auto", "none"):
        return []
    return sorted(option for option in tables.options(ASCENTS[name]) if option not in _FUNCTIONS)
