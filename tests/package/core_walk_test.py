"""A stranger's walk: eight files, 2,050 lines, explain the core; the other rooms need not be opened."""

import ast
import pathlib

import saddle_jax

PACKAGE = pathlib.Path(saddle_jax.__file__).parent
WALK = [  # in the order of reading
    "core/topology",
    "core/network",
    "core/estimator",
    "core/gradients",
    "core/rule",
    "core/method",
    "core/gossip",
    "methods/dpsgd",
]
# What these files use by names that say what they do, as one uses NumPy.
TOOLS = {
    "base/checks",
    "base/types",
    "base/about",
    "core/conditions",
    "core/requirements",
    "core/faults",
    "core/graphs",
    "core/messages",
    "core/metrics",
    "core/mixing",
    "core/printed",
    "core/timing",
    "core/spectrum",
    "core/trees",
    "devices/exchange",
    "devices/lifting",
    "devices/policy",
    "methods/momentum",
    "methods/rounds",
}


def used(name):
    """The modules of ours that a file imports."""
    for node in ast.walk(ast.parse((PACKAGE / f"{name}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("saddle_jax"):
            module = "/".join(node.module.split(".")[1:])
            if (PACKAGE / module).is_dir():
                yield from (f"{module}/{alias.name}" for alias in node.names)
            else:
                yield module


def code_lines(path):
    """How many lines are neither blank nor comment nor docstring."""
    text = path.read_text()
    documentation = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            documentation.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in documentation
        for number, line in lines
    )


def test_eight_files_explain_the_core():
    assert len(WALK) <= 8
    assert sum(len((PACKAGE / f"{name}.py").read_text().splitlines()) for name in WALK) <= 2050


def test_the_walk_leads_nowhere_else():
    for name in WALK:
        assert set(used(name)) <= {*WALK, *TOOLS}, name


def test_what_every_step_needs_has_at_most_2350_lines_of_code():
    """All of core, and what it uses of base: the rest of base is for settings and folders."""
    core = {f"core/{path.stem}" for path in (PACKAGE / "core").glob("*.py")}
    needed, found = set(), core
    while found:
        needed |= found
        found = {each for name in found for each in used(name) if each.startswith("base/")} - needed
    assert "base/checks" in needed
    assert sum(code_lines(PACKAGE / f"{name}.py") for name in needed) <= 2350
