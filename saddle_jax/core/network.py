"""The network of one step: the only place where agents exchange values, and a record of what they send.

A rule is given a network and calls

    mix(x)         W x                          [A, ...]    -> [A, ...]
    correction(x)  (W - I) x                    [A, ...]    -> [A, ...]
    gather(x)      x_j of every neighbour j     [A, ...]    -> [A, K, ...]
    send(x)        one message per link         [A, K, ...] -> [A, K, ...]

Each of them is one round: every agent sends one message over each of its links. A round is recorded as its
argument x, unless `sent` says what is sent instead (CHOCO: compressed differences). So a rule that forgets
`sent` counts too many bytes, never too few.

Lost messages and the record of rounds live here, and only this module exchanges rows between devices.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Key, Operator, Tree
from saddle_jax.core.topology import Graphs, Topology
from saddle_jax.core.trees import check_params, check_stacked, consensus
from saddle_jax.devices import exchange, lifting

if TYPE_CHECKING:
    from saddle_jax.core.faults import Conditions, Faults


Mixing = Literal["auto", "dense", "table"]
MIXINGS = ("auto", "dense", "table")

# The table's gathers are unrolled: beyond this many slots, compiling them costs more than they save.
_MAX_TABLE_WIDTH = 16


class Message(NamedTuple):
    """What is sent over one link in one round.

    >>> network, x = sj.Network(sj.ring(4)), jnp.ones((4, 1000))
    >>> _ = network.correction(x, sent=sj.Message(x, sj.sign()))  # signs are sent in place of x
    >>> network.rounds[0].wire_bytes
    129
    """

    like: Tree  # with the shapes of the round's argument, axes of agents and slots included
    packed: Operator | None = None  # the operator whose encoding is sent; None: the numbers as they are


class Round(NamedTuple):
    """The record of one round: the tensors [...] sent over each link, and the operator that encodes each."""

    tensors: tuple[jax.ShapeDtypeStruct, ...]
    packings: tuple[Operator | None, ...]
    everyone: bool = False  # whether it is an all-reduce; then the tensors are those of one model

    @property
    def wire_bytes(self) -> int:
        """The bytes over one link as really encoded, with norms, scales, signs and indices."""
        return sum(
            x.size * x.dtype.itemsize if packed is None else packed.bits(x.shape, x.dtype) // 8
            for x, packed in zip(self.tensors, self.packings, strict=True)
        )

    @property
    def paper_bits(self) -> int:
        """The bits over one link as the paper's tables count them: 32 per uncompressed number."""
        return sum(
            32 * x.size if packed is None else packed.paper_bits(x.shape)
            for x, packed in zip(self.tensors, self.packings, strict=True)
        )


class Table(NamedTuple):
    """The graph of one step as a table of neighbours, see `Topology`."""

    neighbours: Array  # int [A, K]
    weights: Array  # float [A, K]
    occupied: Array  # bool [A, K]


