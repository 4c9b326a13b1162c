"""The help texts: of the whole command, and of each verb with its options in groups."""

import sys
import textwrap
from collections.abc import Sequence

from absl import flags

from saddle_jax.base import terminal
from saddle_jax.cli.descriptions import DESCRIPTIONS, SECTIONS
from saddle_jax.cli.option_texts import WIDTH, entry, groups

_INDENT = 17


class HelpWanted(Exception):  # noqa: N818 (it is no error)
    """Somebody asks for the help of a verb, whose options and arguments it carries."""

    def __init__(self, options: flags.FlagValues, positional: Sequence[str]):
        super().__init__("--help")
        self.options, self.positional = options, positional


def overview() -> str:
    """Returns the help that lists all verbs, in sections."""
    parts = ["usage: saddle VERB [arguments] [options]"]
    for title, verbs in SECTIONS.items():
        shown = [entry(verb, said.meaning, _INDENT) for verb, said in verbs.items()]
        parts.append("\n".join([_heading(title), *shown]))
    parts.append("saddle VERB --help shows the arguments and options of a verb.")
    return "\n\n".join(parts) + "\n"


def of_verb(name: str, wanted: HelpWanted) -> str:
    """Returns the help of one verb: usage, a sentence, an example, and its options in groups."""
    said = DESCRIPTIONS[name]
    usage = " ".join(["usage: saddle", name, *wanted.positional, "[options]"])
    parts = [usage, *textwrap.wrap(said.meaning, WIDTH)]
    if said.example:
        parts += ["", f"Example: saddle {said.example}"]
    subverbs = {verb: one.meaning for verb, one in DESCRIPTIONS.items() if verb.startswith(f"{name} ")}
    text = "\n".join(parts)
    if subverbs:
        text += "\n\n" + "\n".join(entry(verb, meaning, _INDENT) for verb, meaning in subverbs.items())
    for title, lines in groups(wanted.options):
        text += f"\n\n{_heading(title)}\n" + "\n".join(lines)
    return text + "\n"


def named(verb: str, arguments: Sequence[str]) -> str:
    """Returns the name under which a call is described: "data list" where a verb has verbs of its own."""
    whole = " ".join([verb, *arguments[:1]])
    return whole if whole in DESCRIPTIONS else verb


def _heading(title: str) -> str:
    return terminal.painted(title, "bold", sys.stdout)
