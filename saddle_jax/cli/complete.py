"""Shell completion: a short script calls `saddle __complete WORDS`, which does not import JAX."""

import importlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.cli import verb as verbs

# The registries with the values of settings.
_NAMES = {
    "method": "saddle_jax.methods:METHODS",
    "gradient": "saddle_jax.sam:GRADIENTS",
    "topology": "saddle_jax.graphs:GRAPHS",
    "model": "saddle_jax.models:NAMES",
    "dataset": "saddle_jax.data.sources:KNOWN",
    "schedule": "saddle_jax.settings.settings:SCHEDULES",
}
# The scripts pass the words before the cursor. bash splits words at =.
_SCRIPTS = {
    "bash": """\
# Completion of saddle for bash: source this, or put it where bash looks for completions.
_saddle() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -F _saddle saddle
""",
    "zsh": """\
#compdef saddle
# Completion of saddle for zsh: put this into a folder of $fpath, as _saddle.
_saddle() {
    local -a found=(${(f)"$($words[1] __complete ${words[2,CURRENT]} 2>/dev/null)"})
    (( $#found )) || _files
    compadd -S '' -- ${(M)found:#*=}
    compadd -- ${found:#*=}
}
compdef _saddle saddle
""",
    "fish": """\
# Completion of saddle for fish: put this into ~/.config/fish/completions/saddle.fish.
complete -c saddle -a '(saddle __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
""",
}


def script(shell: str) -> str:
    """Returns the completion script for a shell."""
    checks.known("completion", shell, _SCRIPTS)
    return _SCRIPTS[shell]


def names_of_setting(name: str) -> list[str]:
    """Lists the possible values of a setting; empty for numbers and free text."""
    module, _, table = _NAMES.get(name, "").partition(":")
    return [*getattr(importlib.import_module(module), table)] if module else []


def complete(words: Sequence[str]) -> list[str]:
    """Returns the completions of the last of these words."""
    before, current = list(words[:-1]), words[-1] if words else ""
    splits = current == "=" or before[-1:] == ["="]  # as bash does
    if splits:
        option, value = (before[-1], "") if current == "=" else (before[-2], current)
        before, current = before[: -1 if current == "=" else -2], f"{option}={value}"
    if not before:
        return _beginning(current, verbs.first_words())
    try:
        verb, rest = verbs.find(before)
    except ArgumentError:
        return _beginning(current, verbs.below_verb(before[0])) if len(before) == 1 else []
    if not current.startswith("-"):
        return _beginning(current, verbs.below_verb(before[0])) if not rest and len(before) == 1 else []
    name, equals, _ = current.removeprefix("--").partition("=")
    if not equals:
        options = verb.flag_values()
        flags = (f"--{each}" if options[each].boolean else f"--{each}=" for each in verbs.names_of(options))
        return _beginning(current, ["--help", *flags])
    found = _beginning(current, [f"--{name}={value}" for value in _values(verb, name)])
    return [each.partition("=")[2] for each in found] if splits else found


def _values(verb: verbs.Verb, name: str) -> list[str]:
    """Lists the named values of a verb's option."""
    own = verb.flag_values(whole=False)
    parser = own[name].parser if name in own else None
    if isinstance(parser, flags.EnumParser):
        return [*parser.enum_values]
    takes = (verb.settings is True and name not in verb.without) or name in own
    return names_of_setting(name) if takes else []


def _beginning(start: str, words: Sequence[str]) -> list[str]:
    return [word for word in words if word.startswith(start)]
