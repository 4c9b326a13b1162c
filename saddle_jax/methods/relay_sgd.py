"""RelaySGD (Vogels et al., "RelaySum for Decentralized Deep Learning on Heterogeneous Data", NeurIPS 2021).

On a tree, every agent relays what it receives from one neighbour to all its other neighbours:

    h_i       = x_i - eta d(g_i)                                   d(g): the gradient, or its local momentum
    m_{i->j}  = h_i + sum of m'_{k->i} over neighbours k != j      m': of the step before
    count_{i->j} = 1 + sum of count'_{k->i} over neighbours k != j
    x_i       = ((n - c_i) h_i + sum_j m_{j->i}) / n               c_i = sum_j count_{j->i}

After the first steps, x_i is the exact average of all agents' models, 1/n sum_j h_j, where h_j is from
max(dist(i, j) - 1, 0) steps ago. Until the models arrive, and if messages are lost, another model takes the
place of those that are missing, see `relay_sgd`.

It sends one model and one count per link and step. The graph is a tree; its weights are not used. It is exact
on heterogeneous data.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import About, Array, Params, ScalarOrSchedule
from saddle_jax.core import trees
from saddle_jax.core.method import Method, printed
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs, check_topology
from saddle_jax.core.trees import tree_map
from saddle_jax.methods.momentum import check_decay, decayed, local_momentum

ABOUT = About("Vogels et al., NeurIPS 2021", exact=True, requires="a tree, whatever its weights")

Missing = Literal["own", "last", "counts", "first"]
MISSING = ("own", "last", "counts", "first")


class RelayState(NamedTuple):
    """State of RelaySGD: the momentum and the messages of the step before."""

    buffer: Any  # of the momentum [A, ...]; None without momentum
    m: Params  # m_{k->i}, a sum of models [A, K, ...]; zeros where nothing arrived
    counts: Array  # how many models each sum holds, float32 [A, K]
    first: Any  # the initial models [A, ...]; None unless missing="first"


@printed
def relay_sgd(
    topology: Graphs, learning_rate: ScalarOrSchedule, *,
    missing: Missing = "own", beta: Any = 0.9, nesterov: bool = True, weight_decay: Any = 1e-4,
) -> Method:  # fmt: skip
    """Makes RelaySGD on a tree, such as `sj.path(n)`. Other options are those of `sj.dpsgd`.

    Args:
      topology: a tree; its weights are not used.
      missing: what an agent uses in place of a model that has not arrived: "own", its new h_i (the paper),
        "last", its x_i before the step, or "first", its x_i before the first step (not with lost messages,
        which would pull models back to their start); "counts" averages only what arrived.

    >>> method, x = sj.relay_sgd(sj.path(3), 0.1, weight_decay=0.0), jnp.array([0.0, 3.0, 6.0])
    >>> x, state, _ = method.step(lambda x, d: 0.0 * x, x, method.init(x), jnp.zeros(3))
    >>> x, state.rule.counts.sum(axis=1)  # the models of the outer two have not reached each other yet
    (Array([1., 3., 5.], dtype=float32), Array([1., 2., 1.], dtype=float32))
    """
    check_topology(topology)
    _check_tree(topology)
    checks.choice("missing", missing, MISSING)
    rate, weight_decay = checks.schedule(learning_rate), check_decay(weight_decay)
    momentum, n = local_momentum(beta, nesterov), topology.size - topology.idle

    def init(x: Params) -> RelayState:
        m, counts = trees.zeros_of_pairs((x, _zero_of_each(x)), topology.slots)
        first = jax.tree.map(jnp.copy, x) if missing == "first" else None
        return RelayState(momentum.init(x), m, counts, first)

    def step(s: Step, x: Params, state: RelayState) -> tuple[Params, RelayState]:
        eta, one = rate(s.t), _zero_of_each(x) + 1
        direction, buffer = momentum.direction(decayed(s.gradient(x), x, weight_decay), state.buffer)
        h = tree_map(lambda x, d: x - eta * d, x, direction)
        # A model and its count are one message: they are lost together.
        m, counts = s.network.send(jax.tree.map(_relayed, (h, one), (state.m, state.counts)))
        c = counts.sum(axis=1)

        def average(h: Array, m: Array, stand_in: Array) -> Any:
            received, absent = m.sum(axis=1), (n - 1 - c).reshape(-1, *(1,) * (h.ndim - 1))
            if missing == "counts":
                return (h + received) / (n - absent)
            return (h + absent * stand_in + received) / n

        stand_in = {"last": x, "first": state.first}.get(missing, h)
        return tree_map(average, h, m, stand_in), RelayState(buffer, m, counts, state.first)

    return Method("relay_sgd", topology, Rule(init, step))


def _relayed(own: Array, received: Array) -> Array:
    """Returns the message for each neighbour, own [A, ...] and what all others sent [A, K, ...]."""
    messages = own[:, None] + received.sum(axis=1, keepdims=True) - received
    return messages.at[:, 0].set(0)  # an agent sends no message to itself


def _zero_of_each(x: Params) -> Array:
    """Returns zeros float32 [A], sharded over the devices as the models are."""
    leaf = jax.tree.leaves(x)[0]
    return jnp.zeros_like(leaf.sum(axis=tuple(range(1, leaf.ndim))), dtype=jnp.float32)


def _check_tree(topology: Graphs) -> None:
    if not topology.has_fixed_links:
        raise ArgumentError(
            "topology must have the same links in every step for relay_sgd, which keeps sums per link, "
            f"got {topology.name}"
        )
    if not topology.graphs[0].is_tree:
        raise ArgumentError(
            f"topology must be a tree for relay_sgd, such as sj.spanning_tree(topology), got {topology.name}"
        )
