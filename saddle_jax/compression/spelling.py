"""Compressors as settings spell them: quantize8, quantize2_biased, top_k0.3, low_rank2, sign, mine.py:Mine.

The options of those that are not ours are written in brackets, mine.py:Mine(bits=3).
"""

import inspect
import re

from saddle_jax.base import brought, spelt
from saddle_jax.base.checks import ArgumentError, spells_whole
from saddle_jax.base.tables import options
from saddle_jax.base.types import Operator
from saddle_jax.compression import COMPRESSORS


def check_compressor(text: str) -> None:
    """Checks the spelling of a compressor; one that is not ours is not imported."""
    if is_ours(text):
        parse_compressor(text)
    else:
        spelt.parse("compressor", text, COMPRESSORS)


def is_ours(text: str) -> bool:
    """Tells whether a spelt compressor, or none, is of this package, or at least not of another one."""
    return not brought.is_brought(text) and text.partition("(")[0].strip() not in COMPRESSORS.installed


def parse_compressor(text: str) -> Operator | None:
    """Makes a compressor from its short name: the table's name, the number it takes first, and a switch."""
    if text == "none":
        return None
    if not is_ours(text):
        other: Operator = spelt.make("compressor", text, COMPRESSORS, Operator)
        return other
    match = re.fullmatch(r"([a-z_]+)(?:(\d*\.?\d+)(?:_([a-z]+))?)?", text, re.ASCII)
    name, number, switch = match.groups() if match else ("", None, None)
    if name not in COMPRESSORS.ours or not _fits(list(options(COMPRESSORS[name]).values()), number, switch):
        raise ArgumentError(f"compressor must be one of {', '.join(spellings())}, got {text!r}")
    if number is None:
        return COMPRESSORS[name]()
    first, *_ = options(COMPRESSORS[name]).values()
    chosen = {} if switch is None else {switch: True}
    return COMPRESSORS[name](int(number) if first.annotation is int else float(number), **chosen)


def spellings() -> list[str]:
    """Returns how each compressor is spelt, such as "none", "quantizeBITS", "quantizeBITS_biased"."""
    found = ["none"]
    for name in COMPRESSORS.ours:
        parameters = list(options(COMPRESSORS[name]).values())
        spelt = name + (parameters[0].name.upper() if parameters else "")
        found += [spelt, *(f"{spelt}_{switch}" for switch in _switches(parameters))]
    return [*found, *COMPRESSORS.installed]


def _switches(parameters: list[inspect.Parameter]) -> list[str]:
    return [parameter.name for parameter in parameters[1:] if parameter.annotation is bool]


def _fits(parameters: list[inspect.Parameter], number: str | None, switch: str | None) -> bool:
    """Tells whether a factory with these parameters takes such a number and such a switch."""
    if number is None:
        return not parameters
    if not parameters or (parameters[0].annotation is int and not spells_whole(number)):
        return False
    return switch is None or switch in _switches(parameters)
