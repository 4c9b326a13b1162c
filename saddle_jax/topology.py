"""Communication graphs and their mixing matrices W, in NumPy and float64.

W[i, j] is the weight with which agent i takes in agent j (w_ij in the paper). Every topology is
checked when it is made: W is square, finite, non-negative and doubly stochastic, and its graph
is connected. Undirected graphs get uniform weights 1 / (degree + 1) when they are regular and
Metropolis-Hastings weights 1 / (1 + max(degree_i, degree_j)) otherwise; both are symmetric.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import networkx as nx
import numpy as np

from saddle_jax import checks

# Rows and columns of W may miss one by this much: float32 matrices are accepted, typos are not.
_STOCHASTIC_TOLERANCE = 1e-6
# How many random graphs are drawn before a connected one is declared out of reach.
_MAX_DRAWS = 1000


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Topology:
    """A graph of agents with its mixing matrix. Make one with `ring`, `torus`, `from_matrix`, ...

    Attributes:
      name: how it was made, such as "ring(10)".
      mixing: W, float64 [A, A], doubly stochastic, read-only.
      connected: whether the graph was required to hold together.
      idle: how many of the last agents take no part in anything, see `padded`.
    """

    name: str
    mixing: np.ndarray
    connected: bool = True
    idle: int = 0

    def __post_init__(self):
        try:
            mixing = np.array(self.mixing, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"W must be a matrix of numbers [A, A], got {self.mixing!r}") from error
        taking_part = mixing[: -self.idle, : -self.idle] if self.idle else mixing
        _check_mixing(taking_part, self.connected)
        object.__setattr__(self, "mixing", _frozen(mixing))

    @property
    def size(self) -> int:
        """A, the number of agents, idle ones included."""
        return self.mixing.shape[0]

    @property
    def present(self) -> np.ndarray:
        """bool [A]: who takes part; everybody, unless the graph was padded."""
        return np.arange(self.size) < self.size - self.idle

    def padded(self, size: int) -> "Topology":
        """The same graph with idle agents behind it, up to `size`: as many as the devices share evenly.

        An idle agent hears nobody, is heard by nobody, and is left out of averages and metrics.
        """
        size = checks.whole("size", size, at_least=self.size)
        mixing = np.eye(size)
        mixing[: self.size, : self.size] = self.mixing
        return dataclasses.replace(self, mixing=mixing, idle=self.idle + size - self.size)

    @functools.cached_property
    def _links(self) -> np.ndarray:
        """bool [A, A]: True where agent i listens to agent j, itself apart."""
        return (self.mixing > 0) & ~np.eye(self.size, dtype=bool)

    @property
    def is_directed(self) -> bool:
        """Whether somebody hears an agent that does not hear back."""
        return not np.array_equal(self._links, self._links.T)

    @functools.cached_property
    def degree(self) -> np.ndarray:
        """int [A]: how many others each agent hears (on undirected graphs: its neighbours)."""
        return _frozen(self._links.sum(axis=1))

    @functools.cached_property
    def out_degree(self) -> np.ndarray:
        """int [A]: how many others hear each agent; differs from `degree` on directed graphs."""
        return _frozen(self._links.sum(axis=0))

    @functools.cached_property
    def neighbours(self) -> np.ndarray:
        """int [A, K]: whom agent i hears: itself first, then the others in ascending order.

        K is the largest degree plus one. Agents with fewer neighbours fill their free slots
        with themselves, at weight zero.
        """
        table = np.repeat(np.arange(self.size)[:, None], self.degree.max(initial=0) + 1, axis=1)
        for agent, row in enumerate(self._links):
            others = np.flatnonzero(row)
            table[agent, 1 : 1 + len(others)] = others
        return _frozen(table)

    @functools.cached_property
    def occupied(self) -> np.ndarray:
        """bool [A, K]: which slots of `neighbours` are real, and not filling; none of an idle agent's."""
        filled = np.arange(self.neighbours.shape[1]) <= self.degree[:, None]
        return _frozen(filled & self.present[:, None])

    @functools.cached_property
    def weights(self) -> np.ndarray:
        """float64 [A, K]: W in the layout of `neighbours`; filled slots weigh zero."""
        taken = np.take_along_axis(self.mixing, self.neighbours, axis=1)
        return _frozen(np.where(self.occupied, taken, 0.0))

    @functools.cached_property
    def spectral_gap(self) -> float:
        """1 - |lambda_2|, lambda_2 the second eigenvalue of W by modulus; 1 means one round mixes all."""
        mixing = self.mixing[self.present][:, self.present]
        if len(mixing) == 1:
            return 1.0
        symmetric = np.array_equal(mixing, mixing.T)
        eigenvalues = (np.linalg.eigvalsh if symmetric else np.linalg.eigvals)(mixing)
        return max(0.0, float(1.0 - np.sort(np.abs(eigenvalues))[-2]))

    def __repr__(self) -> str:
        degrees = self.degree[self.present]
        low, high = int(degrees.min()), int(degrees.max())
        degree = f"degree {low}" if low == high else f"degrees {low} to {high}"
        return (
            f"{self.name}: {len(degrees)} agents, {degree}, "
            f"{int(self._links.sum())} directed links, spectral gap {self.spectral_gap:.4f}"
        )


