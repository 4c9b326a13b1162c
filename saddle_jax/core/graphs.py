"""The graphs that have names, and graphs that take turns.

Undirected graphs get uniform weights 1 / (degree + 1) when they are regular and Metropolis-Hastings
weights 1 / (1 + max(degree_i, degree_j)) otherwise; both are symmetric. Arguments are checked at once; the
links of graphs that are connected by construction are made when they are first needed.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import networkx as nx
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.topology import Keeps, Links, Topology, from_links, require_connected

# How many random graphs are drawn before a connected one is declared out of reach.
_MAX_DRAWS = 1000


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
    def slots(self) -> int:
        """K, see `Topology.slots`; the same for all graphs."""
        return self.graphs[0].slots

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
    width = max(graph.slots for graph in flat)
    result = Cycle(tuple(graph.widened(width) for graph in flat))
    _ = result.keeps  # which raises where they keep different things
    if connected:
        require_connected(*flat)
    return result


def ring(n: int) -> Topology:
    """Agents in a circle: on three or more, weight 1/3 to self and to each of two neighbours."""
    n = checks.whole("n", n, at_least=2)
    return _lazy(f"ring({n})", n, lambda: nx.cycle_graph(n))


def torus(rows: int, cols: int | None = None) -> Topology:
    """A periodic grid: `torus(rows, cols)`, or `torus(n)` for a grid of n agents.

    Weight 1/5 to self and to each of four neighbours; two rows or columns leave fewer neighbours.

    `torus(n)` takes as rows the largest divisor of n that is not above sqrt(n): 40 is 5 x 8.
    """
    if cols is None:
        n = checks.whole("n", rows, at_least=4)
        rows = max(r for r in range(1, math.isqrt(n) + 1) if n % r == 0)
        cols = n // rows
        if rows < 2:
            raise ArgumentError(f"n must be a product of two factors >= 2 for a torus, got {n}, a prime")
    rows = checks.whole("rows", rows, at_least=2)
    cols = checks.whole("cols", cols, at_least=2)
    return _lazy(f"torus({rows}, {cols})", rows * cols, lambda: nx.grid_2d_graph(rows, cols, periodic=True))


def complete(n: int) -> Topology:
    """Everybody hears everybody: W = 1/n, one round of gossip is an exact average."""
    n = checks.whole("n", n, at_least=2)

    def make_links() -> Links:
        agents = np.arange(n)
        return Links(np.repeat(agents, n), np.tile(agents, n), np.full(n * n, 1.0 / n))

    return Topology(f"complete({n})", n, make_links)


def star(n: int) -> Topology:
    """Agent 0 in the middle of n - 1 others."""
    n = checks.whole("n", n, at_least=2)
    return _lazy(f"star({n})", n, lambda: nx.star_graph(n - 1))


def chain(n: int) -> Topology:
    """Agents in a row, the two ends not joined."""
    n = checks.whole("n", n, at_least=2)
    return _lazy(f"chain({n})", n, lambda: nx.path_graph(n))


def hypercube(n: int) -> Topology:
    """n = 2^d agents, joined where the binary forms of their numbers differ in one digit."""
    n = checks.whole("n", n, at_least=2)
    if n & (n - 1):
        raise ArgumentError(f"n must be a power of two for a hypercube, got {n}")
    return _lazy(f"hypercube({n})", n, lambda: nx.hypercube_graph(n.bit_length() - 1))


def exponential(n: int) -> Topology:
    """The static exponential graph: agent i hears i - 1, i - 2, i - 4, ... (mod n). Directed.

    Ying et al., "Exponential graph is provably efficient for decentralized deep training", 2021.
    """
    n = checks.whole("n", n, at_least=2)
    hops = np.array(sorted({0, *(2**power % n for power in range((n - 1).bit_length()))}))

    def make_links() -> Links:
        receiver = np.repeat(np.arange(n), len(hops))
        sender = np.sort((np.arange(n)[:, None] - hops) % n, axis=1).ravel()
        return Links(receiver, sender, np.full(len(receiver), 1.0 / len(hops)))

    return Topology(f"exponential({n})", n, make_links)


def circulant(n: int, offsets: Sequence[int]) -> Topology:
    """Agent i is joined to i +- offset (mod n) for each offset.

    `circulant(40, [1, 5])` is what the code that the paper descends from calls a torus.
    """
    n = checks.whole("n", n, at_least=2)
    if not isinstance(offsets, Iterable):
        raise ArgumentError(f"offsets must be a sequence of integers, got {offsets!r}")
    offsets = [checks.whole("offsets", o, at_least=1, at_most=n - 1) for o in offsets]
    if (parts := math.gcd(n, *offsets)) > 1:
        raise ArgumentError(f"offsets must give a connected graph, got {parts} separate parts")
    return _lazy(f"circulant({n}, {offsets})", n, lambda: nx.circulant_graph(n, offsets))


def erdos_renyi(n: int, probability: float, seed: int = 0) -> Topology:
    """Each pair joined with the given probability; redrawn until the graph is connected."""
    n = checks.whole("n", n, at_least=2)
    checks.real("probability", probability, above=0.0, at_most=1.0)
    name = f"erdos_renyi({n}, {probability}, seed={seed})"
    return _connected_draw(name, seed, lambda random: nx.gnp_random_graph(n, probability, seed=random))


def random_regular(n: int, degree: int, seed: int = 0) -> Topology:
    """A random graph in which every agent has `degree` neighbours; redrawn until it is connected."""
    n = checks.whole("n", n, at_least=2)
    degree = checks.whole("degree", degree, at_least=1, at_most=n - 1)
    if n * degree % 2:
        raise ArgumentError(f"n * degree must be even for a regular graph, got {n} * {degree}")
    name = f"random_regular({n}, {degree}, seed={seed})"
    return _connected_draw(name, seed, lambda random: nx.random_regular_graph(degree, n, seed=random))


def isolated(n: int) -> Topology:
    """W = I: nobody hears anybody. The baseline of purely local training; not connected."""
    n = checks.whole("n", n, at_least=1)
    return Topology(f"isolated({n})", n, lambda: Links(np.arange(n), np.arange(n), np.ones(n)))


def from_networkx(graph: Any, name: str | None = None) -> Topology:
    """Any undirected networkx graph; agents are numbered in the order of `graph.nodes`.

    Edge weights are ignored: W follows from the degrees. Use `from_matrix` for weights of your own.
    """
    if not isinstance(graph, nx.Graph):
        raise ArgumentError(f"graph must be a networkx.Graph, got {type(graph).__name__}")
    if graph.is_directed():
        raise ArgumentError("graph must be undirected; for a directed one give W to from_matrix")
    if not len(graph):
        raise ArgumentError("graph must have at least one node, got none")
    return from_links(name or f"networkx({len(graph)})", len(graph), *_metropolis(graph))


def _lazy(name: str, size: int, graph: Callable[[], Any]) -> Topology:
    """A topology of a graph that is connected by construction."""
    return Topology(name, size, lambda: _metropolis(graph()))


def _metropolis(graph: Any) -> Links:
    """Metropolis-Hastings weights; on regular graphs this is the uniform 1 / (degree + 1)."""
    size, number = len(graph), {node: position for position, node in enumerate(graph.nodes)}
    # A self-loop is no neighbour, and two edges between the same agents are one link.
    edges = {(number[a], number[b]) for a, b in graph.edges() if a != b}
    pairs = np.array(sorted(edges | {(b, a) for a, b in edges}), int).reshape(-1, 2)
    receiver, sender = pairs[:, 0], pairs[:, 1]
    degree = np.bincount(receiver, minlength=size)
    weight = 1.0 / (1.0 + np.maximum(degree[receiver], degree[sender]))
    own = 1.0 - np.bincount(receiver, weight, size)
    kept = np.flatnonzero(own > 0)
    receiver, sender = np.r_[receiver, kept], np.r_[sender, kept]
    order = np.lexsort((sender, receiver))
    return Links(receiver[order], sender[order], np.r_[weight, own[kept]][order])


def _connected_draw(name: str, seed: int, draw: Callable[[np.random.RandomState], Any]) -> Topology:
    random = np.random.RandomState(checks.whole("seed", seed, at_least=0, at_most=2**32 - 1))
    for _ in range(_MAX_DRAWS):
        graph = draw(random)
        if nx.is_connected(graph):
            return from_networkx(graph, name=name)
    raise ArgumentError(f"{name} gave no connected graph in {_MAX_DRAWS} draws: ask for more edges")