@dataclasses.dataclass(eq=False)
class Network:
    """The network of one step, made by `Method.step`.

    Attributes:
      topology: the communication graph.
      t: the number of earlier steps that communicated, int32 [] or a Python integer; on time-varying graphs
        it chooses the graph.
      random: the key of this step; None without random numbers.
      conditions: what is lost or late in this step; None: nothing.
      rounds: one entry per round, recorded while the step is traced.

    >>> network = sj.Network(sj.complete(2))
    >>> network.mix(jnp.array([0.0, 2.0])), len(network.rounds)
    (Array([1., 1.], dtype=float32), 1)
    """

    topology: Graphs
    t: Any = 0
    random: Key | None = None
    conditions: "Conditions | None" = None
    rounds: list[Round] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self._level = get_opaque_trace_state(convention="saddle_jax")
        self._keys = 0
        self._returning: int | None = None

    @property
    def faults(self) -> "Faults | None":
        """What may go wrong on this network; None: nothing."""
        return None if self.conditions is None else self.conditions.faults

    @property
    def width(self) -> int:
        """The number of slots K: the largest degree plus one, for the agent itself."""
        return self.topology.slots

    @property
    def weights(self) -> Array:
        """The weight of each agent's k-th neighbour in this step, float [A, K], after faults."""
        if self.conditions is None:
            return self.table.weights
        return self.conditions.weights(self.table, self.topology.stochasticity)

    @property
    def table(self) -> Table:
        """The graph of this step, as it would be without faults."""
        graphs = self.topology.graphs
        return Table(
            self._turn([graph.neighbours for graph in graphs]),
            self._turn([graph.weights for graph in graphs]),
            self.occupied,
        )

    @property
    def occupied(self) -> Array:
        """Which slots hold a neighbour in this step, bool [A, K]; the others are padding."""
        return self._turn([graph.occupied for graph in self.topology.graphs])

    def key(self) -> Key | None:
        """Returns a new key at each call: the n-th call in a step gets the n-th key; None without keys."""
        self._check_level()
        self._keys += 1
        return None if self.random is None else jax.random.fold_in(self.random, self._keys)

    def mix(self, x: Tree, sent: Message | Sequence[Message] | None = None, mixing: Mixing = "auto") -> Tree:
        """Returns W x, every agent's weighted sum over its neighbours, leaves [A, ...]."""
        return self._weigh(x, sent, mixing, _mixed)

    def correction(
        self, x: Tree, sent: Message | Sequence[Message] | None = None, mixing: Mixing = "auto"
    ) -> Tree:
        """Returns (W - I) x, what a round of gossip adds to each agent, leaves [A, ...].

        If rows of W sum to one it is computed as a sum of differences between models. So it is exactly zero
        at consensus, and the rounding of W to the models' dtype does not make the mean drift.
        """
        return self._weigh(x, sent, mixing, _correction)

    def gather(self, x: Tree, sent: Message | Sequence[Message] | None = None) -> Tree:
        """Returns every neighbour's row: leaves [A, ...] become [A, K, ...]; zeros where nothing arrived."""
        self._begin(x, sent, axes=1)
        return self._own_first(self._received(self._as_received(x)), x)

    def send(self, x: Tree, sent: Message | Sequence[Message] | None = None) -> Tree:
        """Sends one message over each link: x[i, k] goes to agent i's k-th neighbour; leaves [A, K, ...].

        Returns what arrived, [A, K, ...]: [i, k] is the message from i's k-th neighbour, zeros where nothing
        arrived and in free slots. Slot 0 is the agent's own. The graph must be undirected.
        """
        self._begin(x, sent, axes=2)
        for path, leaf in jax.tree.leaves_with_path(x):
            if leaf.shape[1:2] != (self.width,):
                raise ArgumentError(
                    f"x{jax.tree_util.keystr(path)} must have one message per slot, "
                    f"[A, K, ...] = [{self.topology.size}, {self.width}, ...], got shape {leaf.shape}"
                )

        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self._as_received(x))
        arrived = self._arrived

        def run(graph: Topology) -> Tree:
            return _gathered(graph.neighbours * self.width + graph.back, rows, arrived)

        received = self._by_graph(run)
        return self._own_first(received, jax.tree.map(lambda leaf: leaf[:, 0], x))

    def all_reduce(self, x: Tree) -> Tree:
        """Returns the exact mean over all agents, broadcast to every row, leaves [A, ...].

        It is recorded as a ring all-reduce, whatever the graph is: each agent sends 2 (A - 1) / A times its
        model. With faults it is an error.
        """
        if self.faults is not None:
            raise ArgumentError(f"faults must be None for an average of all agents, got {self.faults!r}")
        self._begin(x, None, axes=1, check=check_params)
        self.rounds.append(self.rounds.pop()._replace(everyone=True))
        present = self.topology.present if self.topology.idle else None
        return jax.tree.map(lambda leaf, mean: jnp.broadcast_to(mean, leaf.shape), x, consensus(x, present))

    def average(self, pairs: Tree) -> Tree:
        """Returns sum_k w_ik p_ik, [A, ...], for leaves [A, K, ...]; nothing is sent."""
        self._check_level()
        weights = self.weights

        def mean(p: Array) -> Array:
            column = weights.reshape(weights.shape + (1,) * (p.ndim - 2))
            return jnp.sum(p * column.astype(p.dtype), axis=1)

        return jax.tree.map(mean, pairs)

    def record(self, sent: Message | Sequence[Message], axes: int = 1) -> None:
        """Records a round in which `sent` is sent; its leaves have `axes` leading axes."""
        self._check_level()
        messages = [sent] if isinstance(sent, Message) else list(sent)
        entries = [(leaf, message.packed) for message in messages for leaf in jax.tree.leaves(message.like)]
        tensors = tuple(jax.ShapeDtypeStruct(leaf.shape[axes:], leaf.dtype) for leaf, _ in entries)
        self.rounds.append(Round(tensors, tuple(packed for _, packed in entries)))

    def expect_return(self, gradients: Tree) -> None:
        """Records a round in which gradients [A, K, ...] return, uncompressed, to the models' agents."""
        self._returning = len(self.rounds)
        self.record(Message(gradients), axes=2)

    def returned(self, sent: Message | Sequence[Message]) -> None:
        """Replaces the round recorded by `expect_return` by how the gradients [A, K, ...] really returned."""
        if self._returning is None:
            raise ArgumentError("gradients of pairs must be asked for before they can be returned, got none")
        self.record(sent, axes=2)
        self.rounds[self._returning] = self.rounds.pop()
        self._returning = None  # the next gradients are recorded anew

    def gather_batches(self, x: Tree) -> tuple[Tree, Array]:
        """Returns neighbours' rows and their indices [A, K], for `lifting.on_shards`, see `halo_exchange`.

        Nothing is recorded. The simulation moves a neighbour's batch to a model, where a real network sends
        the model to the batch: the numbers are the same, and no model is copied. The caller records the
        models.
        """
        self._check_level()
        if self.topology.period == 1:
            return exchange.halo_exchange(self.topology.graphs[0].neighbours, x)
        # Graphs of different steps gather different rows: the shape they have in common is [A, K, ...].
        received = jax.tree.map(
            lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self._received(x, faults=False)
        )
        own = np.arange(self.topology.size)[:, None] % (self.topology.size // lifting.shards())
        return received, jnp.asarray(own * self.width + np.arange(self.width))

    def clocks(self, times: Array) -> Array:
        """Returns the times [A] of each agent's neighbours, [A, K]; nothing is recorded."""
        received: Array = self._received(times, faults=False)
        return received

    @property
    def _arrived(self) -> Array:
        return self.occupied if self.conditions is None else self.conditions.arrived

    def _as_received(self, x: Tree) -> Tree:
        return x if self.conditions is None else self.conditions.as_received(x)

    def _own_first(self, received: Tree, own: Tree) -> Tree:
        """Returns `received` [A, K, ...] with the agent's own value, which is never late, in slot 0."""
        if self.faults is None or not self.faults.delay:
            return received
        return jax.tree.map(lambda pairs, own: pairs.at[:, 0].set(own), received, own)

    def _received(self, x: Tree, faults: bool = True) -> Tree:
        arrived = self._arrived if faults else self.occupied
        return self._by_graph(lambda graph: _gathered(graph.neighbours, x, arrived))

    def _weigh(self, x: Tree, sent: Any, mixing: Mixing, apply: Callable[..., Array]) -> Tree:
        self._begin(x, sent, axes=1, check=check_params)
        # In bfloat16, rounding would exceed the differences between models.
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), x)

        received = self._as_received(wide)
        weights = None if self.conditions is None else self.weights

        def run(graph: Topology) -> Tree:
            if weights is None and mixing_form(graph, mixing) == "dense":
                return _dense(graph, wide, apply)
            return _by_table(graph, wide, received, graph.weights if weights is None else weights, apply)

        return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), self._by_graph(run), x)

    def _begin(self, x: Tree, sent: Any, axes: int, check: Callable[..., None] = check_stacked) -> None:
        """Begins a round: checks its argument and records what is sent."""
        check("x", x, self.topology.size)
        self.record(Message(x) if sent is None else sent, axes)

    def _by_graph(self, run: Callable[[Topology], Tree]) -> Tree:
        """Calls run(graph) with the graph of this step."""
        branches = [functools.partial(run, graph) for graph in self.topology.graphs]
        return branches[0]() if len(branches) == 1 else jax.lax.switch(self.t % len(branches), branches)

    def _turn(self, tables: list[np.ndarray]) -> Array:
        return jnp.asarray(
            tables[0] if len(tables) == 1 else jnp.asarray(np.stack(tables))[self.t % len(tables)]
        )

    def _check_level(self) -> None:
        if get_opaque_trace_state(convention="saddle_jax") != self._level:
            raise ArgumentError(
                "the network must be used where the step is, not inside a scan, cond, vmap, grad or jit "
                "that a rule opens: its rounds could not be counted there"
            )


