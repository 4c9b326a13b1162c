"""The page of all settings, made from their definitions, and that of all verbs, made from their help."""

import contextlib
import dataclasses
import inspect
import io
import re

from saddle_jax.cli.__main__ import main
from saddle_jax.settings.settings import IRRELEVANT, Settings

_HEAD = """# Settings

Every setting is `--NAME=VALUE` on the command line, and a field of
`saddle_jax.Settings` in a settings file. `bin/saddle settings` prints this list with the values
that a command would use.

Settings marked with * cannot change the numbers of a run, apart from rounding. An interrupted run may
be resumed with other values of them.
"""
_DEFAULT = re.compile(r" \(default[^()]*\)$")


def settings_page() -> str:
    """Returns the page: a table for each group of settings, in the order of their definition."""
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    parts = [_HEAD]
    for line in inspect.getsource(Settings).splitlines():
        group = re.fullmatch(r"    # (\w.*)", line)
        defined = re.match(r"    (\w+): \w+ = setting\(", line)
        if group:
            parts.append(f"\n## {group[1]}\n\n| setting | type | default | meaning |\n|---|---|---|---|\n")
        elif defined:
            parts.append(_row(fields.pop(defined[1])))
    assert not fields, f"settings without a group: {', '.join(fields)}"
    return "".join(parts)


def verbs_page() -> str:
    """Returns the page with what `saddle --help` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(["saddle", "--help"])
    text = "`saddle VERB --help` shows the options of a verb. [The command line](commands.md) has examples."
    return f"# All verbs\n\n{text}\n\n```text\n{printed.getvalue().rstrip()}\n```\n"


def _row(field: dataclasses.Field) -> str:
    kinds = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    default = str(field.default).lower() if field.type is bool else str(field.default)
    shown = f"`{default}`" if default else "-"
    star = " \\*" if field.name in IRRELEVANT else ""
    meaning = re.sub(r"([|_<*\[])", r"\\\1", _DEFAULT.sub("", field.metadata["meaning"]))
    meaning = re.sub(r"`[^`]*`", lambda code: code.group().replace("\\", ""), meaning)
    return f"| `{field.name}`{star} | {kinds[field.type]} | {shown} | {meaning} |\n"
