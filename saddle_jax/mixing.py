"""Exact gossip: every agent takes a weighted average of its neighbours' models.

    x_i  <-  x_i + gamma sum_j (w_ij - I_ij) x_j          gamma = 1:  x_i <- sum_j w_ij x_j

Two forms give the same numbers, up to rounding. "dense" is one einsum with W and costs A multiplications per
number; "table" adds up K gathered rows and costs little more than a copy on sparse graphs.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from saddle_jax import agents, checks, exchange
from saddle_jax.topology import Topology
from saddle_jax.trees import check_params
from saddle_jax.types import Array, Metrics, Params

Form = Literal["auto", "dense", "table"]
FORMS = ("auto", "dense", "table")

# The table's gathers are unrolled: beyond this many, compiling them costs more than they save.
_MAX_TABLE_WIDTH = 16


def mixing_form(topology: Topology, form: Form = "auto") -> Form:
    """The form that `mix` uses on this graph: the given one, or for "auto" a choice by degree.

    The table reads each neighbour's model once and writes one; the einsum multiplies A times per number,
    and on several devices needs everybody's models on each of them.
    """
    checks.choice("form", form, FORMS)
    if form != "auto":
        return form
    return "table" if topology.neighbours.shape[1] <= _MAX_TABLE_WIDTH else "dense"


def mix(topology: Topology, tree: Any, form: Form = "auto") -> Any:
    """W x over the agent axis: leaf [A, ...] -> sum_j w_ij leaf[j], [A, ...]."""
    return jax.tree.map(jnp.add, tree, disagreement(topology, tree, form))


def disagreement(topology: Topology, tree: Any, form: Form = "auto") -> Any:
    """(W - I) x over the agent axis: what a full round of gossip adds to each agent.

    It is a sum of differences between models. Agents that agree therefore get an exact zero, and the
    rounding of W to the models' dtype, whose rows no longer sum to one, does not drive their mean.
    """
    check_params(tree, topology.size)
    run = _dense if mixing_form(topology, form) == "dense" else _table
    wide = jax.tree.map(lambda x: x.astype(jnp.promote_types(x.dtype, jnp.float32)), tree)
    return jax.tree.map(lambda d, x: d.astype(x.dtype), run(topology, wide), tree)


def _dense(topology: Topology, tree: Any) -> Any:
    def of_a_shard(heard: Any, rows: Array) -> Any:
        def leaf(x: Array) -> Array:
            # HIGHEST: an accelerator's default would round the models themselves to ten bits or so.
            return jnp.einsum(
                "ij,j...->i...", rows.astype(x.dtype), x - x[:1], precision=jax.lax.Precision.HIGHEST
            )

        return jax.tree.map(leaf, heard)

    rows = jnp.asarray(topology.mixing - np.eye(topology.size))
    return agents.on_shards(of_a_shard)(exchange.everything(tree), rows)


def _table(topology: Topology, tree: Any) -> Any:
    def of_a_shard(own: Any, heard: Any, senders: Array, weights: Array) -> Any:
        def leaf(x: Array, heard: Array) -> Array:
            column = (slice(None),) + (None,) * (x.ndim - 1)
            total = jnp.zeros_like(x)
            for k in range(1, senders.shape[1]):
                total += weights[:, k].astype(x.dtype)[column] * (heard[senders[:, k]] - x)
            return total

        return jax.tree.map(leaf, own, heard)

    return agents.on_shards(of_a_shard)(tree, *exchange.bring(topology, tree), jnp.asarray(topology.weights))


def gossip(
    topology: Topology,
    gamma: Any = 1.0,
    *,
    of: Literal["updated", "current"] = "updated",
    form: Form = "auto",
) -> optax.GradientTransformationExtraArgs:
    """Adds one round of exact gossip to the updates; it comes after the learning rate in a chain.

    Args:
      topology: who hears whom.
      gamma: averaging rate in (0, 1].
      of: which models are averaged: "updated" ones, x_{t+1/2} = x_t + updates (D-PSGD line 8, QGM
        line 8), or the "current" ones, x_t (NGM line 16).
      form: "auto", "dense" or "table", see `mixing_form`.

    Returns:
      A transform of stacked updates [A, ...]; `optax.apply_updates` then gives x_{t+1}.
    """
    gamma = check_gossip(topology, gamma)
    checks.choice("of", of, ("updated", "current"))
    mixing_form(topology, form)

    def init_fn(params: Params) -> optax.EmptyState:
        check_params(params, topology.size)
        return optax.EmptyState()

    def update_fn(updates, state, params=None, *, metrics: Metrics | None = None, **extra_args):
        del metrics, extra_args
        params = require_params(params)
        models = optax.apply_updates(params, updates) if of == "updated" else params
        return add_gossip(updates, disagreement(topology, models, form), gamma), state

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def add_gossip(updates: Any, difference: Any, gamma: Any) -> Any:
    """updates + gamma (W - I) x, where `difference` is (W - I) x."""
    return jax.tree.map(lambda u, d: (u + gamma * d).astype(u.dtype), updates, difference)


def check_gossip(topology: Any, gamma: Any) -> Any:
    """Checks the two arguments that every kind of gossip takes; returns gamma."""
    checks.instance("topology", topology, Topology, "sj.ring(10)")
    return checks.real("gamma", gamma, above=0.0, at_most=1.0)


def require_params(params: Params | None) -> Params:
    """The current models, without which there is nothing to average."""
    if params is None:
        raise ValueError("params must be given to update(updates, state, params), got None")
    return params
