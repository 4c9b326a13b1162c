"""Graphs that are not of this package: of a user's file or module, of an installed package, or in a file.

Such a graph is a function of n, and of seed if it is random, that returns a topology; or a topology itself.
"""

import functools

from saddle_jax.base import brought, checks, sources, spelt, tables
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.graphs import TimeVarying
from saddle_jax.core.mixing import Graphs
from saddle_jax.core.topology import Topology
from saddle_jax.graphs import GRAPHS, files


def check(text: str) -> None:
    """Checks the spelling of a graph by its form: nothing is imported and no file is read."""
    kind = text.partition("(")[0].partition(":")[0]
    if files.is_file(text):
        if not text.isprintable():
            raise ArgumentError(f"topology must be the name of a file, got {text!r}")
    elif brought.is_brought(text) or kind in GRAPHS:
        spelt.parse("topology", text, GRAPHS)
    else:
        checks.known("topology", kind, GRAPHS)


def source(text: str) -> sources.Source | None:
    """Returns the file that a graph or its factory is in; None if that is an installed package."""
    if files.is_file(text):
        return sources.read("topology", text)
    return brought.source("topology", text) if brought.is_brought(text) else None


def is_random(text: str) -> bool:
    """Tells whether a graph looks at the seed; imports it."""
    if files.is_file(text):
        return False
    name, _ = spelt.parse("topology", text, GRAPHS)
    thing = brought.load("topology", text) if brought.is_brought(text) else GRAPHS[name]
    return callable(thing) and "seed" in tables.options(thing)


def make(text: str, n: int, seed: int) -> Graphs:
    """Makes the graph of n agents; from an unchanged file it is the same one again."""
    found = source(text)
    graph = _made(text, n, seed, "" if found is None else found.sha256)
    if graph.size != n:
        raise ArgumentError(f"agents must be {graph.size} for topology {text}, got {n}")
    return graph


@functools.lru_cache(maxsize=32)
def _made(text: str, n: int, seed: int, sha256: str) -> Graphs:
    if files.is_file(text):
        return files.read_graph(sources.read("topology", text))
    graph: Graphs = spelt.make("topology", text, GRAPHS, (Topology, TimeVarying), n, seed=seed)
    return graph
