"""Eight files explain a step: who reads them in this order needs no other, but for the two rooms below."""

import ast
import pathlib

import saddle_jax

PACKAGE = pathlib.Path(saddle_jax.__file__).parent
WALK = [  # in the order of reading
    "core/topology",
    "core/trees",
    "core/network",
    "core/faults",
    "core/gradients",
    "core/rule",
    "core/method",
    "core/gossip",
]
# The rooms that the core stands on: checks and types; how agents lie on devices. Used by names that say what
# they do, as one uses NumPy.
BELOW = ("base", "devices")


def imports(tree):
    """The modules of ours that are imported somewhere in a syntax tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("saddle_jax"):
            module = "/".join(node.module.split(".")[1:])
            is_room = (PACKAGE / module).is_dir()
            yield from (f"{module}/{alias.name}" for alias in node.names) if is_room else [module]


def used(name, by_types=True):
    """The modules of ours that a file imports, or those of them that it needs when it runs."""
    tree = ast.parse((PACKAGE / f"{name}.py").read_text())
    types = [node for node in tree.body if isinstance(node, ast.If)]  # if TYPE_CHECKING
    only = {module for node in types for module in imports(node)}
    return set(imports(tree)) - (set() if by_types else only)


def test_the_walk_leads_nowhere_else():
    for name in WALK:
        elsewhere = {each for each in used(name) if each.split("/")[0] not in BELOW} - set(WALK)
        assert not elsewhere, name


def test_a_file_uses_those_that_were_read_before_it():
    for place, name in enumerate(WALK):
        behind = used(name, by_types=False) & set(WALK[place:])
        assert not behind, name


def test_the_walk_is_as_long_as_it_says(record_property):
    """Nothing fails here: the number of lines stands in the report, and `bin/size` shows it by room."""
    lines = {name: len((PACKAGE / f"{name}.py").read_text().splitlines()) for name in WALK}
    record_property("lines", lines | {"all": sum(lines.values())})
    assert len(lines) == 8
