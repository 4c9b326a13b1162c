"""saddle methods, saddle ascents: what there is, what it costs and demands, and its options."""

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from absl import flags

from saddle_jax.base import brought, checks
from saddle_jax.base.brought import BroughtError
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.methods import METHODS
from saddle_jax.report import algorithm_texts as texts
from saddle_jax.report import algorithms

_T = TypeVar("_T")


def show_methods(arguments: Sequence[str]) -> None:
    """Prints the table of methods, or all that is to be said of one."""
    name = _show(arguments, "method", [*METHODS], algorithms.facts_of_method, texts.options_of_method)
    with mistakes():
        if name:
            print(texts.describe_method(name))
        elif name is not None:
            print(texts.table_of_methods(_of_each(algorithms.facts_of_method, [*METHODS])))


def show_ascents(arguments: Sequence[str]) -> None:
    """Prints the table of ascents, or all that is to be said of one."""
    names = algorithms.ascents()
    name = _show(arguments, "ascent", names, algorithms.facts_of_ascent, texts.options_of_ascent)
    with mistakes():
        if name:
            print(texts.describe_ascent(name))
        elif name is not None:
            print(texts.table_of_ascents(_of_each(algorithms.facts_of_ascent, names)))


def _show(
    arguments: Sequence[str],
    what: str,
    names: Sequence[str],
    facts: Callable[[str], Any],
    options_of: Callable[[str], Sequence[Any]],
) -> str | None:
    """Reads the arguments; returns the name, "" for all, or None if JSON was wanted and is printed."""
    options = flags.FlagValues()
    flags.DEFINE_bool("json", False, "Print a JSON list.", flag_values=options)
    given = parse(options, arguments, ["[NAME]"])

    def record(name: str) -> dict[str, Any]:
        own_options = [dataclasses.asdict(each) for each in options_of(name)]
        return dataclasses.asdict(facts(name)) | {"options": own_options}

    with mistakes():
        for name in given:
            if not brought.is_brought(name):
                checks.known(what, name, names)
        if not options.json:
            return given[0] if given else ""
        records = [record(name) for name in given] if given else _of_each(record, names)
    print(json.dumps(records, indent=1))
    return None


def _of_each(facts: Callable[[str], _T], names: Sequence[str]) -> list[_T]:
    """Returns the facts of all; what an installed package fails to give is told in a line and left out."""
    found = []
    for name in names:
        try:
            found.append(facts(name))
        except BroughtError as error:
            print(f"saddle: {error}", file=sys.stderr)
    return found
