"""The only place where agents meet: the graph of one step, what travels over it, and a record of it.

A rule is handed a network and calls

    mix(x)         W x                          [A, ...]    -> [A, ...]
    correction(x)  (W - I) x                    [A, ...]    -> [A, ...]
    gather(x)      x_j of every neighbour j     [A, ...]    -> [A, K, ...]
    send(x)        one message per link         [A, K, ...] -> [A, K, ...]

Each of them is one round: every agent sends one message over each of its links. A round is recorded as what
it is given, unless `sent` says what travels instead (CHOCO: compressed differences). Whoever forgets `sent`
records too much; nothing travels unrecorded.

Sharding, lost messages and the record of rounds live here. Only here is the exchange between devices used.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Key, Tree
from saddle_jax.core import mixing as products
from saddle_jax.core.conditions import Conditions, Table
from saddle_jax.core.faults import Faults
from saddle_jax.core.messages import Message, Round
from saddle_jax.core.mixing import Graphs, Mixing
from saddle_jax.core.topology import Topology
from saddle_jax.core.trees import check_params, check_stacked, consensus
from saddle_jax.devices import exchange, lifting


@dataclasses.dataclass(eq=False)
class Network:
    """A network carries the messages of one step; `Method.step` makes one for each step.

    Attributes:
      topology: who hears whom.
      t: how often agents have talked before, int32 [] or a Python integer; it chooses among graphs that take
        turns.
      random: the key of this step; None if nobody draws random numbers.
      conditions: what is lost or late in this step; None: nothing.
      rounds: one entry per round, written while the step is traced.

    >>> network = sj.Network(sj.complete(2))
    >>> network.mix(jnp.array([0.0, 2.0])), len(network.rounds)
    (Array([1., 1.], dtype=float32), 1)
    """

    topology: Graphs
    t: Any = 0
    random: Key | None = None
    conditions: Conditions | None = None
    rounds: list[Round] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self._level = get_opaque_trace_state(convention="saddle_jax")
        self._keys = 0
        self._returning: int | None = None

    @property
    def faults(self) -> Faults | None:
        """What may go wrong on this network; None: nothing."""
        return None if self.conditions is None else self.conditions.faults

    @property
    def width(self) -> int:
        """The number of slots K: the largest number of neighbours, and the agent itself."""
        return self.topology.slots

    @property
    def weights(self) -> Array:
        """The weight of each agent's k-th neighbour in this step, float [A, K]: with faults, as it came."""
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
        """Which slots hold a neighbour in this step, bool [A, K]; the others are free."""
        return self._turn([graph.occupied for graph in self.topology.graphs])

    def key(self) -> Key | None:
        """Returns a key for each caller of its own: the n-th call of a step gets the n-th key."""
        self._check_level()
        self._keys += 1
        return None if self.random is None else jax.random.fold_in(self.random, self._keys)

    def mix(self, x: Tree, sent: Message | Sequence[Message] | None = None, mixing: Mixing = "auto") -> Tree:
        """Returns W x, every agent's weighted sum over its neighbours, leaves [A, ...]."""
        return self._weigh(x, sent, mixing, products.mixed)

    def correction(
        self, x: Tree, sent: Message | Sequence[Message] | None = None, mixing: Mixing = "auto"
    ) -> Tree:
        """Returns (W - I) x, what a round of gossip adds to each agent, leaves [A, ...].

        Where rows of W sum to one it is a sum of differences between models. Agents that agree get an exact
        zero, and the rounding of W to the models' dtype does not drive their mean.
        """
        return self._weigh(x, sent, mixing, products.correction)

    def gather(self, x: Tree, sent: Message | Sequence[Message] | None = None) -> Tree:
        """Returns every neighbour's row: leaves [A, ...] become [A, K, ...]; zeros where nothing arrived."""
        self._begin(x, sent, axes=1)
        return self._own_first(self._heard(self._as_heard(x)), x)

    def send(self, x: Tree, sent: Message | Sequence[Message] | None = None) -> Tree:
        """Sends one message over each link: x[i, k] goes to agent i's k-th neighbour; leaves [A, K, ...].

        Returns what came in, [A, K, ...]: [i, k] is the message from i's k-th neighbour, zeros where nothing
        arrived and in free slots. Slot 0 stays with the agent itself. The graph must be undirected.
        """
        self._begin(x, sent, axes=2)
        for path, leaf in jax.tree.leaves_with_path(x):
            if leaf.shape[1:2] != (self.width,):
                raise ArgumentError(
                    f"x{jax.tree_util.keystr(path)} must have one message per slot, "
                    f"[A, K, ...] = [{self.topology.size}, {self.width}, ...], got shape {leaf.shape}"
                )

        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self._as_heard(x))
        arrived = self._arrived

        def run(graph: Topology) -> Tree:
            return products.gathered(graph.neighbours * self.width + graph.back, rows, arrived)

        received = self._by_graph(run)
        return self._own_first(received, jax.tree.map(lambda leaf: leaf[:, 0], x))

    def all_reduce(self, x: Tree) -> Tree:
        """Returns the exact mean over all agents, in everybody's row, leaves [A, ...].

        It is recorded as a ring of all agents does it, whatever the graph is: each agent sends
        2 (A - 1) / A times its model. A network with faults refuses it.
        """
        check_params(x, self.topology.size, "x")
        if self.faults is not None:
            raise ArgumentError(f"faults must be None for an average of all agents, got {self.faults!r}")
        self._begin(x, None, axes=1)
        self.rounds.append(self.rounds.pop()._replace(everyone=True))
        present = self.topology.present if self.topology.idle else None
        return jax.tree.map(lambda leaf, mean: jnp.broadcast_to(mean, leaf.shape), x, consensus(x, present))

    def average(self, pairs: Tree) -> Tree:
        """Returns sum_k w_ik p_ik, [A, ...], of leaves [A, K, ...]; nothing travels."""
        self._check_level()
        weights = self.weights

        def mean(p: Array) -> Array:
            column = weights.reshape(weights.shape + (1,) * (p.ndim - 2))
            return jnp.sum(p * column.astype(p.dtype), axis=1)

        return jax.tree.map(mean, pairs)

    def record(self, sent: Message | Sequence[Message], axes: int = 1) -> None:
        """Writes a round in which `sent` travels into `rounds`; its leaves have `axes` leading axes."""
        self._check_level()
        messages = [sent] if isinstance(sent, Message) else list(sent)
        entries = [(leaf, message.packed) for message in messages for leaf in jax.tree.leaves(message.like)]
        tensors = tuple(jax.ShapeDtypeStruct(leaf.shape[axes:], leaf.dtype) for leaf, _ in entries)
        self.rounds.append(Round(tensors, tuple(packed for _, packed in entries)))

    def expect_return(self, gradients: Tree) -> None:
        """Records gradients [A, K, ...] that return, uncompressed, to the owners of the models."""
        self._returning = len(self.rounds)
        self.record(Message(gradients), axes=2)

    def returned(self, sent: Message | Sequence[Message]) -> None:
        """Replaces what `expect_return` recorded by how the gradients [A, K, ...] really came back."""
        if self._returning is None:
            raise ArgumentError("gradients of pairs must be asked for before they can be returned, got none")
        self.record(sent, axes=2)
        self.rounds[self._returning] = self.rounds.pop()
        self._returning = None  # the next gradients are recorded anew

    def gather_batches(self, x: Tree) -> tuple[Tree, Array]:
        """Returns others' rows and where to find each, [A, K], for `lifting.on_shards`; see `halo_exchange`.

        Nothing is recorded. A simulation may bring a neighbour's batch to a model where a network brings the
        model to the batch: the same numbers, and no model is copied. Whoever does so records the models.
        """
        self._check_level()
        if self.topology.period == 1:
            return exchange.halo_exchange(self.topology.graphs[0].neighbours, x)
        # Graphs that take turns bring rows of other places: one shape for all of them is [A, K, ...].
        heard = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self._heard(x, faults=False))
        own = np.arange(self.topology.size)[:, None] % (self.topology.size // lifting.shards())
        return heard, jnp.asarray(own * self.width + np.arange(self.width))

    def clocks(self, times: Array) -> Array:
        """Returns the times [A] of each agent's neighbours, [A, K]; nothing travels, nothing is recorded."""
        heard: Array = self._heard(times, faults=False)
        return heard

    @property
    def _arrived(self) -> Array:
        return self.occupied if self.conditions is None else self.conditions.arrived

    def _as_heard(self, x: Tree) -> Tree:
        return x if self.conditions is None else self.conditions.as_heard(x)

    def _own_first(self, received: Tree, own: Tree) -> Tree:
        """Returns pairs [A, K, ...] whose first slot, the agent itself, is never late."""
        if self.faults is None or not self.faults.delay:
            return received
        return jax.tree.map(lambda pairs, own: pairs.at[:, 0].set(own), received, own)

    def _heard(self, x: Tree, faults: bool = True) -> Tree:
        arrived = self._arrived if faults else self.occupied
        return self._by_graph(lambda graph: products.gathered(graph.neighbours, x, arrived))

    def _weigh(self, x: Tree, sent: Any, mixing: Mixing, apply: Callable[..., Array]) -> Tree:
        check_params(x, self.topology.size, "x")
        self._begin(x, sent, axes=1)
        # The rounding of bfloat16 would drown what W tells apart.
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), x)

        heard = self._as_heard(wide)
        weights = None if self.conditions is None else self.weights

        def run(graph: Topology) -> Tree:
            if weights is None and products.mixing_form(graph, mixing) == "dense":
                return products.dense(graph, wide, apply)
            return products.table(graph, wide, heard, graph.weights if weights is None else weights, apply)

        return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), self._by_graph(run), x)

    def _begin(self, x: Tree, sent: Any, axes: int) -> None:
        check_stacked("x", x, self.topology.size)
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

    On graphs that take turns, t is the step.

    >>> sj.mix(sj.ring(4), jnp.array([0.0, 3.0, 6.0, 3.0]))
    Array([2., 3., 4., 3.], dtype=float32)
    """
    return Network(topology, t).mix(tree, mixing=mixing)