def ring(n: int) -> Topology:
    """Agents in a circle: on three or more, weight 1/3 to self and to each of two neighbours."""
    n = checks.whole("n", n, at_least=2)
    return from_networkx(nx.cycle_graph(n), name=f"ring({n})")


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
            raise ValueError(f"n must be a product of two factors >= 2 for a torus, got {n}, a prime")
    rows = checks.whole("rows", rows, at_least=2)
    cols = checks.whole("cols", cols, at_least=2)
    grid = nx.grid_2d_graph(rows, cols, periodic=True)
    return from_networkx(grid, name=f"torus({rows}, {cols})")


def complete(n: int) -> Topology:
    """Everybody hears everybody: W = 1/n, one round of gossip is an exact average."""
    n = checks.whole("n", n, at_least=2)
    return from_networkx(nx.complete_graph(n), name=f"complete({n})")


def star(n: int) -> Topology:
    """Agent 0 in the middle of n - 1 others."""
    n = checks.whole("n", n, at_least=2)
    return from_networkx(nx.star_graph(n - 1), name=f"star({n})")


def chain(n: int) -> Topology:
    """Agents in a row, the two ends not joined."""
    n = checks.whole("n", n, at_least=2)
    return from_networkx(nx.path_graph(n), name=f"chain({n})")


def hypercube(n: int) -> Topology:
    """n = 2^d agents, joined where the binary forms of their numbers differ in one digit."""
    n = checks.whole("n", n, at_least=2)
    if n & (n - 1):
        raise ValueError(f"n must be a power of two for a hypercube, got {n}")
    cube = nx.hypercube_graph(n.bit_length() - 1)
    return from_networkx(cube, name=f"hypercube({n})")


def exponential(n: int) -> Topology:
    """The static exponential graph: agent i hears i - 1, i - 2, i - 4, ... (mod n). Directed.

    Ying et al., "Exponential graph is provably efficient for decentralized deep training", 2021.
    """
    n = checks.whole("n", n, at_least=2)
    hops = {2**power % n for power in range((n - 1).bit_length())}
    first_row = np.zeros(n)
    first_row[[0, *(-hop % n for hop in hops)]] = 1.0 / (len(hops) + 1)
    mixing = np.stack([np.roll(first_row, agent) for agent in range(n)])
    return from_matrix(mixing, name=f"exponential({n})")


def circulant(n: int, offsets: Sequence[int]) -> Topology:
    """Agent i is joined to i +- offset (mod n) for each offset.

    `circulant(40, [1, 5])` is what the code that the paper descends from calls a torus.
    """
    n = checks.whole("n", n, at_least=2)
    if not isinstance(offsets, Iterable):
        raise ValueError(f"offsets must be a sequence of integers, got {offsets!r}")
    offsets = [checks.whole("offsets", o, at_least=1, at_most=n - 1) for o in offsets]
    return from_networkx(nx.circulant_graph(n, offsets), name=f"circulant({n}, {offsets})")


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
        raise ValueError(f"n * degree must be even for a regular graph, got {n} * {degree}")
    name = f"random_regular({n}, {degree}, seed={seed})"
    return _connected_draw(name, seed, lambda random: nx.random_regular_graph(degree, n, seed=random))


