"""saddle methods, saddle ascents: what there is, what it costs and demands, and its options."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from saddle_jax.base import checks
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.methods import METHODS
from saddle_jax.report import algorithm_texts as texts
from saddle_jax.report import algorithms


def show_methods(arguments: Sequence[str]) -> None:
    """Prints the table of methods, or all that is to be said of one."""
    name = _show(arguments, "method", [*METHODS], algorithms.facts_of_method, texts.options_of_method)
    if name:
        print(texts.describe_method(name))
    elif name is not None:
        print(texts.table_of_methods([algorithms.facts_of_method(each) for each in METHODS]))


def show_ascents(arguments: Sequence[str]) -> None:
    """Prints the table of ascents, or all that is to be said of one."""
    names = algorithms.ascents()
    name = _show(arguments, "ascent", names, algorithms.facts_of_ascent, texts.options_of_ascent)
    if name:
        print(texts.describe_ascent(name))
    elif name is not None:
        print(texts.table_of_ascents([algorithms.facts_of_ascent(each) for each in names]))


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
    with mistakes():
        for name in given:
            checks.known(what, name, names)
    if not options.json:
        return given[0] if given else ""
    records = [
        dataclasses.asdict(facts(name)) | {"options": [dataclasses.asdict(each) for each in options_of(name)]}
        for name in given or names
    ]
    print(json.dumps(records, indent=1))
    return None
