"""saddle methods, saddle gradients: what there is, what it costs and requires, and its options."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from absl import flags

from saddle_jax.base import checks
from saddle_jax.base.registry import is_code
from saddle_jax.base.user_code import UserCodeError
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.methods import METHODS
from saddle_jax.report import algorithms
from saddle_jax.report import algorithms as texts

_T = TypeVar("_T")


def show_methods(arguments: Sequence[str]) -> None:
    """Prints the table of methods, or all that is to be said of one."""
    output, names = _read(
        arguments, "method", [*METHODS], algorithms.facts_of_method, texts.options_of_method
    )
    with mistakes():
        if names and not output.is_json:
            output.say(texts.describe_method(names[0]))
        elif not output.is_json:
            rows = texts.method_rows(_of_each(algorithms.facts_of_method, [*METHODS]))
            output.table(rows, spare=("citation", "requires", "exact"))
            output.note(texts.about_methods())


def show_gradients(arguments: Sequence[str]) -> None:
    """Prints the table of estimators, or all that is to be said of one."""
    known = algorithms.gradients()
    output, names = _read(
        arguments, "gradient", known, algorithms.facts_of_gradient, texts.options_of_gradient
    )
    with mistakes():
        if names and not output.is_json:
            output.say(texts.describe_gradient(names[0]))
        elif not output.is_json:
            rows = texts.gradient_rows(_of_each(algorithms.facts_of_gradient, known))
            output.table(rows, spare=("citation",))
            output.note(texts.about_gradients())


def _read(
    arguments: Sequence[str],
    what: str,
    names: Sequence[str],
    facts: Callable[[str], Any],
    options_of: Callable[[str], Sequence[Any]],
) -> tuple[Output, list[str]]:
    """Reads the arguments; returns how to print and the name, if one is given; prints JSON if wanted."""
    options = flags.FlagValues()
    output_options(options)
    given = parse(options, arguments, ["[NAME]"])

    def record(name: str) -> dict[str, Any]:
        own_options = [dataclasses.asdict(each) for each in options_of(name)]
        return dataclasses.asdict(facts(name)) | {"options": own_options}

    with mistakes():
        for name in given:
            if not is_code(name):
                checks.known(what, name, names)
        output = Output(options)
        if output.is_json:
            output.give([record(name) for name in given] if given else _of_each(record, names))
    return output, given


def _of_each(facts: Callable[[str], _T], names: Sequence[str]) -> list[_T]:
    """Returns the facts of all; what an installed package fails to give is reported and left out."""
    found = []
    for name in names:
        try:
            found.append(facts(name))
        except UserCodeError as error:
            print(f"saddle: {error}", file=sys.stderr)
    return found
