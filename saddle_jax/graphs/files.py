"""Graphs from files: edge lists, GraphML, and NumPy matrices.

    .edges .txt .csv   a line "i j" for each link, or "i j weight" with W[i, j] = W[j, i]; # begins a comment
    .graphml           agents in the order of its nodes; weights follow from the degrees
    .npy               of floats: W [A, A] itself; of integers or booleans: the adjacency matrix, 0 or 1

Agents are numbered from 0. Undirected graphs without weights get Metropolis-Hastings weights, directed ones
push-sum weights. No code in a file is run.
"""

import io
import re
from typing import Any

import networkx as nx
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import short_line
from saddle_jax.base.user_code import Source
from saddle_jax.core.topology import Graphs, Links, Topology, alternate, from_links, from_matrix
from saddle_jax.graphs.directed import directed
from saddle_jax.graphs.named import from_networkx
from saddle_jax.graphs.weights import MAX_PERIOD, with_self_weights

LISTS = (".edges", ".txt", ".csv")
_MOST = 10_000  # agents that a run can have
_SLACK = 1e-9  # by which a row may exceed one, for weights that were rounded


def read_graph(source: Source) -> Topology:
    """Makes the graph that a file describes; raises an ArgumentError if the file is not valid."""
    name = source.path.name
    try:
        if name.endswith(LISTS):
            return _from_edges(name, _lines(name, source.content))
        if name.endswith(".graphml"):
            return _from_graphml(name, source.content)
        return _from_array(name, source.content)
    except ArgumentError as error:
        raise ArgumentError(f"topology {source.path}: {error}") from error


