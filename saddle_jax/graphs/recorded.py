"""Graphs as plain lists: whoever reads a run's folder draws its graph without asking where it came from."""

from typing import Any

import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.graphs import alternate
from saddle_jax.core.mixing import Graphs
from saddle_jax.core.topology import Links, from_links
from saddle_jax.graphs.weights import MOST_TURNS

MOST_LINKS = 20_000  # what is larger is not recorded: nobody draws it


def to_record(graphs: Graphs) -> list[list[list[float]]] | None:
    """Lists of each graph in turn the receivers, the senders and the weights; None if that is too much."""
    links = [graph.links for graph in graphs.graphs]
    if sum(len(each.weight) for each in links) > MOST_LINKS:
        return None
    return [[each.receiver.tolist(), each.sender.tolist(), each.weight.tolist()] for each in links]


def from_record(name: str, size: int, recorded: Any) -> Graphs:
    """Makes the graphs of such lists again, which may be anything; an ArgumentError tells what is wrong."""
    try:
        links = [Links(*(np.asarray(part) for part in graph)) for graph in recorded]
        right = 0 < len(links) <= MOST_TURNS and all(_is_right(size, graph) for graph in links)
    except (TypeError, ValueError, OverflowError):
        right = False
    if not right or sum(len(graph.weight) for graph in links) > MOST_LINKS:
        raise ArgumentError("graphs must be lists of receivers, senders and weights")
    graphs = [from_links(name, size, g.receiver, g.sender, g.weight, connected=False) for g in links]
    return graphs[0] if len(graphs) == 1 else alternate(*graphs, name=name, connected=False)


def _is_right(size: int, links: Links) -> bool:
    """Tells whether these are links among so many agents, each of them once."""
    receiver, sender, weight = links
    if not receiver.shape == sender.shape == weight.shape or receiver.ndim != 1 or not receiver.size:
        return False
    if receiver.dtype.kind != "i" or sender.dtype.kind != "i" or weight.dtype.kind not in "if":
        return False
    agents = np.stack([receiver, sender])
    in_range = agents.min() >= 0 and agents.max() < size and (weight > 0).all() and (weight <= 1).all()
    return bool(in_range) and np.unique(agents, axis=1).shape == agents.shape
