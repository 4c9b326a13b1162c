"""Graphs that take turns, one per step."""

import dataclasses
import functools

import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core import spectrum
from saddle_jax.core.topology import Stochasticity, Topology, require_connected


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TimeVarying:
    """Graphs of the same agents that take turns, one per step; make one with `sj.alternate`.

    Attributes:
      graphs: the topologies in their order; all have tables [A, K] of one shape.
      given_name: the call that makes them; without it, the name lists the graphs.

    >>> sj.alternate(sj.ring(4), sj.complete(4)).at(3).name
    'complete(4)'
    """

    graphs: tuple[Topology, ...]
    given_name: str | None = None

    @property
    def name(self) -> str:
        """The call that makes these graphs, such as "one_peer_exponential(8)"."""
        return self.given_name or f"alternate({', '.join(graph.name for graph in self.graphs)})"

    @property
    def size(self) -> int:
        """The number of agents A, idle ones included."""
        return self.graphs[0].size

    @property
    def slots(self) -> int:
        """The number of slots K, the same for all graphs, see `Topology.slots`."""
        return self.graphs[0].slots

    @property
    def period(self) -> int:
        """The number of steps after which the graphs repeat."""
        return len(self.graphs)

    @property
    def has_fixed_links(self) -> bool:
        """Whether everybody hears the same agents in all steps, so that something can be kept per link."""
        first = self.graphs[0]
        return all(np.array_equal(first.neighbours, graph.neighbours) for graph in self.graphs)

    def at(self, t: int) -> Topology:
        """Returns the graph whose turn is step t."""
        return self.graphs[t % self.period]

    @property
    def idle(self) -> int:
        """The number of agents, the last ones, that take no part in anything, see `Topology.padded`."""
        return self.graphs[0].idle

    @property
    def present(self) -> np.ndarray:
        """Which agents take part in the run, bool [A]."""
        return self.graphs[0].present

    def padded(self, size: int) -> "TimeVarying":
        """Returns the same graphs with idle agents behind them, `size` agents in all."""
        graphs = tuple(graph.padded(size) for graph in self.graphs)
        return dataclasses.replace(self, graphs=graphs)

    @property
    def is_directed(self) -> bool:
        """Whether in some step an agent hears another that does not hear it."""
        return any(graph.is_directed for graph in self.graphs)

    @functools.cached_property
    def stochasticity(self) -> Stochasticity:
        """The property of the models that every one of the graphs keeps, see `Topology.stochasticity`."""
        kinds: set[Stochasticity] = {graph.stochasticity for graph in self.graphs}
        if len(kinds) == 1:
            return kinds.pop()
        kinds.discard("doubly")
        if len(kinds) == 1:
            return kinds.pop()
        raise ArgumentError(f"graphs must be row or column stochastic alike, got both in {self.name}")

    @functools.cached_property
    def spectral_gap(self) -> float:
        """The mean gap of a step, 1 - s^(1 / period), s what a whole period leaves of a disagreement.

        s is the second singular value of the product of all W; if they keep rows or mass alone, the
        second largest modulus of its eigenvalues.
        """
        if self.size - self.idle == 1:
            return 1.0
        matrices = [graph._sparse() for graph in self.graphs]
        left = spectrum.second_of_product(matrices, self.stochasticity == "doubly")
        return max(0.0, float(1.0 - left ** (1 / self.period)))

    @functools.cached_property
    def smallest_eigenvalue(self) -> float:
        """The smallest eigenvalue of all these graphs, see `Topology.smallest_eigenvalue`."""
        return min(graph.smallest_eigenvalue for graph in self.graphs)

    @property
    def is_tree(self) -> bool:
        """Whether the graph is one and the same tree in every step, see `Topology.is_tree`."""
        return self.has_fixed_links and self.graphs[0].is_tree

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeVarying) and self.graphs == other.graphs

    def __hash__(self) -> int:
        return hash(self.graphs)

    def __repr__(self) -> str:
        counts = [int(graph.degree.sum()) for graph in self.graphs]
        links = " + ".join(map(str, counts)) if self.period < 10 else f"{min(counts)} to {max(counts)}"
        if len(set(counts)) == 1 and self.period > 1:
            links = f"{self.period} x {counts[0]}"
        stochasticity = "" if self.stochasticity == "doubly" else f", {self.stochasticity} stochastic"
        return (
            f"{self.name}: {self.size - self.idle} agents, period {self.period}, {links} directed links, "
            f"spectral gap {self.spectral_gap:.4f} per step{stochasticity}"
        )


def alternate(
    *graphs: Topology | TimeVarying, name: str | None = None, connected: bool = True
) -> TimeVarying:
    """Lets graphs take turns, one per step, again and again: `at(t)` is the graph of step t.

    Args:
      graphs: graphs of the same agents; each by itself may be disconnected.
      name: the name of them all; without one, it lists their names.
      connected: whether the links of all graphs together must connect the agents.

    >>> sj.alternate(sj.ring(4), sj.isolated(4))  # gossip in every other step
    alternate(ring(4), isolated(4)): 4 agents, period 2, 8 + 0 directed links, spectral gap 0.4226 per step
    """
    if not graphs:
        raise ArgumentError("graphs must be at least one topology, got none")
    for graph in graphs:
        checks.instance("graphs", graph, (Topology, TimeVarying), "sj.ring(10)")
    turns = [turn for graph in graphs for turn in graph.graphs]
    if len(sizes := {turn.size for turn in turns}) > 1 or any(turn.idle for turn in turns):
        raise ArgumentError(f"graphs must have the same agents, got sizes {sorted(sizes)}")
    slots = max(turn.slots for turn in turns)
    joined = TimeVarying(tuple(turn.widened(slots) for turn in turns), name)
    _ = joined.stochasticity  # raises an error where they keep different things
    if connected:
        require_connected(*turns)
    return joined
