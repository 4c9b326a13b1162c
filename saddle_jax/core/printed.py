"""How a method prints: as the call that makes it, with the options that differ from their defaults.

    saddle(qgm(ring(8), learning_rate=0.1, compressor=top_k(density=0.5), gamma=0.4), gradient=sam(rho=0.05))

What was put in the place of a part later on is told as well, as `dataclasses.replace` does it. Only text is
kept of the options: they may be traced numbers or large arrays.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

import jax
import numpy as np

from saddle_jax.core.graphs import TimeVarying
from saddle_jax.core.topology import Topology

if TYPE_CHECKING:
    from saddle_jax.core.method import Method

_P = ParamSpec("_P")


class Call(NamedTuple):
    """A call is the text of what made a method, and the parts that the method had then."""

    text: str
    rule: Any
    parts: dict[str, str]  # the others, as they print


def printed(factory: Callable[_P, "Method"]) -> Callable[_P, "Method"]:
    """Lets the methods that a factory makes print as the call that makes them."""
    signature = inspect.signature(factory)
    usual = {name: _shown(parameter.default) for name, parameter in signature.parameters.items()}

    @functools.wraps(factory)
    def make(*args: _P.args, **options: _P.kwargs) -> "Method":
        method = factory(*args, **options)
        given = {name: _shown(it) for name, it in signature.bind(*args, **options).arguments.items()}
        topology, *others = given.items()
        words = [topology[1], *(f"{name}={text}" for name, text in others if text != usual[name])]
        text = f"{factory.__name__}({', '.join(words)})"
        return dataclasses.replace(method, call=Call(text, method.rule, _parts(method)))

    return make


def text_of(method: "Method") -> str:
    """Returns what a method prints, one line."""
    parts, call = _parts(method), method.call
    if call is None or call.rule is not method.rule:
        text = f"Method({parts['name']}, {parts['topology']}, ..., {parts['gradient']})"
        call = Call(text, method.rule, parts | {"faults": "None", "timing": "None"})
    changed = [f"{name}={part}" for name, part in parts.items() if part != call.parts[name]]
    return f"dataclasses.replace({call.text}, {', '.join(changed)})" if changed else call.text


def _parts(method: "Method") -> dict[str, str]:
    names = ("name", "topology", "gradient", "faults", "timing")
    return {name: _shown(getattr(method, name)) for name in names}


def _shown(value: Any) -> str:
    if isinstance(value, jax.core.Tracer):
        return "..."
    if isinstance(value, Topology | TimeVarying):
        return value.name
    if inspect.isfunction(value):  # such as a schedule: what optax returns is named after what made it
        maker = value.__qualname__.split(".<locals>")[0].rpartition(".")[2]
        return f"{maker}(...)" if value.__closure__ else value.__name__
    is_number = isinstance(value, np.generic | jax.Array) and value.ndim == 0
    text = repr(value.item() if is_number else value)
    return text if text.isprintable() and " at 0x" not in text else f"{type(value).__name__}(...)"
