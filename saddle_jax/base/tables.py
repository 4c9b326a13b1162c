"""Tables of names have one line for each thing, which says in which file it is.

    METHODS = load({"qgm": "saddle_jax.methods.qgm:qgm", ...})

So whoever adds a thing writes its file and one line. The places are written as packages write their entry
points, "module:name".
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def load(places: Mapping[str, str]) -> dict[str, Callable[..., Any]]:
    """Imports what stands at the places "module:name" of a table, and returns it under the table's names."""
    return {name: _find(place) for name, place in places.items()}


def options(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the parameters of a factory by name, in their order."""
    return dict(inspect.signature(factory).parameters)


def _find(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    thing: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return thing
