"""Imports point one way: a room may use those before it in this list, never those behind."""

import ast
import pathlib
import re
import sys

import pytest

import saddle_jax

PACKAGE = pathlib.Path(saddle_jax.__file__).parent
ROOMS = [
    "base", "devices", "core", "graphs", "sam", "compression", "methods", "kernels", "models", "data",
    "tasks", "settings", "runs", "training", "planning", "testing", "analysis", "report", "experiment",
    "serve", "papers", "cli",
]  # fmt: skip
MODULES = sorted(
    path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"
)
CORE = {
    "absl",
    "jax",
    "jaxlib",
    "lazy_loader",
    "networkx",
    "numpy",
    "optax",
    "scipy",
}  # what `pip install saddle_jax` brings
ALSO = {
    "runs": {"flax", "orbax", "pandas", "safetensors", "tensorboardX", "torch"},
    "training": {"flax", "tqdm"},
    "models": {"flax", "safetensors", "torch", "torchax"},
    "data": {"PIL", "tensorflow", "tensorflow_datasets", "tqdm"},
    "report": {"matplotlib"},
    "papers": {"matplotlib"},
    "cli": {"rich"},
    "experiment.py": {"pandas"},
}


STUBS = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.pyi") if path.parent != PACKAGE]


def named(path):
    """What a file imports, and what its strings, such as "saddle_jax.core.method:Method", will import."""
    yield from imported(path)
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (
                match[0]
                for match in re.finditer(r"^saddle_jax\.(\w+)[\w.]*(?=:\w+$|$)", node.value)
                if match[1] in ROOMS
            )  # others are groups of entry points


def imported(path):
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:  # of a stub
                yield f"saddle_jax.{path.parts[0]}.{node.module}"
            elif node.module == "saddle_jax":
                yield from (f"saddle_jax.{alias.name}" for alias in node.names)
            else:
                yield node.module


def test_no_module_lies_loose():
    loose = {"__init__.py", "experiment.py", "version.py"}
    assert {path.name for path in PACKAGE.glob("*.py")} == loose
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert {path.removesuffix(".py") for path in loose} | rooms == {"__init__", "version", *ROOMS}


@pytest.mark.parametrize("path", [path for path in MODULES + STUBS if path.stem != "version"], ids=str)
def test_no_import_goes_back(path):
    room = path.parts[0].removesuffix(".py")
    for name in named(path):
        top, _, rest = name.partition(".")
        other = rest.split(".")[0]
        if top == "saddle_jax" and other != "version":
            assert ROOMS.index(other) <= ROOMS.index(room), f"{path} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_files_need_what_their_room_may(path):
    assert path.stem != "utils"
    also = ALSO.get(path.parts[0], set())
    allowed = {"saddle_jax"} | CORE | also | set(sys.stdlib_module_names)
    for name in imported(path):
        assert name.partition(".")[0] in allowed, f"{path} imports {name}"
