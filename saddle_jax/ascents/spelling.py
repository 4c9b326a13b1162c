"""Ascents as settings spell them: none, sam, asam, looksam(every=10, alpha=0.5), esam(gamma=0.3)."""

import ast
from typing import Any

from saddle_jax.ascents import ASCENTS
from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.tables import options
from saddle_jax.core.ascent import Ascent


def parse_ascent(text: str, rho: Any = None, every: Any = None, reuse: Any = None) -> Ascent[Any]:
    """Makes an ascent from the call that makes it; options are literals, nothing is evaluated.

    Args:
      text: a name of the table, or a call of it; "none" is `sj.plain()`.
      rho: the radius where the text has none; None leaves the ascent's own.
      every: how often it climbs where the text does not say; None leaves the ascent's own.
      reuse: whether a perturbation is used again where the text does not say; None leaves the ascent's own.

    `rho`, `every` and `reuse` fill what the text leaves open, in ascents that have such an option.
    """
    name, said = _read(text)
    checks.known("ascent", name, ["none", *ASCENTS])
    name = "plain" if name == "none" else name
    allowed = options(ASCENTS[name])
    for option in said:
        if option not in allowed:
            offered = ", ".join(allowed) or "none"
            nearest = checks.did_you_mean(option, allowed)
            raise ArgumentError(f"ascent {name} must have options of {offered}, got {option!r}{nearest}")
    settings = {"rho": rho, "every": every, "reuse": reuse}
    given = {option: value for option, value in settings.items() if value is not None and option in allowed}
    given.update(said)
    for option, parameter in allowed.items():
        if parameter.default is parameter.empty and option not in given:
            raise ArgumentError(
                f"ascent must say the {option} of {name}, as {name}({option}=0.1), got {text!r}"
            )
    return ASCENTS[name](**given)


def _read(text: str) -> tuple[str, dict[str, Any]]:
    """Reads a name, or a call with literals by their names, and returns the name and the options."""
    expected = "ascent must be a name or a call such as 'looksam(every=10, alpha=0.5)'"
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (AttributeError, SyntaxError, ValueError):  # no text, no Python, or zeros in it
        raise ArgumentError(f"{expected}, got {text!r}") from None
    if isinstance(call, ast.Name):
        return call.id, {}
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ArgumentError(f"{expected}, got {text!r}")
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise ArgumentError(f"{expected}, with its options named, got {text!r}")
    try:
        said = [(str(keyword.arg), ast.literal_eval(keyword.value)) for keyword in call.keywords]
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise ArgumentError(f"{expected}, with numbers, True or False as options, got {text!r}") from None
    if len(dict(said)) < len(said):
        raise ArgumentError(f"{expected}, with each option once, got {text!r}")
    return call.func.id, dict(said)
