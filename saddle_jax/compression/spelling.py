"""Compressors as settings spell them: quantize8, quantize2_biased, top_k0.3, low_rank2, sign."""

import inspect
import re

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.tables import options
from saddle_jax.compression import COMPRESSORS
from saddle_jax.compression.base import Compressor


def parse_compressor(text: str) -> Compressor | None:
    """Makes a compressor from its short name: the table's name, the number it takes first, and a switch."""
    if text == "none":
        return None
    match = re.fullmatch(r"([a-z_]+)(?:(\d*\.?\d+)(?:_([a-z]+))?)?", text)
    name, number, switch = match.groups() if match else ("", None, None)
    if name not in COMPRESSORS or not _fits(list(options(COMPRESSORS[name]).values()), number, switch):
        raise ArgumentError(f"compressor must be one of {', '.join(spellings())}, got {text!r}")
    if number is None:
        return COMPRESSORS[name]()
    first, *_ = options(COMPRESSORS[name]).values()
    chosen = {} if switch is None else {switch: True}
    return COMPRESSORS[name](int(number) if first.annotation is int else float(number), **chosen)


def spellings() -> list[str]:
    """Returns how each compressor is spelt, such as "none", "quantizeBITS", "quantizeBITS_biased"."""
    found = ["none"]
    for name, factory in COMPRESSORS.items():
        parameters = list(options(factory).values())
        spelt = name + (parameters[0].name.upper() if parameters else "")
        found += [spelt, *(f"{spelt}_{switch}" for switch in _switches(parameters))]
    return found


def _switches(parameters: list[inspect.Parameter]) -> list[str]:
    return [parameter.name for parameter in parameters[1:] if parameter.annotation is bool]


def _fits(parameters: list[inspect.Parameter], number: str | None, switch: str | None) -> bool:
    """Tells whether a factory with these parameters takes such a number and such a switch."""
    if number is None:
        return not parameters
    if not parameters or (parameters[0].annotation is int and not number.isdecimal()):
        return False
    return switch is None or switch in _switches(parameters)
