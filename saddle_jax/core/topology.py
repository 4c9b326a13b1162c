"""Communication graphs and their mixing matrices W, stored as lists of links.

W[i, j] is the weight that agent i gives to what it receives from agent j (w_ij in the papers). W is
non-negative and stochastic: gossip preserves the agents' average if W is doubly stochastic, consensus if its
rows sum to one, and the total mass if its columns do. Methods require one of these, see
`Topology.stochasticity`. All of this is NumPy in float64. Links are made when they are first needed, and W
itself, [A, A], only when `mixing` is read: a ring of 10,000 agents takes 30,000 numbers.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError

Stochasticity = Literal["doubly", "row", "column"]

# Rows and columns of W sum to one up to this error: float32 matrices are accepted, typos are not.
_STOCHASTIC_TOLERANCE = 1e-6

# Up to this many agents all eigenvalues are computed; beyond, only those at the ends of the spectrum.
_DENSE_EIGENVALUES = 1_000
# Restarts of ARPACK: enough if the eigenvalues are well separated, as on expanders.
_RESTARTS = 60


class Links(NamedTuple):
    """The positive entries of W, self-weights included, sorted by row, then column."""

    receiver: np.ndarray  # int [E]: i
    sender: np.ndarray  # int [E]: j
    weight: np.ndarray  # float64 [E]: w_ij


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Topology:
    """A graph of agents with its mixing matrix. Make one with `sj.ring`, `sj.torus`, `sj.from_matrix`, ...

    Graphs are equal if their sizes, links and weights are, whatever their names.

    Attributes:
      name: the call that makes it, such as "ring(10)".
      size: the number of agents A, idle ones included.
      make_links: makes the links; it is called once, when they are first needed.
      idle: the number of idle agents, which are the last ones, see `padded`.
      width: the least number of slots K, so that the graphs of a `TimeVarying` have tables of one shape.

    >>> sj.ring(4)
    ring(4): 4 agents, degree 2, 8 directed links, spectral gap 0.6667
    >>> sj.ring(4).neighbours[0]  # of agent 0, itself included
    array([0, 1, 3])
    """

    name: str
    size: int
    make_links: Callable[[], Links]
    idle: int = 0
    width: int = 1

    @property
    def period(self) -> int:
        """The number of steps after which the graph repeats: one, since it does not change."""
        return 1

    @property
    def has_fixed_links(self) -> bool:
        """Whether the links are the same in all steps, so that a state per link is possible."""
        return True

    @property
    def graphs(self) -> "tuple[Topology, ...]":
        """The graphs of the steps of one period: this one alone."""
        return (self,)

    def at(self, t: int) -> "Topology":
        """Returns the graph of step t, the same one for every t."""
        del t
        return self

    @functools.cached_property
    def links(self) -> Links:
        """The positive entries of W, made when they are first needed."""
        return Links(*(_frozen(np.asarray(part)) for part in self.make_links()))

    @functools.cached_property
    def mixing(self) -> np.ndarray:
        """The mixing matrix W, float64 [A, A], read-only and dense: for small graphs only."""
        mixing = np.zeros((self.size, self.size))
        mixing[self.links.receiver, self.links.sender] = self.links.weight
        return _frozen(mixing)

    @property
    def present(self) -> np.ndarray:
        """Which agents are not idle, bool [A]: all, unless the graph was padded."""
        return np.arange(self.size) < self.size - self.idle

    def padded(self, size: int) -> "Topology":
        """Returns the same graph with idle agents appended, `size` in all, to divide them among devices.

        An idle agent has no links and is left out of averages and metrics.
        """
        size = checks.whole("size", size, at_least=self.size)
        extra = np.arange(self.size, size)

        def make_links() -> Links:
            receiver, sender, weight = self.links
            return Links(np.r_[receiver, extra], np.r_[sender, extra], np.r_[weight, np.ones(len(extra))])

        idle = self.idle + size - self.size
        return dataclasses.replace(self, size=size, make_links=make_links, idle=idle)

    def widened(self, width: int) -> "Topology":
        """Returns the same graph with tables of at least `width` slots."""
        return self if self.slots >= width else dataclasses.replace(self, width=width)

    @property
    def slots(self) -> int:
        """The number of slots K in the tables: the largest degree plus one, for the agent itself."""
        return int(self.neighbours.shape[1])

    @functools.cached_property
    def _others(self) -> np.ndarray:
        """Which links are not self-loops, bool [E]."""
        others: np.ndarray = self.links.receiver != self.links.sender
        return others

    @functools.cached_property
    def is_directed(self) -> bool:
        """Whether some link has no link in the opposite direction."""
        receiver, sender, _ = self.links
        forth, back = receiver * self.size + sender, sender * self.size + receiver
        return not np.array_equal(np.sort(forth), np.sort(back))

    @functools.cached_property
    def is_symmetric(self) -> bool:
        """Whether W equals its transpose."""
        matrix = self._sparse()
        return bool(abs(matrix - matrix.T).max() == 0) if self.size > 1 else True

    @functools.cached_property
    def is_tree(self) -> bool:
        """Whether the graph is undirected, connected and without cycles: one link fewer than agents."""
        links, count = int(self._others.sum()), self.size - self.idle
        return not self.is_directed and links == 2 * (count - 1) and are_connected(self)

    @functools.cached_property
    def degree(self) -> np.ndarray:
        """The in-degree, int [A]: the number of other agents that each agent receives from."""
        return _frozen(np.bincount(self.links.receiver[self._others], minlength=self.size))

    @functools.cached_property
    def out_degree(self) -> np.ndarray:
        """The out-degree, int [A]: the number of other agents that each agent sends to."""
        return _frozen(np.bincount(self.links.sender[self._others], minlength=self.size))

    @functools.cached_property
    def _tables(self) -> tuple[np.ndarray, np.ndarray]:
        receiver, sender, weight = (part[self._others] for part in self.links)
        width = max(self.width, int(self.degree.max(initial=0)) + 1)
        neighbours = np.repeat(np.arange(self.size)[:, None], width, axis=1)
        weights = np.zeros((self.size, width))
        own = ~self._others
        weights[self.links.receiver[own], 0] = self.links.weight[own]
        slot = 1 + np.arange(len(receiver)) - np.repeat(np.cumsum(self.degree) - self.degree, self.degree)
        neighbours[receiver, slot], weights[receiver, slot] = sender, weight
        weights[~self.present] = 0.0
        return _frozen(neighbours), _frozen(weights)

    @property
    def neighbours(self) -> np.ndarray:
        """The agents that agent i receives from, int [A, K]: itself first, then the others, ascending.

        K is the largest degree plus one. Agents with fewer neighbours fill their free slots
        with themselves, at weight zero.
        """
        return self._tables[0]

    @property
    def weights(self) -> np.ndarray:
        """The weights of W in the layout of `neighbours`, float64 [A, K]; zero in free slots."""
        return self._tables[1]

    @functools.cached_property
    def occupied(self) -> np.ndarray:
        """Which slots of `neighbours` hold a neighbour, bool [A, K]; an idle agent has only free slots."""
        has_sender = np.arange(self.slots) <= self.degree[:, None]
        return _frozen(has_sender & self.present[:, None])

    @functools.cached_property
    def back(self) -> np.ndarray:
        """The slot of agent i in the row of its k-th neighbour, where messages for i are, int [A, K].

        It is 0 for the agent itself. Only undirected graphs have it.
        """
        if self.is_directed:
            raise ArgumentError(f"topology must be undirected for messages per link, got {self.name}")
        pairs = self.neighbours * self.size + np.arange(self.size)[:, None]  # (neighbour, i) as one number
        slots = np.zeros_like(self.neighbours)
        receiver, sender = self.links.receiver[self._others], self.links.sender[self._others]
        first = np.cumsum(self.degree) - self.degree
        link = np.searchsorted(receiver * self.size + sender, pairs)
        others = self.neighbours != np.arange(self.size)[:, None]
        slots[others] = 1 + link[others] - first[self.neighbours[others]]
        return _frozen(slots)

    @functools.cached_property
    def stochasticity(self) -> Stochasticity:
        """Which of W's sums are one, and so what a round of gossip preserves.

        "doubly": rows and columns, the agents' mean; "row": rows alone, consensus but not the mean;
        "column": columns alone, the agents' sum but not consensus (push-sum).
        """
        row, column = (np.abs(sums - 1).max() <= _STOCHASTIC_TOLERANCE for sums in self._sums)
        if row and column:
            return "doubly"
        if row or column:
            return "row" if row else "column"
        lines = ("row", "column")
        worst = [int(np.argmax(np.abs(sums - 1))) for sums in self._sums]
        faults = " and ".join(
            f"{line} {number} summing to {sums[number]:.8g}"
            for line, number, sums in zip(lines, worst, self._sums, strict=True)
        )
        raise ArgumentError(f"W must have rows or columns that sum to one, got {faults}")

    @property
    def _sums(self) -> tuple[np.ndarray, np.ndarray]:
        receiver, sender, weight = self.links
        return tuple(np.bincount(line, weight, self.size) for line in (receiver, sender))  # type: ignore[return-value]

    def _sparse(self) -> Any:
        """Returns W as a sparse matrix, without idle agents."""
        count = self.size - self.idle
        receiver, sender, weight = (part[self.links.receiver < count] for part in self.links)
        return sparse.csr_array((weight, (receiver, sender)), shape=(count, count))

    @functools.cached_property
    def spectral_gap(self) -> float:
        """The gap 1 - |lambda_2|, lambda_2 the second largest eigenvalue of W by modulus."""
        matrix = self._sparse()
        if matrix.shape[0] == 1:
            return 1.0
        return max(0.0, float(1.0 - second_modulus(matrix, self.is_symmetric)))

    @functools.cached_property
    def smallest_eigenvalue(self) -> float:
        """The smallest eigenvalue of a symmetric W; near -1, gossip oscillates between neighbours."""
        if not self.is_symmetric:
            raise ArgumentError(f"topology must have a symmetric W for its eigenvalues, got {self.name}")
        return smallest_eigenvalue(self._sparse())

    @functools.cached_property
    def _content(self) -> tuple[int, int, bytes]:
        tables = self.neighbours.tobytes() + self.weights.tobytes()
        return self.size, self.idle, hashlib.sha256(tables).digest()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Topology) and self._content == other._content)

    def __hash__(self) -> int:
        return hash(self._content)

    def __repr__(self) -> str:
        degrees = self.degree[self.present]
        low, high = int(degrees.min()), int(degrees.max())
        degree = f"degree {low}" if low == high else f"degrees {low} to {high}"
        stochasticity = "" if self.stochasticity == "doubly" else f", {self.stochasticity} stochastic"
        return (
            f"{self.name}: {len(degrees)} agents, {degree}, "
            f"{int(self._others.sum())} directed links, spectral gap {self.spectral_gap:.4f}{stochasticity}"
        )


def from_links(
    name: str, size: int, receiver: Any, sender: Any, weight: Any, connected: bool = True
) -> Topology:
    """Makes a topology from the positive entries of W; checks that W is stochastic and connected."""
    order = np.lexsort((sender, receiver))
    links = Links(np.asarray(receiver)[order], np.asarray(sender)[order], np.asarray(weight, float)[order])
    topology = Topology(name, size, lambda: links)
    _ = topology.stochasticity  # raises an error if W is not stochastic
    if connected:
        require_connected(topology)
    return topology


def from_matrix(W: Any, name: str | None = None, *, connected: bool = True) -> Topology:  # noqa: N803
    """Makes a topology from a mixing matrix of your own [A, A], symmetric or not.

    Args:
      W: non-negative, with rows or columns that sum to one; W[i, j] > 0 if agent i receives from agent j.
      name: the topology's name (default "matrix").
      connected: False accepts graphs that alone never reach consensus: disconnected ones, such as W = I, and
        periodic ones, which pass models on in a cycle.

    Raises:
      ArgumentError: W lacks a property; the message says which one, and where.

    >>> sj.from_matrix([[0.75, 0.25], [0.25, 0.75]])
    matrix: 2 agents, degree 1, 2 directed links, spectral gap 0.5000
    """
    try:
        mixing = np.array(W, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"W must be a matrix of numbers [A, A], got {W!r}") from error
    if mixing.ndim != 2 or mixing.shape[0] != mixing.shape[1] or mixing.size == 0:
        raise ArgumentError(f"W must be a square matrix [A, A], got shape {mixing.shape}")
    if not np.isfinite(mixing).all():
        raise ArgumentError(f"W must be finite, got {_first(mixing, ~np.isfinite(mixing))}")
    if (mixing < 0).any():
        raise ArgumentError(f"W must be non-negative, got {_first(mixing, mixing < 0)}")
    receiver, sender = np.nonzero(mixing)
    topology = from_links(
        name or "matrix", len(mixing), receiver, sender, mixing[receiver, sender], connected=connected
    )
    if connected and not mixing.diagonal().any() and topology.spectral_gap < 1e-9:
        raise ArgumentError(
            "W must bring all models together, got one with spectral gap 0, which passes them on in "
            "circles: let agents keep a part of their own model, W[i, i] > 0, or give connected=False"
        )
    return topology


def require_connected(*graphs: Topology) -> None:
    """Checks that the union of these graphs is strongly connected."""
    if (parts := _parts(*graphs)) > 1:
        raise ArgumentError(f"W must describe a connected graph, got {parts} separate parts")


def are_connected(*graphs: Topology) -> bool:
    """Returns whether the union of these graphs is strongly connected."""
    return _parts(*graphs) == 1


def _parts(*graphs: Topology) -> int:
    joined = functools.reduce(lambda left, right: left + right, (graph._sparse() for graph in graphs))
    return int(sparse.csgraph.connected_components(joined, directed=True, connection="strong")[0])


def _first(matrix: np.ndarray, where: np.ndarray) -> str:
    row, column = (int(index[0]) for index in np.nonzero(where))
    return f"W[{row}, {column}] = {matrix[row, column]:g}"


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


# ---- time-varying graphs ----


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TimeVarying:
    """A periodic sequence of graphs of the same agents, one per step; made by `sj.alternate`.

    Attributes:
      graphs: the topologies in their order; all have tables [A, K] of one shape.
      given_name: the call that makes them; if None, the name lists the graphs.

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
        """Whether the links are the same in all steps, so that a state per link is possible."""
        first = self.graphs[0]
        return all(np.array_equal(first.neighbours, graph.neighbours) for graph in self.graphs)

    def at(self, t: int) -> Topology:
        """Returns the graph of step t."""
        return self.graphs[t % self.period]

    @property
    def idle(self) -> int:
        """The number of idle agents, which are the last ones, see `Topology.padded`."""
        return self.graphs[0].idle

    @property
    def present(self) -> np.ndarray:
        """Which agents are not idle, bool [A]."""
        return self.graphs[0].present

    def padded(self, size: int) -> "TimeVarying":
        """Returns the same graphs with idle agents appended, `size` in all."""
        graphs = tuple(graph.padded(size) for graph in self.graphs)
        return dataclasses.replace(self, graphs=graphs)

    @property
    def is_directed(self) -> bool:
        """Whether some of the graphs is directed."""
        return any(graph.is_directed for graph in self.graphs)

    @functools.cached_property
    def stochasticity(self) -> Stochasticity:
        """The stochasticity that all graphs have in common, see `Topology.stochasticity`."""
        kinds: set[Stochasticity] = {graph.stochasticity for graph in self.graphs}
        if len(kinds) == 1:
            return kinds.pop()
        kinds.discard("doubly")
        if len(kinds) == 1:
            return kinds.pop()
        raise ArgumentError(f"graphs must be row or column stochastic alike, got both in {self.name}")

    @functools.cached_property
    def spectral_gap(self) -> float:
        """The mean gap per step, 1 - s^(1 / period), s the factor by which a period contracts disagreement.

        s is the second singular value of the product of all W; if they are not doubly stochastic, the
        second largest modulus of its eigenvalues.
        """
        if self.size - self.idle == 1:
            return 1.0
        matrices = [graph._sparse() for graph in self.graphs]
        left = second_of_product(matrices, self.stochasticity == "doubly")
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
    """Makes a time-varying graph that cycles through the given ones, one per step.

    Args:
      graphs: graphs of the same agents; each by itself may be disconnected.
      name: the name of the result; if None, it lists their names.
      connected: whether the union of all graphs must be connected.

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
    _ = joined.stochasticity  # raises an error if the graphs have none in common
    if connected:
        require_connected(*turns)
    return joined


Graphs: TypeAlias = Topology | TimeVarying


def check_topology(topology: Any) -> None:
    """Checks that an argument is a graph."""
    checks.instance("topology", topology, (Topology, TimeVarying), "sj.ring(10)")


# ---- the eigenvalues of W: whether gossip converges, and how fast ----


def second_modulus(matrix: Any, symmetric: bool) -> float:
    """Returns the second largest modulus of the eigenvalues of a stochastic matrix, whose largest is one."""
    if matrix.shape[0] <= _DENSE_EIGENVALUES:
        eigenvalues = (np.linalg.eigvalsh if symmetric else np.linalg.eigvals)(matrix.toarray())
        return float(np.sort(np.abs(eigenvalues))[-2])
    if not symmetric:
        eigenvalues = sparse.linalg.eigs(matrix, k=2, which="LM", return_eigenvectors=False)
        return float(np.sort(np.abs(eigenvalues))[-2])
    second = _second_largest(matrix)
    return second if -_least_possible(matrix) <= second else max(second, -_smallest(matrix))


def smallest_eigenvalue(matrix: Any) -> float:
    """Returns the smallest eigenvalue of a symmetric stochastic matrix, at least -1."""
    if matrix.shape[0] <= _DENSE_EIGENVALUES:
        return float(np.linalg.eigvalsh(matrix.toarray())[0])
    return _smallest(matrix)


def second_of_product(matrices: Sequence[Any], average: bool) -> float:
    """Returns the factor by which gossip with these matrices in turn contracts disagreement.

    If they preserve the average it is the second singular value of their product, and otherwise the
    second largest modulus of its eigenvalues, which is the asymptotic factor.
    """
    count = matrices[0].shape[0]
    if count <= _DENSE_EIGENVALUES:
        product = functools.reduce(lambda before, matrix: matrix @ before, matrices, np.eye(count))
        moduli = np.linalg.svd(product, compute_uv=False) if average else np.abs(np.linalg.eigvals(product))
        second = float(np.sort(moduli)[-2])
        return 0.0 if second < count * np.finfo(float).eps else second  # rounding: an exact average

    def forwards(x: np.ndarray) -> np.ndarray:
        return functools.reduce(lambda x, matrix: matrix @ x, matrices, x)

    def backwards(x: np.ndarray) -> np.ndarray:
        return functools.reduce(lambda x, matrix: matrix.T @ x, reversed(matrices), x)

    if not average:
        operator = sparse.linalg.LinearOperator((count, count), matvec=forwards, dtype=float)
        return float(np.sort(np.abs(sparse.linalg.eigs(operator, k=2, return_eigenvectors=False)))[0])
    start = np.random.RandomState(0).normal(size=count)
    if np.abs(forwards(start - start.mean())).max() < count * np.finfo(float).eps:
        return 0.0
    operator = sparse.linalg.LinearOperator(
        (count, count),
        matvec=lambda x: forwards(x - x.mean()),
        rmatvec=lambda x: backwards(x) - x.mean(),
        dtype=float,
    )
    return float(sparse.linalg.svds(operator, k=1, v0=start, return_singular_vectors=False)[0])


def _second_largest(matrix: Any) -> float:
    return float(np.sort(_at_the_end(matrix, 2, "LA", 1.0 + 1e-6))[0])


def _smallest(matrix: Any) -> float:
    return float(_at_the_end(matrix, 1, "SA", _least_possible(matrix) - 1e-6)[0])


def _least_possible(matrix: Any) -> float:
    """Returns Gershgorin's lower bound on all eigenvalues: 2 w_ii - 1 for the smallest self-weight."""
    return float(2 * matrix.diagonal().min() - 1)


def _at_the_end(matrix: Any, count: int, which: str, beyond: float) -> np.ndarray:
    """Returns some eigenvalues at one end of a symmetric matrix's spectrum; `beyond` lies outside of it."""
    options = {"k": count, "return_eigenvectors": False}
    try:
        values: np.ndarray = sparse.linalg.eigsh(
            matrix, which=which, ncv=40, maxiter=_RESTARTS, tol=1e-9, **options
        )
    except sparse.linalg.ArpackNoConvergence:
        # Eigenvalues of rings and tori cluster at the ends of the spectrum: shift-invert there. Graphs whose
        # factorization would fill the memory, those without small cuts, have well-separated eigenvalues.
        values = sparse.linalg.eigsh(sparse.csc_array(matrix), sigma=beyond, which="LM", **options)
    return values
