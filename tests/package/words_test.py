"""A docstring stands without its function's name: it is a sentence of more than a few words."""

import ast
import pathlib

import pytest

import saddle_jax

PACKAGE = pathlib.Path(saddle_jax.__file__).parent
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
MODULES = sorted(path.relative_to(PACKAGE) for room in ROOMS for path in (PACKAGE / room).rglob("*.py"))
FEWEST_WORDS = 6


def documented(path):
    """Every docstring's first paragraph, with the node that it stands in."""
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            text := ast.get_docstring(node)
        ):
            yield node, text.split("\n\n")[0]


def is_property(node):
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_docstrings_are_sentences(path):
    for node, text in documented(path):
        place = f"{path}:{getattr(node, 'name', 'module')}: {text}"
        assert len(text.split()) >= FEWEST_WORDS, place
        assert text[0].isupper() or text.startswith(("saddle ", "sharpness.json ")), place  # names
        assert text[-1] in ".:", place
        if isinstance(node, ast.FunctionDef) and not is_property(node):
            verb = text.split()[0].rstrip(",")
            assert verb.endswith("s"), (
                f"say what the function does (Returns, Makes, Checks, ...), got {place}"
            )