def isolated(n: int) -> Topology:
    """W = I: nobody hears anybody. The baseline of purely local training; not connected."""
    n = checks.whole("n", n, at_least=1)
    return from_matrix(np.eye(n), name=f"isolated({n})", connected=False)


def from_networkx(graph: Any, name: str | None = None) -> Topology:
    """Any undirected networkx graph; agents are numbered in the order of `graph.nodes`.

    Edge weights are ignored: W follows from the degrees. Use `from_matrix` for weights of your own.
    """
    if not isinstance(graph, nx.Graph):
        raise ValueError(f"graph must be a networkx.Graph, got {type(graph).__name__}")
    if graph.is_directed():
        raise ValueError("graph must be undirected; for a directed one give W to from_matrix")
    adjacency = nx.to_numpy_array(graph, weight=None) > 0
    np.fill_diagonal(adjacency, False)  # a self-loop is no neighbour
    degree = adjacency.sum(axis=1)
    # Metropolis-Hastings; on regular graphs this is the uniform 1 / (degree + 1).
    mixing = np.where(adjacency, 1.0 / (1.0 + np.maximum(degree[:, None], degree)), 0.0)
    np.fill_diagonal(mixing, 1.0 - mixing.sum(axis=1))
    return from_matrix(mixing, name=name or f"networkx({len(adjacency)})")


def from_matrix(W: Any, name: str | None = None, *, connected: bool = True) -> Topology:  # noqa: N803
    """A topology from a mixing matrix of your own [A, A], symmetric or not.

    Args:
      W: doubly stochastic matrix; W[i, j] > 0 means that agent i hears agent j.
      name: what to call it.
      connected: False accepts graphs that fall apart, such as W = I.

    Raises:
      ValueError: which property W lacks, and where.
    """
    return Topology(name or "matrix", W, connected)


def _check_mixing(mixing: np.ndarray, connected: bool) -> None:
    if mixing.ndim != 2 or mixing.shape[0] != mixing.shape[1] or mixing.size == 0:
        raise ValueError(f"W must be a square matrix [A, A], got shape {mixing.shape}")
    if not np.isfinite(mixing).all():
        raise ValueError(f"W must be finite, got {_first(mixing, ~np.isfinite(mixing))}")
    if (mixing < 0).any():
        raise ValueError(f"W must be non-negative, got {_first(mixing, mixing < 0)}")
    for axis, line in ((1, "row"), (0, "column")):
        sums = mixing.sum(axis=axis)
        worst = int(np.argmax(np.abs(sums - 1.0)))
        if abs(sums[worst] - 1.0) > _STOCHASTIC_TOLERANCE:
            raise ValueError(f"W must be doubly stochastic, got {line} {worst} summing to {sums[worst]:.8g}")
    links = nx.from_numpy_array(mixing > 0, create_using=nx.DiGraph)
    if connected and not nx.is_strongly_connected(links):
        parts = nx.number_strongly_connected_components(links)
        raise ValueError(f"W must describe a connected graph, got {parts} separate parts")


def _connected_draw(name: str, seed: int, draw: Callable[[np.random.RandomState], Any]) -> Topology:
    random = np.random.RandomState(checks.whole("seed", seed, at_least=0, at_most=2**32 - 1))
    for _ in range(_MAX_DRAWS):
        graph = draw(random)
        if nx.is_connected(graph):
            return from_networkx(graph, name=name)
    raise ValueError(f"{name} gave no connected graph in {_MAX_DRAWS} draws: ask for more edges")


def _first(matrix: np.ndarray, where: np.ndarray) -> str:
    row, column = (int(index[0]) for index in np.nonzero(where))
    return f"W[{row}, {column}] = {matrix[row, column]:g}"


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
