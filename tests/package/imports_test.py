"""Imports point one way: a room may use those before it in this list, never those behind."""

import ast
import pathlib
import sys

import pytest

import saddle_jax

PACKAGE = pathlib.Path(saddle_jax.__file__).parent
ROOMS = [
    "base", "devices", "core", "graphs", "ascents", "compression", "methods", "models", "data", "training",
    "laws", "analysis", "paper", "report", "serve", "runs", "bench", "cli",
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
    "training": {"flax", "orbax", "safetensors", "tensorboardX", "tqdm"},
    "models": {"flax"},
    "data": {"PIL", "tensorflow", "tensorflow_datasets", "tqdm"},
    "report": {"matplotlib"},
    "runs": {"pandas"},
    "bench/opponent": {"torch"},
}


def imported(path):
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "saddle_jax":
                yield from (f"saddle_jax.{alias.name}" for alias in node.names)
            else:
                yield node.module


def test_no_module_lies_loose():
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "version.py"}
    assert {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"} == set(ROOMS)


@pytest.mark.parametrize("path", [path for path in MODULES if len(path.parts) > 1], ids=str)
def test_no_import_goes_back(path):
    room = path.parts[0]
    for name in imported(path):
        top, _, rest = name.partition(".")
        other = rest.split(".")[0]
        if top == "saddle_jax" and other != "version":
            assert ROOMS.index(other) <= ROOMS.index(room), f"{path} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_files_are_short_and_need_what_their_room_may(path):
    assert len((PACKAGE / path).read_text().splitlines()) <= 350
    assert path.stem != "utils"
    also = ALSO.get(path.parts[0], set()) | ALSO.get(path.parent.as_posix(), set())
    allowed = {"saddle_jax"} | CORE | also | set(sys.stdlib_module_names)
    for name in imported(path):
        assert name.partition(".")[0] in allowed, f"{path} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_functions_are_short(path):
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{path}: {node.name}"