def _lines(name: str, content: bytes) -> list[tuple[int, list[str]]]:
    """Returns the number and the fields of each line that is not empty."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ArgumentError("a list of edges must be text") from error
    numbered = enumerate((line.partition("#")[0] for line in text.splitlines()), 1)
    lines = [(number, re.split(r"[,;\s]+", line.strip())) for number, line in numbered if line.strip()]
    has_header = name.endswith(".csv") and lines and not lines[0][1][0].isdecimal()
    return lines[1:] if has_header else lines


def _from_edges(name: str, lines: list[tuple[int, list[str]]]) -> Topology:
    links: dict[tuple[int, int], float | None] = {}
    for number, fields in lines:
        pair, weight = _link(number, fields)
        if links.setdefault(pair, weight) != weight:
            raise ArgumentError(f"line {number} must not say another weight than a line before it")
    if not links:
        raise ArgumentError("a list of edges must have at least one, got none")
    weighted = [weight for weight in links.values() if weight is not None]
    size = 1 + max(max(pair) for pair in links)
    if not weighted:
        graph = nx.empty_graph(size)
        graph.add_edges_from(links)
        return from_networkx(graph, name)
    if len(weighted) < len(links):
        raise ArgumentError("all links must have a weight, or none")
    pairs = np.array([*links, *((b, a) for a, b in links)])
    weights = np.array(weighted * 2)
    sums = np.bincount(pairs[:, 0], weights, size)
    worst = int(sums.argmax())
    if sums[worst] > 1 + _SLACK:
        raise ArgumentError(
            f"the weights of an agent's links must sum to at most 1, got {sums[worst]:g} of agent {worst}"
        )
    return from_links(name, size, *with_self_weights(size, pairs[:, 0], pairs[:, 1], weights))


def _link(number: int, fields: list[str]) -> tuple[tuple[int, int], float | None]:
    """Returns the two agents of a line, the smaller first, and the weight of their link, if any."""
    try:
        first, second = (int(field) for field in fields[:2])
        weight = float(fields[2]) if len(fields) > 2 else None
    except ValueError:
        first, second, weight = -1, -1, None
    in_range = min(first, second) >= 0 and max(first, second) < _MOST and first != second
    if not in_range or len(fields) > 3 or not (weight is None or 0 < weight <= 1):
        raise ArgumentError(
            f"line {number} must be two different agents from 0 to {_MOST - 1}, and a weight > 0 and <= 1 or "
            f"none, got {' '.join(fields)[:80]!r}"
        )
    return (min(first, second), max(first, second)), weight


def _from_graphml(name: str, content: bytes) -> Topology:
    # Entities can expand to any size. A declared encoding could hide them from this check; without one the
    # parser reads the text as we do.
    try:
        text = re.sub(r"^\s*<\?xml[^>]*\?>", "", content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ArgumentError("GraphML must be written in UTF-8") from error
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ArgumentError("GraphML must not have a DOCTYPE")
    try:
        graph = nx.read_graphml(io.BytesIO(text.encode()))
    except Exception as error:  # several parsers, each with its own errors
        raise ArgumentError(f"GraphML cannot be read: {short_line(error)}") from error
    if not 0 < len(graph) <= _MOST:
        raise ArgumentError(f"GraphML must have 1 to {_MOST} nodes, got {len(graph)}")
    if graph.is_directed():  # an edge leads from sender to receiver
        return directed(nx.to_numpy_array(nx.DiGraph(graph), weight=None).T, name)
    return from_networkx(nx.Graph(graph), name)


def _from_array(name: str, content: bytes) -> Topology:
    try:
        array: Any = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError, OverflowError, TypeError) as error:
        raise ArgumentError(f"NumPy cannot read it: {short_line(error)}") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise ArgumentError("an .npy must be one matrix of numbers")
    if array.ndim != 2 or len(set(array.shape)) != 1 or not 0 < len(array) <= _MOST:
        raise ArgumentError(f"an .npy must be a square matrix [A, A], got shape {array.shape}")
    if array.dtype.kind == "f":
        return from_matrix(array, name)
    if (array == array.T).all() and np.isin(array, (0, 1)).all():
        return from_networkx(nx.from_numpy_array(array.astype(bool)), name)
    return directed(array, name)


# ---- graphs as plain lists: to draw the graph of a run's folder without what it was made from ----

MOST_LINKS = 20_000  # larger graphs are not recorded: they cannot be drawn


def to_record(graphs: Graphs) -> list[list[list[float]]] | None:
    """Returns the lists of receivers, senders and weights of each graph; None for too many links."""
    links = [graph.links for graph in graphs.graphs]
    if sum(len(each.weight) for each in links) > MOST_LINKS:
        return None
    return [[each.receiver.tolist(), each.sender.tolist(), each.weight.tolist()] for each in links]


def from_record(name: str, size: int, recorded: Any) -> Graphs:
    """Makes graphs from recorded lists; raises an ArgumentError if they are not valid."""
    try:
        links = [Links(*(np.asarray(part) for part in graph)) for graph in recorded]
        right = 0 < len(links) <= MAX_PERIOD and all(_is_right(size, graph) for graph in links)
    except (TypeError, ValueError, OverflowError):
        right = False
    if not right or sum(len(graph.weight) for graph in links) > MOST_LINKS:
        raise ArgumentError("graphs must be lists of receivers, senders and weights")
    graphs = [from_links(name, size, g.receiver, g.sender, g.weight, connected=False) for g in links]
    return graphs[0] if len(graphs) == 1 else alternate(*graphs, name=name, connected=False)


def _is_right(size: int, links: Links) -> bool:
    """Returns whether these are links among `size` agents, each of them once."""
    receiver, sender, weight = links
    if not receiver.shape == sender.shape == weight.shape or receiver.ndim != 1 or not receiver.size:
        return False
    if receiver.dtype.kind != "i" or sender.dtype.kind != "i" or weight.dtype.kind not in "if":
        return False
    agents = np.stack([receiver, sender])
    in_range = agents.min() >= 0 and agents.max() < size and (weight > 0).all() and (weight <= 1).all()
    return bool(in_range) and np.unique(agents, axis=1).shape == agents.shape
