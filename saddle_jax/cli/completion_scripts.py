"""Scripts that complete verbs, options and values in shells: all words are in them, nothing is started."""

import importlib.resources
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

Words = Mapping[str, Any]  # see completion_words.py
SHELLS = ("bash", "zsh", "fish")


def script(shell: str, words: Words) -> str:
    """Returns the script for a shell, one of SHELLS."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](words)


def _filled(template: str, **parts: str) -> str:
    """Returns a template of this folder with its parts, such as @VERBS@, filled in."""
    text = (importlib.resources.files("saddle_jax.cli") / template).read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace(f"@{name.upper()}@", part)
    return text


def _of(words: Words, verb: str) -> list[str]:
    said = words["verbs"][verb]
    return ["--help", *said["options"], *(words["settings"] if said["settings"] else [])]


def _top(words: Words) -> list[str]:
    return ["help", *(verb for verb in words["verbs"] if " " not in verb)]


def _below(words: Words, verb: str) -> list[str]:
    return [name.partition(" ")[2] for name in words["verbs"] if name.startswith(f"{verb} ")]


def _cases(lines: Sequence[str]) -> str:
    return "\n".join(f"            {line} ;;" for line in lines)


def _bash(words: Words) -> str:
    verbs = [verb for verb in words["verbs"] if " " not in verb]
    return _filled(
        "completion.bash",
        values=_cases([f'{name}) words="{" ".join(found)}"' for name, found in words["values"].items()]),
        pairs=_cases([f'"{name}") verb="{name}"' for name in words["verbs"] if " " in name]),
        verbs=" ".join(_top(words)),
        options=_cases([f'"{verb}") words="{" ".join(_of(words, verb))}"' for verb in words["verbs"]]),
        subverbs=_cases([f'{v}:2) words="{" ".join(_below(words, v))}"' for v in verbs if _below(words, v)]),
    )


def _zsh(words: Words) -> str:
    verbs = [verb for verb in words["verbs"] if " " not in verb]
    described = [shlex.quote(f"{verb}:{words['verbs'][verb]['meaning']}") for verb in verbs]
    return _filled(
        "completion.zsh",
        described=" ".join(described),
        values=_cases([f"{name}) found=({' '.join(found)})" for name, found in words["values"].items()]),
        pairs=_cases([f'"{name}") verb="{name}"' for name in words["verbs"] if " " in name]),
        options=_cases([f'"{verb}") found=({" ".join(_of(words, verb))})' for verb in words["verbs"]]),
        subverbs=_cases([f"{v}) compadd -- {' '.join(_below(words, v))}" for v in verbs if _below(words, v)]),
    )


def _fish(words: Words) -> str:
    lines = ["# Completion of saddle for fish: put this file into ~/.config/fish/completions/saddle.fish."]
    for verb, said in words["verbs"].items():
        first, _, second = verb.partition(" ")
        at = "__fish_use_subcommand" if not second else f"__fish_seen_subcommand_from {first}"
        lines.append(
            f"complete -c saddle -n '{at}' -f -a {second or first} -d {shlex.quote(said['meaning'])}"
        )
        inside = f"__fish_seen_subcommand_from {second or first}"
        for option in _of(words, verb):
            name = option.removeprefix("--").removesuffix("=")
            values = words["values"].get(f"--{name}")
            takes = f" -x -a {shlex.quote(' '.join(values))}" if values else " -r" * option.endswith("=")
            lines.append(f"complete -c saddle -n '{inside}' -l {name}{takes}")
    return "\n".join(lines) + "\n"
