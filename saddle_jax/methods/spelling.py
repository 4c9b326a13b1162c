"""Methods as settings spell them: qgm, gradient_tracking(variant=diging), gut(mu=0.5)."""

import functools
from typing import Any

from saddle_jax.base import calls, checks
from saddle_jax.methods import METHODS, options_of

# What the settings of a run say elsewhere, and a spelling does not.
_ELSEWHERE = ("topology", "learning_rate", "compressor")


@functools.lru_cache(maxsize=256)
def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """Returns the name of a method and the options that its spelling gives, both checked."""
    name, options = calls.parse("method", text)
    checks.known("method", name, METHODS)
    allowed = sorted(options_of(name) - set(_ELSEWHERE))
    calls.check_options("method", name, options, allowed)
    return name, options


def leaves_open(text: str, option: str) -> bool:
    """Tells whether a spelt method has an option that its spelling leaves open."""
    name, options = parse_method(text)
    return option in options_of(name) and option not in options