def mix(topology: Graphs, tree: Tree, mixing: Mixing = "auto", t: Any = 0) -> Tree:
    """Returns W x over the agent axis: every leaf [A, ...] becomes sum_j w_ij leaf[j], [A, ...].

    On time-varying graphs, t is the step.

    >>> sj.mix(sj.ring(4), jnp.array([0.0, 3.0, 6.0, 3.0]))
    Array([2., 3., 4., 3.], dtype=float32)
    """
    return Network(topology, t).mix(tree, mixing=mixing)


# ---- how W x is computed over the agent axis ----


def mixing_form(topology: Graphs, mixing: Mixing = "auto") -> Mixing:
    """Returns how W x is computed on a graph: as given, or for "auto" a choice by degree.

    Both give the same numbers, up to rounding. "table" sums K gathered rows: it reads each neighbour's
    model once and writes one. "dense" is one einsum with W: A multiplications per number, and on several
    devices an all-gather of the models.

    >>> sj.mixing_form(sj.ring(100)), sj.mixing_form(sj.complete(100))
    ('table', 'dense')
    """
    checks.choice("mixing", mixing, MIXINGS)
    if mixing != "auto":
        return mixing
    return "table" if topology.slots <= _MAX_TABLE_WIDTH else "dense"


def _mixed(rows_sum_to_one: bool, x: Array, differences: Array) -> Array:
    """Returns W x, given x and the sum over the neighbours, see `_by_table`."""
    return x + differences if rows_sum_to_one else differences


