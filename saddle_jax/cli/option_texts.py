"""The options of a verb as its help shows them: in groups, each with its meaning and its default."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from absl import flags

from saddle_jax.base import checks

WIDTH, _INDENT = 80, 26
_SETTING = "config"
_GROUPS = {
    "Output": ("output", "plot", "quiet", "json"),
    "Runs that are opened again": ("data_dir", "code"),
    "Several processes": ("coordinator", "processes", "process", "join_timeout", "heartbeat_timeout"),
}
_VALUES = {"int": "N", "float": "NUMBER", "comma separated list of strings": "A,B,..."}
# What absl puts around the meanings of enumerations and of options that may be repeated.
_ADDED = re.compile(r"^<[^>]*>: |;\s+repeat this option to specify a list of values$")
_PLACES = {"workdir": "DIR", "data_dir": "DIR", "folder": "DIR", "output": "FILE", "plot": "FILE"}


def groups(options: flags.FlagValues) -> Iterable[tuple[str, list[str]]]:
    """Yields the options by group, the verb's own first and the settings of runs last."""
    own = {name: options[name] for name in names_of(options)}
    settings = [name for name in own if name.startswith(f"{_SETTING}.")]
    grouped = {name for names in _GROUPS.values() for name in names} | {_SETTING, *settings}
    rest = [name for name in own if name not in grouped]
    for title, names in {"Options": rest, **_GROUPS}.items():
        if lines := [_option(own[name]) for name in names if name in own]:
            yield title, lines
    if settings:
        file = [_option(own[_SETTING])] if _SETTING in own else []
        whole = len(settings) > 10
        listed = [_names(settings)] if whole else [_option(own[name]) for name in settings]
        yield "Settings, of which `saddle config` shows values and meanings", file + listed


def names_of(options: flags.FlagValues) -> list[str]:
    """Lists the options that a verb has defined, without those that absl adds and second names."""
    return [name for name in options if options[name].name == name and name not in ("flagfile", "undefok")]


def nearest_option(given: str, options: flags.FlagValues) -> str:
    """Returns the end of a message that suggests an option; settings are found by their bare names, too."""
    names = {name.removeprefix(f"{_SETTING}."): name for name in names_of(options)}
    found = checks.nearest(given.removeprefix(f"{_SETTING}."), names)
    return "" if found is None else f"; did you mean '--{names[found]}'?"


def _option(flag: flags.Flag[Any]) -> str:
    value = flag.default
    if flag.boolean:
        spelt = f"--[no]{flag.name}" if value or value is None else f"--{flag.name}"
    elif isinstance(flag, flags.EnumFlag):
        spelt = f"--{flag.name}={'|'.join(flag.parser.enum_values)}"
    else:
        spelt = f"--{flag.name}={_PLACES.get(flag.name) or _VALUES.get(flag.flag_type(), 'TEXT')}"
    meaning = _ADDED.sub("", flag.help or "")
    if value not in (None, "", False, []) and "default" not in meaning:
        shown = ",".join(value) if isinstance(value, list) else str(value)
        shown = shown.lower() if flag.boolean else shown
        meaning = f"{meaning.rstrip('.')} (default: {shown})."
    return entry(spelt, meaning[:1].upper() + meaning[1:], _INDENT)


def _names(settings: Sequence[str]) -> str:
    names = ", ".join(name.removeprefix(f"{_SETTING}.") for name in settings)
    heading = entry(f"--{_SETTING}.NAME=VALUE", "Sets one of these:", _INDENT)
    return f"{heading}\n{textwrap.fill(names, WIDTH, initial_indent='    ', subsequent_indent='    ')}"


def entry(left: str, right: str, indent: int) -> str:
    """Lays out two columns; a left side that is too long has a line of its own."""
    lines = textwrap.wrap(right, WIDTH - indent - 2) or [""]
    first = f"  {left:<{indent - 1}} {lines[0]}".rstrip()
    if len(left) > indent - 1:
        first = f"  {left}\n{' ' * (indent + 2)}{lines[0]}"
    return "\n".join([first, *(" " * (indent + 2) + line for line in lines[1:])])
