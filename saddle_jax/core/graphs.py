"""Graphs that take turns, one per step."""

import dataclasses
import functools

import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.topology import Keeps, Topology, require_connected


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Cycle:
    """Graphs of the same agents that take turns, one per step; make one with `sj.cycle`.

    Attributes:
      graphs: in their order; all have tables [A, K] of one shape.
    """

    graphs: tuple[Topology, ...]

    @property
    def name(self) -> str:
        """How it was made, such as "cycle(ring(4), complete(4))"."""
        return f"cycle({', '.join(graph.name for graph in self.graphs)})"

    @property
    def size(self) -> int:
        """A, the number of agents, idle ones included."""
        return self.graphs[0].size

    @property
    def period(self) -> int:
        """After how many steps the graphs repeat."""
        return len(self.graphs)

    def at(self, t: int) -> Topology:
        """The graph of step t."""
        return self.graphs[t % self.period]

    @property
    def idle(self) -> int:
        """How many of the last agents take no part in anything, see `Topology.padded`."""
        return self.graphs[0].idle

    @property
    def present(self) -> np.ndarray:
        """bool [A]: who takes part."""
        return self.graphs[0].present

    def padded(self, size: int) -> "Cycle":
        """The same graphs with idle agents behind them, up to `size`."""
        return Cycle(tuple(graph.padded(size) for graph in self.graphs))

    @property
    def is_directed(self) -> bool:
        """Whether in some step somebody hears an agent that does not hear back."""
        return any(graph.is_directed for graph in self.graphs)

    @functools.cached_property
    def keeps(self) -> Keeps:
        """What every one of the graphs keeps, see `Topology.keeps`."""
        kinds: set[Keeps] = {graph.keeps for graph in self.graphs}
        if len(kinds) == 1:
            return kinds.pop()
        kinds.discard("average")
        if len(kinds) == 1:
            return kinds.pop()
        raise ArgumentError(f"graphs must keep one thing, rows or mass, got both in {self.name}")

    @functools.cached_property
    def spectral_gap(self) -> float:
        """1 - s^(1 / period), s the second singular value of the product of all W: the mean gap of a step."""
        if self.size - self.idle == 1:
            return 1.0
        matrices = [graph._sparse().toarray() for graph in self.graphs]
        product = functools.reduce(lambda done, next_one: next_one @ done, matrices)
        second = np.linalg.svd(product, compute_uv=False)[1]
        return max(0.0, float(1.0 - second ** (1 / self.period)))

    def __repr__(self) -> str:
        links = " + ".join(str(int(graph.degree.sum())) for graph in self.graphs)
        return (
            f"{self.name}: {self.size - self.idle} agents, period {self.period}, {links} directed links, "
            f"spectral gap {self.spectral_gap:.4f} per step"
        )


def cycle(*graphs: Topology | Cycle, connected: bool = True) -> Cycle:
    """Graphs that take turns, one per step, and start again: `at(t)` is the one of step t.

    Args:
      graphs: of the same number of agents; each by itself may fall apart.
      connected: whether all of them together must hold together.
    """
    if not graphs:
        raise ArgumentError("graphs must be at least one topology, got none")
    for graph in graphs:
        checks.instance("graphs", graph, (Topology, Cycle), "sj.ring(10)")
    flat = [graph for each in graphs for graph in each.graphs]
    if len(sizes := {graph.size for graph in flat}) > 1 or any(graph.idle for graph in flat):
        raise ArgumentError(f"graphs must have the same agents, got sizes {sorted(sizes)}")
    width = max(graph.neighbours.shape[1] for graph in flat)
    result = Cycle(tuple(graph.widened(width) for graph in flat))
    _ = result.keeps  # which raises where they keep different things
    if connected:
        require_connected(*flat)
    return result
