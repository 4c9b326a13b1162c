"""How verbs print: tables that fit the terminal, notes around them, or one JSON value in place of both."""

import json
import math
import re
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from saddle_jax.base import terminal
from saddle_jax.base.errors import printable
from saddle_jax.report.tables import fit

_STYLES = {
    "red": ("FAILS", "diverged", r"diverged\*", "contradicted", "broken", "violated"),
    "yellow": ("running", "interrupted", "missing", "unreadable", "not shown"),
    "green": ("holds", "finished", "shown", "ok", "yes"),
}
_COLOURED = [
    (re.compile(rf"(?:^|(?<=  ))(?:{'|'.join(words)})(?=  |$)"), style) for style, words in _STYLES.items()
]


def output_options(options: flags.FlagValues) -> None:
    """Defines --quiet and --json, which every verb with a table has."""
    quiet = "Print the results alone, without notes and progress."
    flags.DEFINE_bool("quiet", False, quiet, flag_values=options)
    flags.DEFINE_bool("json", False, "Print the results as JSON alone.", flag_values=options)


def width() -> int | None:
    """Returns the columns that standard output has; None where it is no terminal."""
    return terminal.width_of(sys.stdout)


class Output:
    """Prints what a verb has found, as its options --quiet and --json say.

    Attributes:
      is_json: whether a program reads standard output, which is one JSON value.
      is_silent: whether anything but results is left out.
    """

    def __init__(self, options: flags.FlagValues):
        self.is_json: bool = options.json
        self.is_silent: bool = options.quiet or options.json

    def note(self, text: str = "") -> None:
        """Prints a line around the results: what happens, what was written, what to do next."""
        if not self.is_silent:
            print(text, flush=True)

    def say(self, text: str) -> None:
        """Prints a result that is no table."""
        if not self.is_json:
            print(text, flush=True)

    def table(self, rows: Sequence[Sequence[str]], title: str = "", spare: Sequence[str] = ()) -> None:
        """Prints rows under their heading; on a terminal they fit it, without the columns `spare` if need be.

        `spare` names them by their headings, the least important first. Files and pipes get all columns.
        """
        if self.is_json:
            return
        if title:
            self.say(title)
        cells = [[printable(cell) for cell in row] for row in rows]
        found = fit(cells, width(), spare)
        for number, line in enumerate(found.lines):
            print(terminal.painted(line, "bold", sys.stdout) if number < found.heading else _painted(line))
        if found.left_out:
            self.note(f"(left out here: {', '.join(found.left_out)}; a wider terminal or --json shows all)")

    def give(self, value: Any) -> None:
        """Prints the JSON value, if it was asked for."""
        if self.is_json:
            print(json.dumps(_finite(value), indent=1, allow_nan=False), flush=True)


def _finite(content: Any) -> Any:
    """Replaces numbers that are not finite, such as those of a diverged run, by None: JSON has none."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _painted(line: str) -> str:
    """Returns a line of a table with the words that tell how something ended in their colours."""
    if terminal.has_colours(sys.stdout):
        for words, style in _COLOURED:
            line = words.sub(terminal.painted(r"\g<0>", style, sys.stdout), line)
    return line
