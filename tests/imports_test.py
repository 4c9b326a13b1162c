"""Imports point one way: a module may use those above it in this list, never those below."""

import ast
import pathlib
import sys

import pytest

import saddle_jax

PACKAGE = pathlib.Path(saddle_jax.__file__).parent
LAYERS = [
    {"version", "errors", "allocation", "gpus", "dispatch", "interruption"},
    {"writing"},
    {"hosts"},
    {"types", "checks"},
    {"trees"},
    {"agents"},
    {"exchange", "replicas"},
    {"core"},
    {"ascents", "compression", "placement"},
    {"methods"},
    {"models", "data", "api"},
    {"classification", "config", "landscape", "sharpness"},
    {"schedules", "rundir", "checkpoint", "profile", "screen"},
    {"experiment", "paper"},
    {"replicated"},
    {"finished", "footprint", "inputs", "report_text", "theory"},
    {"curvature", "outcome"},
    {"train"},
    {"reproduction"},
    {"bench", "report"},
    {"cli"},
]
MODULES = sorted(
    path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"
)
CORE = {"absl", "jax", "networkx", "numpy", "optax", "scipy"}  # what `pip install saddle_jax` brings
ALSO = {
    "checkpoint.py": {"orbax"},
    "rundir.py": {"tensorboardX"},
    "screen.py": {"tqdm"},
    "models": {"flax"},
    "data": {"PIL", "tensorflow_datasets", "tqdm"},
    "cli": {"flax", "safetensors", "tensorflow", "tensorflow_datasets"},
    "report": {"matplotlib"},
    "bench/opponent": {"torch"},
}


def layer_of(name):
    return next(level for level, names in enumerate(LAYERS) if name in names)


def imported(path):
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "saddle_jax":
                yield from (f"saddle_jax.{alias.name}" for alias in node.names)
            else:
                yield node.module


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_no_import_goes_back(path):
    room = path.parts[0].removesuffix(".py")
    for name in imported(path):
        top, _, rest = name.partition(".")
        if top == "saddle_jax":
            other = rest.split(".")[0]
            assert other == room or layer_of(other) < layer_of(room), f"{path} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_files_are_short_and_need_what_their_room_may(path):
    assert len((PACKAGE / path).read_text().splitlines()) <= 400
    assert path.stem != "utils"
    also = ALSO.get(path.parts[0], set()) | ALSO.get(path.parent.as_posix(), set())
    allowed = {"saddle_jax"} | CORE | also | set(sys.stdlib_module_names)
    for name in imported(path):
        assert name.partition(".")[0] in allowed, f"{path} imports {name}"
