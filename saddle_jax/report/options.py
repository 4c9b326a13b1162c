"""What a factory's options are, and what they mean: read from its signature and its docstring."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from saddle_jax.base import tables
from saddle_jax.settings.config import Config

# What a run gives by itself.
_GIVEN = ("topology", "learning_rate", "share")


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of a method or ascent; `default` is None and `required` true where a run must give it.

    `is_setting` tells whether a setting of the same name gives it too.
    """

    name: str
    default: Any
    required: bool
    meaning: str
    is_setting: bool

    def line(self) -> str:
        """Returns the option and its default as a call shows them."""
        return self.name if self.required else f"{self.name}={self.default!r}"


def options_of(
    factory: Callable[..., Any], settings: Collection[str], others: Iterable[Callable[..., Any]] = ()
) -> list[Option]:
    """Lists a factory's options with their meanings.

    Args:
      factory: makes a method or an ascent.
      settings: the settings that give options of the same name, and whose meaning holds where no docstring
        says another.
      others: factories whose docstrings say what the factory's own does not, the nearest first.
    """
    fields = dataclasses.fields(Config)
    meanings: dict[str, str] = {
        each.name: each.metadata["meaning"] for each in fields if each.name in settings
    }
    for each in (*reversed([*others]), inspect.unwrap(factory), factory):
        meanings |= _arguments(inspect.getdoc(each) or "")
    return [
        Option(
            name,
            None if parameter.default is inspect.Parameter.empty else parameter.default,
            parameter.default is inspect.Parameter.empty,
            meanings.get(name, ""),
            name in settings,
        )
        for name, parameter in tables.options(factory).items()
        if name not in _GIVEN
    ]


def _arguments(docstring: str) -> dict[str, str]:
    """Returns what the part "Args:" of a docstring says of each argument, in one line each."""
    _, _, text = docstring.partition("Args:\n")
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if not line.startswith("  "):  # an empty line, or the next part
            break
        if begins := re.fullmatch(r"  (\w+): (.*)", line):
            name, found[begins.group(1)] = begins.groups()
        elif name:
            found[name] += f" {line.strip()}"
    return found
