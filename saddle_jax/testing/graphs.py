"""The invariants of graphs: W agrees with the tables of neighbours and with its stochasticity."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from saddle_jax.base.registry import parameters_of
from saddle_jax.core.topology import Graphs, TimeVarying, Topology, are_connected
from saddle_jax.testing.invariants import InapplicableError, InvariantError, Result, results_of, verify

_AGENTS = 8
_EXACT = 1e-12


def check_graph(
    factory: Callable[..., Graphs],
    options: dict[str, Any] | None = None,
    *,
    tell: Callable[[str], None] | None = None,
) -> list[Result]:
    """Checks every invariant of the graph that `factory(**options)` makes.

    A factory whose first parameter is `n` gets 8 agents, unless the options set it.
    """
    arguments = dict(options or {})
    if next(iter(parameters_of(factory)), "") == "n":
        arguments.setdefault("n", _AGENTS)
    return verify(results_of(INVARIANTS, _Maker(factory, arguments), tell, gates=1))


class _Maker:
    """Makes the graph under test, with the number of agents that it should have."""

    def __init__(self, factory: Callable[..., Graphs], options: dict[str, Any]):
        self.options = options
        self._factory = factory

    def make(self) -> Graphs:
        graph = self._factory(**self.options)
        if not isinstance(graph, Topology | TimeVarying):
            raise InvariantError(f"the factory must return a Topology or a TimeVarying, got {graph!r:.80}")
        return graph

    @functools.cached_property
    def graph(self) -> Graphs:
        return self.make()


def the_graph_has_the_agents_that_were_asked_for(maker: _Maker) -> str:
    """Checks the number of agents, and that the graph's name is a valid spec."""
    graph = maker.graph
    asked = maker.options.get("n")
    if asked is not None and graph.size != asked:
        raise InvariantError(f"{asked} agents were asked for, and it has {graph.size}")
    if not graph.name.isprintable() or not graph.name:
        raise InvariantError(f"its name must be one line, got {graph.name!r}")
    return f"{graph.size} agents: {graph.name}"


def the_tables_say_what_w_says(maker: _Maker) -> str:
    """Checks neighbours, weights and degrees of every graph in the period against W."""
    for graph in maker.graph.graphs:
        check_tables(graph)
    return f"{maker.graph.slots - 1} neighbours at most"


def check_tables(graph: Topology) -> None:
    """Checks that the table of neighbours of one graph agrees with W."""
    w, rebuilt = graph.mixing, np.zeros((graph.size, graph.size))
    if w.dtype != np.float64 or (w < 0).any() or not np.isfinite(w).all():
        raise InvariantError(f"W of {graph.name} must be float64, finite and not negative, got {w.dtype}")
    if graph.neighbours.shape != graph.weights.shape:
        raise InvariantError(f"neighbours are {graph.neighbours.shape}, and weights {graph.weights.shape}")
    for agent in range(graph.size):
        senders = graph.neighbours[agent][graph.occupied[agent]]
        if (
            senders[0] != agent
            or len(set(senders)) != len(senders)
            or len(senders) != graph.degree[agent] + 1
        ):
            raise InvariantError(
                f"agent {agent} receives from {senders.tolist()}, and its degree is {graph.degree[agent]}"
            )
        np.add.at(rebuilt[agent], graph.neighbours[agent], graph.weights[agent])
    if not np.array_equal(rebuilt, w):
        agent, other = (int(place[0]) for place in np.nonzero(rebuilt != w))
        raise InvariantError(
            f"W[{agent}, {other}] is {w[agent, other]:.6g}, and the table says {rebuilt[agent, other]:.6g}"
        )


def w_keeps_what_it_says(maker: _Maker) -> str:
    """Checks that rows or columns of W sum to one, as `stochasticity` says."""
    for graph in maker.graph.graphs:
        check_sums(graph)
    return f"it is {maker.graph.stochasticity} stochastic"


def check_sums(graph: Topology) -> None:
    """Checks that rows or columns of one graph's W sum to one, as `stochasticity` says."""
    for axis, line, kinds in ((1, "row", ("doubly", "row")), (0, "column", ("doubly", "column"))):
        sums = graph.mixing.sum(axis=axis)
        if graph.stochasticity in kinds and np.abs(sums - 1).max() > _EXACT:
            worst = int(np.abs(sums - 1).argmax())
            raise InvariantError(
                f"{graph.name} is {graph.stochasticity} stochastic, and {line} {worst} of W sums to "
                f"{sums[worst]:.9g}"
            )


def everybody_is_heard_by_everybody_in_the_end(maker: _Maker) -> str:
    """Checks that the union of the graphs in a period is connected."""
    if not any(graph.degree.any() for graph in maker.graph.graphs):
        raise InapplicableError("it has no links: its agents are alone on purpose")
    if not are_connected(*maker.graph.graphs):
        raise InvariantError("it falls into parts that never communicate")
    return f"spectral gap {maker.graph.spectral_gap:.3g}"


def a_message_back_finds_its_slot(maker: _Maker) -> str:
    """Checks that `back` of an undirected graph gives the agent's slot in each neighbour's table."""
    if maker.graph.is_directed:
        raise InapplicableError("it is directed: a link has no way back")
    for graph in maker.graph.graphs:
        check_back(graph)
    return f"{sum(int(graph.degree.sum()) for graph in maker.graph.graphs)} links"


def check_back(graph: Topology) -> None:
    """Checks `back` in the tables of one undirected graph."""
    for i, k in zip(*np.nonzero(graph.occupied), strict=True):
        j, slot = graph.neighbours[i, k], graph.back[i, k]
        if graph.neighbours[j, slot] != i or (slot == 0) != (i == j):
            raise InvariantError(
                f"agent {i} receives from {j}, whose slot {slot} holds {graph.neighbours[j, slot]}"
            )


def made_twice_it_is_the_same_graph(maker: _Maker) -> str:
    """Checks that a graph is a function of its options, so that a resumed run has the same one."""
    again = maker.make()
    same = again.period == maker.graph.period and all(
        np.array_equal(one.mixing, other.mixing)
        for one, other in zip(again.graphs, maker.graph.graphs, strict=True)
    )
    if not same:
        raise InvariantError(
            "made again with the same options it is another graph: draw from a seed among them"
        )
    return f"{maker.graph.period} turns" if maker.graph.period > 1 else "the same W"


INVARIANTS = (
    the_graph_has_the_agents_that_were_asked_for,
    the_tables_say_what_w_says,
    w_keeps_what_it_says,
    everybody_is_heard_by_everybody_in_the_end,
    a_message_back_finds_its_slot,
    made_twice_it_is_the_same_graph,
)
