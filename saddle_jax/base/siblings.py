"""The files beside a user's Python file that it imports: a change of theirs is a change of its own."""

import ast
import os
import pathlib
import sys
import warnings
from collections.abc import Iterator

from saddle_jax.base import sources
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.sources import Source

_OURS = "saddle_jax"  # may lie beside it, too
_imported: dict[str, str] = {}  # the hashes of siblings that were imported, by the names of their modules


def siblings(what: str, found: Source) -> dict[str, Source]:
    """Returns the files in the same folder that a Python file imports, and those that they import, by module.

    They are read off the files' text: nothing is imported.
    """
    folder = pathlib.Path(os.path.realpath(found.path)).parent
    known: dict[str, Source] = {}
    pending = [found]
    while pending:
        for name in _names(pending.pop().content):
            path = _file(folder, name)
            if path is not None and name not in known and path != pathlib.Path(os.path.realpath(found.path)):
                known[name] = sources.read(what, path)
                pending.append(known[name])
    return dict(sorted(known.items()))


def prepare(found: Source, beside: dict[str, Source]) -> None:
    """Makes sure that a file which is about to be run gets its own siblings, as they are now."""
    for name, sibling in beside.items():
        if name in sys.modules:
            place = getattr(sys.modules[name], "__file__", None)
            if place is None or os.path.realpath(place) != os.path.realpath(sibling.path):
                raise ArgumentError(
                    f"{found.path} imports {name}, and another {name} is imported already: rename "
                    f"{sibling.path.name}"
                )
            if _imported.get(name, sibling.sha256) != sibling.sha256:
                del sys.modules[name]
        _imported[name] = sibling.sha256


def _names(content: bytes) -> Iterator[str]:
    """Yields what a file may import, with the packages around it: a.b gives a and a.b."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python tells them when the file is run
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # so does it these
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in full:
            words = [] if name.partition(".")[0] == _OURS else name.split(".")
            yield from (".".join(words[: count + 1]) for count in range(len(words)))


def _file(folder: pathlib.Path, name: str) -> pathlib.Path | None:
    place = folder.joinpath(*name.split("."))
    candidates = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((path for path in candidates if path.is_file()), None)
