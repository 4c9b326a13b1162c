"""Files to begin with: a small thing of each kind that works, and a test of its invariants."""

import importlib.util
import keyword
import os
import pathlib
import sys

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError

# The setting that takes a thing of each kind; the templates have the names of the kinds.
SETTINGS = {
    "method": "method",
    "gradient": "gradient",
    "compressor": "compressor",
    "graph": "topology",
    "model": "model",
    "dataset": "dataset",
    "objective": "objective",
}
_CLASSES = ("compressor", "model")  # what is a class, and so is written Like This
_TEMPLATES = pathlib.Path(__file__).parent / "templates"


def write(kind: str, name: str, folder: pathlib.Path) -> list[str]:
    """Writes NAME.py and NAME_test.py into a folder; returns commands to go on with.

    Nothing that is there is overwritten.
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
        with path.open("x") as file:  # "x": also if somebody else was faster
            file.write(text)
    spec = f"{folder / name}.py:{name_in(kind, name)}"
    return [
        f"saddle check {spec}",
        f"pytest {folder / name}_test.py",
        f"saddle train --{SETTINGS[kind]}={spec}",
    ]


def name_in(kind: str, name: str) -> str:
    """Returns the name of the thing inside its file: classes are written LikeThis."""
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
    # What lies in the folder from which Python started is a file of the user's.
    return spec is not None and os.path.dirname(spec.origin or "") != os.getcwd()
