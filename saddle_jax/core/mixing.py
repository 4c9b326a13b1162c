"""How W x is computed over the agent axis: as sums over the table of neighbours, or as one product with W."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.types import Array, Tree
from saddle_jax.core.graphs import TimeVarying
from saddle_jax.core.topology import Topology
from saddle_jax.devices import exchange, lifting

Mixing = Literal["auto", "dense", "table"]
MIXINGS = ("auto", "dense", "table")
Graphs: TypeAlias = Topology | TimeVarying

# The table's gathers are unrolled: beyond this many, compiling them costs more than they save.
_MAX_TABLE_WIDTH = 16


def mixing_form(topology: Graphs, mixing: Mixing = "auto") -> Mixing:
    """Returns how W x is computed on a graph: as given, or for "auto" a choice by degree.

    Both give the same numbers, up to rounding. "table" adds up K gathered rows: it reads each neighbour's
    model once and writes one. "dense" is one einsum with W: it multiplies A times per number, and on several
    devices needs everybody's models on each of them.

    >>> sj.mixing_form(sj.ring(100)), sj.mixing_form(sj.complete(100))
    ('table', 'dense')
    """
    checks.choice("mixing", mixing, MIXINGS)
    if mixing != "auto":
        return mixing
    return "table" if topology.slots <= _MAX_TABLE_WIDTH else "dense"


def mixed(rows_sum_to_one: bool, x: Array, differences: Array) -> Array:
    """Returns W x, given x and what the neighbours add up to, see `table`."""
    return x + differences if rows_sum_to_one else differences


def correction(rows_sum_to_one: bool, x: Array, differences: Array) -> Array:
    """Returns (W - I) x, given x and what the neighbours add up to, see `table`."""
    return differences if rows_sum_to_one else differences - x


def dense(graph: Topology, tree: Tree, apply: Callable[..., Array]) -> Tree:
    """Multiplies by W as a matrix, leaves [A, ...]; `apply` is `mixed` or `correction`."""
    stochastic = graph.stochasticity != "column"

    def shard_fn(own: Tree, heard: Tree, rows: Array) -> Tree:
        def leaf(x: Array, heard: Array) -> Array:
            others = heard - heard[:1] if stochastic else heard
            # HIGHEST: an accelerator's default would round the models themselves to ten bits or so.
            summed = jnp.einsum(
                "ij,j...->i...", rows.astype(x.dtype), others, precision=jax.lax.Precision.HIGHEST
            )
            return apply(stochastic, x, summed)

        return jax.tree.map(leaf, own, heard)

    rows = jnp.asarray(graph.mixing - np.eye(graph.size) if stochastic else graph.mixing)
    return lifting.on_shards(shard_fn)(tree, exchange.everything(tree), rows)


def table(graph: Topology, tree: Tree, heard: Tree, weights: Any, apply: Callable[..., Array]) -> Tree:
    """Adds up the neighbours' rows, slot by slot, leaves [A, ...]; `apply` is `mixed` or `correction`.

    `heard` is the tree as the others hear it, and `weights` [A, K] are those of what arrived. Where rows of W
    sum to one, differences to the own row are added up: the first slot's weight follows from the others.
    """
    stochastic = graph.stochasticity != "column"

    def shard_fn(own: Tree, heard: Tree, senders: Array, weights: Array) -> Tree:
        def leaf(x: Array, heard: Array) -> Array:
            column = (slice(None),) + (None,) * (x.ndim - 1)
            total = jnp.zeros_like(x) if stochastic else weights[:, 0].astype(x.dtype)[column] * x
            for k in range(1, senders.shape[1]):
                other = heard[senders[:, k]]
                total += weights[:, k].astype(x.dtype)[column] * (other - x if stochastic else other)
            return apply(stochastic, x, total)

        return jax.tree.map(leaf, own, heard)

    rows, places = exchange.halo_exchange(graph.neighbours, heard)
    return lifting.on_shards(shard_fn)(tree, rows, places, jnp.asarray(weights))


def gathered(table: np.ndarray, rows: Tree, arrived: Array) -> Tree:
    """Returns the rows that a table [A, K] names, as leaves [A, K, ...]; zeros where nothing arrived."""

    def shard_fn(rows: Tree, places: Array, arrived: Array) -> Tree:
        def leaf(x: Array) -> Array:
            mask = arrived.reshape(arrived.shape + (1,) * (x.ndim - 1))
            return jnp.where(mask, x[places], jnp.zeros_like(x, shape=()))

        return jax.tree.map(leaf, rows)

    rows, places = exchange.halo_exchange(table, rows)
    return lifting.on_shards(shard_fn)(rows, places, arrived)
