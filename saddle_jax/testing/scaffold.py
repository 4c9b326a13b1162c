"""Templates for your own code: a small working example of each kind, and a test of its invariants."""

import importlib.util
import keyword
import os
import pathlib
import sys

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError

# The setting for each kind; the templates are named after the kinds.
SETTINGS = {
    "method": "method",
    "gradient": "gradient",
    "compressor": "method.compressor",
    "graph": "topology",
    "model": "model",
    "dataset": "dataset",
    "objective": "objective",
}
_CLASSES = ("compressor", "model")  # kinds that are classes, named in CamelCase
_TEMPLATES = pathlib.Path(__file__).parent / "templates"


def write(kind: str, name: str, folder: pathlib.Path) -> list[str]:
    """Writes NAME.py and NAME_test.py into a folder; returns the next commands to run.

    Existing files are not overwritten.
    """
    checks.choice("kind", kind, list(SETTINGS))
    _check_name(name)
    if not folder.is_dir():
        raise ArgumentError(f"folder must be one that is there, got {str(folder)!r}")
    words = {"NAME": name, "KIND": kind, "OBJECT": name_in(kind, name), "CLASS": name_in(kind, name)}
    texts = {
        folder / f"{name}.py": _filled((_TEMPLATES / f"{kind}.txt").read_text(), words),
        folder / f"{name}_test.py": _filled((_TEMPLATES / "test.txt").read_text(), words),
    }
    for path in texts:
        if os.path.lexists(path):
            raise ArgumentError(f"name must be one whose files are not there, got {str(path)!r}, which is")
    for path, text in texts.items():
        with path.open("x") as file:  # "x": fails if another process created it
            file.write(text)
    spec = f"{folder / name}.py:{name_in(kind, name)}"
    return [
        f"saddle check {spec}",
        f"pytest {folder / name}_test.py",
        f"saddle train --{SETTINGS[kind]}={spec}",
    ]


def name_in(kind: str, name: str) -> str:
    """Returns the name of the function or class in the file; classes are in CamelCase."""
    if kind not in _CLASSES:
        return name
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text


def _check_name(name: str) -> None:
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name) or not name.strip("_"):
        raise ArgumentError(f"name must be a word of letters, digits and _, such as mine, got {name!r}")
    if name in sys.stdlib_module_names or _is_installed(name):
        raise ArgumentError(f"name must hide no module that Python has, got {name!r}")


def _is_installed(name: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    # Files in the current folder belong to the user.
    return spec is not None and os.path.dirname(spec.origin or "") != os.getcwd()
