"""Graphs as settings spell them: ring, torus:5x8, erdos_renyi:0.3, base_graph:2, ring+star, mine.py:graph.

Behind the colon are the arguments of the graph's factory apart from n and seed, in their order, with commas.
A switch is written as its name, equi_static:4,undirected. Graphs joined by + take turns, one per step.
A graph that is not ours is a function of n, and of seed if it is random, or a file: mine.py:graph(k=3),
friends.graphml. To check its spelling imports nothing and reads no file.
"""

import functools
import inspect
import re
from typing import Any

from saddle_jax.base import brought, checks, tables
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.graphs import alternate
from saddle_jax.core.mixing import Graphs
from saddle_jax.core.topology import from_matrix
from saddle_jax.graphs import GRAPHS, others

# The number of agents alone describes these graphs, and these observed ones have a number of their own.
_SIMPLE = {name for name in GRAPHS.ours if list(tables.options(GRAPHS[name])) == ["n"]}
# Somebody else's settings may say anything: what a name can ask for is bounded.
_LONGEST = 300
_OBSERVED = {name for name in GRAPHS.ours if not tables.options(GRAPHS[name])}
_USAGE = {
    "torus": "torus or torus:ROWSxCOLUMNS",
    "circulant": "circulant:OFFSET,OFFSET,...",
    "spanning_tree": "spanning_tree:GRAPH",
}


def check_topology(text: str) -> None:
    """Checks the name of a graph, apart from what depends on the number of agents."""
    if len(text) > _LONGEST:
        raise ArgumentError(f"topology must be at most {_LONGEST} letters long, got {len(text)}")
    for part in parts(text):
        kind, _, setting = part.partition(":")
        if not is_ours(part):
            others.check(part)
            continue
        if kind in _SIMPLE | _OBSERVED and setting:
            raise ArgumentError(f"topology {kind} takes no setting, got {part!r}")
        if kind == "spanning_tree" and setting:
            checks.known("topology", setting.partition(":")[0], GRAPHS.ours)
            check_topology(setting)
        else:
            _arguments(part)


def parts(text: str) -> list[str]:
    """Returns the spellings of the graphs that take turns; mostly there is one."""
    return [text] if brought.is_object(text) else re.split(r"\+(?![^()]*\))", text)


def is_ours(text: str) -> bool:
    """Tells whether graphs are all of this package; of others nothing is known before they are imported."""
    return all(part.partition(":")[0] in GRAPHS.ours for part in parts(text))


def is_random(text: str) -> bool:
    """Tells whether a graph is drawn at random, so that it depends on the seed; imports what is not ours."""
    return any(_looks_at_seed(part) if is_ours(part) else others.is_random(part) for part in parts(text))


def parse_topology(text: str, n: int, seed: int) -> Graphs:
    """Builds the graph of `n` agents with this short name; only random graphs look at the seed."""
    if is_ours(text):
        return _ours(text, n, seed)
    graphs = [_ours(part, n, seed) if is_ours(part) else others.make(part, n, seed) for part in parts(text)]
    return graphs[0] if len(graphs) == 1 else alternate(*graphs)


# Every Config builds its graph to check it, and random graphs are drawn until they are connected.
@functools.lru_cache(maxsize=32)
def _ours(text: str, n: int, seed: int) -> Graphs:
    if n == 1 and not _OBSERVED.intersection(text.replace("+", ":").split(":")):
        return from_matrix([[1.0]], name="alone")
    try:
        graphs = [_build(part, n, seed) for part in parts(text)]
        return graphs[0] if len(graphs) == 1 else alternate(*graphs)
    except ValueError as error:
        raise ArgumentError(f"topology {text!r} cannot have {n} agents: {error}") from error


def _looks_at_seed(part: str) -> bool:
    kinds = [kind for kind in part.split(":") if kind in GRAPHS.ours]
    return any("seed" in tables.options(GRAPHS[kind]) for kind in kinds)


def _build(part: str, n: int, seed: int) -> Graphs:
    """Builds one graph, of those that may take turns."""
    kind, _, setting = part.partition(":")
    if kind == "spanning_tree" and setting:
        return GRAPHS[kind](_build(setting, n, seed))
    arguments = _arguments(part)
    if kind == "torus" and setting:
        graph = GRAPHS[kind](**arguments)
    elif kind in _OBSERVED:
        graph = GRAPHS[kind]()
    else:
        seeds = {"seed": seed} if "seed" in tables.options(GRAPHS[kind]) else {}
        graph = GRAPHS[kind](n, **arguments, **seeds)
    if graph.size != n:
        raise ArgumentError(f"{graph.name} has {graph.size}")
    return graph


def _arguments(part: str) -> dict[str, Any]:
    """Reads the arguments that stand behind the colon, by the factory's names and types."""
    kind, _, setting = part.partition(":")
    words = setting.split(",") if setting else []
    try:
        if not setting.isascii():  # Python's numbers may have the digits of any script
            raise ValueError(f"{setting!r} has other signs than 0-9")
        if kind == "torus":
            return dict(zip(("rows", "cols"), map(int, setting.split("x")), strict=True)) if setting else {}
        if kind == "circulant":
            return {"offsets": [int(offset) for offset in setting.split(",")]}
        arguments = {}
        for name, parameter in tables.options(GRAPHS[kind]).items():
            if parameter.annotation is bool and words[:1] == [name]:
                arguments[name] = bool(words.pop(0))
            elif parameter.annotation in (int, float) and name not in ("n", "seed") and words:
                arguments[name] = parameter.annotation(words.pop(0))
            elif parameter.default is inspect.Parameter.empty and name != "n":
                raise ValueError(f"{name} is missing")
        if words:
            raise ValueError(f"{words[0]} is too much")
    except ValueError as error:
        raise ArgumentError(f"topology {kind} must be written {_usage(kind)}, got {part!r}") from error
    return arguments


def _usage(kind: str) -> str:
    """Returns how a graph is written, such as equi_dynamic:COUNT[,undirected][,ETA]."""
    text = ""
    for name, parameter in tables.options(GRAPHS[kind]).items():
        if name not in ("n", "seed"):
            word = ("," if text else ":") + (name if parameter.annotation is bool else name.upper())
            text += word if parameter.default is inspect.Parameter.empty else f"[{word}]"
    return _USAGE.get(kind, kind + text)