def _correction(rows_sum_to_one: bool, x: Array, differences: Array) -> Array:
    """Returns (W - I) x, given x and the sum over the neighbours, see `_by_table`."""
    return differences if rows_sum_to_one else differences - x


def _dense(graph: Topology, tree: Tree, apply: Callable[..., Array]) -> Tree:
    """Multiplies by W as a matrix, leaves [A, ...]; `apply` is `_mixed` or `_correction`."""
    stochastic = graph.stochasticity != "column"

    def shard_fn(own: Tree, received: Tree, rows: Array) -> Tree:
        def leaf(x: Array, received: Array) -> Array:
            # Rows of W - I sum to zero: a common shift cancels, and agents that agree get an exact zero.
            others = received - received[:1] if stochastic else received
            # HIGHEST: an accelerator's default would round the models to about ten bits.
            summed = jnp.einsum(
                "ij,j...->i...", rows.astype(x.dtype), others, precision=jax.lax.Precision.HIGHEST
            )
            return apply(stochastic, x, summed)

        return jax.tree.map(leaf, own, received)

    rows = jnp.asarray(graph.mixing - np.eye(graph.size) if stochastic else graph.mixing)
    return lifting.on_shards(shard_fn)(tree, exchange.everything(tree), rows)


def _by_table(graph: Topology, tree: Tree, received: Tree, weights: Any, apply: Callable[..., Array]) -> Tree:
    """Sums the neighbours' rows, slot by slot, leaves [A, ...]; `apply` is `_mixed` or `_correction`.

    `received` is the tree as neighbours receive it, `weights` [A, K] are those of what arrived. If rows of W
    sum to one, differences to the own row are summed: the first slot's weight follows from the others.
    """
    stochastic = graph.stochasticity != "column"

    def shard_fn(own: Tree, received: Tree, senders: Array, weights: Array) -> Tree:
        def leaf(x: Array, received: Array) -> Array:
            column = (slice(None),) + (None,) * (x.ndim - 1)
            total = jnp.zeros_like(x) if stochastic else weights[:, 0].astype(x.dtype)[column] * x
            for k in range(1, senders.shape[1]):
                other = received[senders[:, k]]
                total += weights[:, k].astype(x.dtype)[column] * (other - x if stochastic else other)
            return apply(stochastic, x, total)

        return jax.tree.map(leaf, own, received)

    rows, places = exchange.halo_exchange(graph.neighbours, received)
    return lifting.on_shards(shard_fn)(tree, rows, places, jnp.asarray(weights))


def _gathered(table: np.ndarray, rows: Tree, arrived: Array) -> Tree:
    """Returns the rows that a table [A, K] indexes, leaves [A, K, ...]; zeros where nothing arrived."""

    def shard_fn(rows: Tree, places: Array, arrived: Array) -> Tree:
        def leaf(x: Array) -> Array:
            mask = arrived.reshape(arrived.shape + (1,) * (x.ndim - 1))
            return jnp.where(mask, x[places], jnp.zeros_like(x, shape=()))

        return jax.tree.map(leaf, rows)

    rows, places = exchange.halo_exchange(table, rows)
    return lifting.on_shards(shard_fn)(rows, places, arrived)
