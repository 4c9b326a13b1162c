"""The pages of the public names: `saddle_jax/__init__.pyi` lists them, mkdocstrings reads their docstrings.

A name that is made while the package is imported, as the SADDLe methods are, cannot be read from the source:
it is written here from the object.
"""

import inspect
import pathlib
import re
from typing import Any

import saddle_jax as sj

# The pages, and of which folders each has the names.
_PAGES = {
    "methods": ("Methods", ("methods",), "Each returns a method: an algorithm on a graph."),
    "gradients": ("Sharpness-aware gradients", ("sam",), "Each says how the gradient of a model is taken."),
    "graphs": ("Graphs", ("graphs",), "Each returns a topology: the communication graph and its weights."),
    "compressors": ("Compressors", ("compression",), "Each makes the messages of a method shorter."),
    "parts": ("Parts of a method", ("core", "base"), "What methods are made of, and what they return."),
    "devices": ("Devices", ("devices",), "How agents are divided among devices."),
    "runs": (
        "Runs",
        ("experiment", "runs", "settings", "tasks", "models"),
        "Runs as Python objects: [own.md](../own.md) shows them at work.",
    ),
}
_MOVED = {
    "plain_gradient": "gradients",
    "GradientEstimator": "gradients",
    "Topology": "graphs",
    "from_matrix": "graphs",
}
_MOVED |= {"TimeVarying": "graphs", "alternate": "graphs"}


def api_pages() -> dict[str, tuple[str, str]]:
    """Returns the title and the text of every page, by the page's address."""
    pages = {}
    named = _public()
    for page, (title, rooms, about) in _PAGES.items():
        names = [name for name, room in named if _MOVED.get(name) == page or _stays(name, room, rooms)]
        parts = [f"# {title}", f"{about} `import saddle_jax as sj` first.", *map(_entry, names)]
        pages[f"api/{page}.md"] = (title, "\n\n".join(parts) + "\n")
    return pages


def _public() -> list[tuple[str, str]]:
    """Lists the public names, each with the folder that it comes from."""
    stub = pathlib.Path(sj.__file__).with_suffix(".pyi").read_text()
    found = re.findall(r"^from \.(\w+)\S* import (\w+) as", stub, re.MULTILINE)
    return [(name, room) for room, name in found]


def _stays(name: str, room: str, rooms: tuple[str, ...]) -> bool:
    return room in rooms and name not in _MOVED


def _entry(name: str) -> str:
    found = getattr(sj, name)
    if hasattr(found, "__wrapped__") or not (inspect.isfunction(found) or inspect.isclass(found)):
        return _from_object(name, found)
    return f"::: saddle_jax.{name}"


def _from_object(name: str, found: Any) -> str:
    head = f"## `{name}` {{ #saddle_jax.{name} }}"
    if not callable(found):
        return f"{head}\n\nThe table of all methods by name: {', '.join(f'`{each}`' for each in found)}."
    doc = inspect.getdoc(found) or ""
    text, _, example = doc.partition(">>> ")
    signature = ",\n    ".join(str(each) for each in inspect.signature(found).parameters.values())
    shown = re.sub(r"saddle_jax\.[\w.]*\.|typing\.", "", f"{name}(\n    {signature},\n)")
    return f"{head}\n\n```python\n{shown}\n```\n\n{text}\n\n```pycon\n>>> {example.rstrip()}\n```"
