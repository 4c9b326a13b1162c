"""Compressed gossip: agents exchange compressed differences to public copies of their models.

Koloskova et al., "Decentralized deep learning with arbitrary communication compression", 2020;
lines 7 and 10 to 12 of the paper's Algorithm 2 (Comp QGM, Comp Q-SADDLe).
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from saddle_jax import checks, trees
from saddle_jax.compression import Compressor, compress_stacked
from saddle_jax.mixing import (
    Form,
    add_gossip,
    check_gossip,
    disagreement,
    gossip,
    mixing_form,
    require_params,
)
from saddle_jax.topology import Topology
from saddle_jax.types import Key, Metrics, Params

Order = Literal["choco", "paper"]
ORDERS = ("choco", "paper")
_STREAM = 1  # of random numbers, see `stream`


class ChocoState(NamedTuple):
    """State of `choco_gossip`."""

    public: Params  # x-hat: the copy of each agent's model that its neighbours hold too [A, ...]


def choco_gossip(
    topology: Topology,
    compressor: Compressor,
    gamma: Any = 1.0,
    order: Order = "choco",
    *,
    form: Form = "auto",
) -> optax.GradientTransformationExtraArgs:
    """Adds one round of compressed gossip to the updates; it comes after the learning rate.

    With x_{t+1/2} = x_t + updates and x-hat starting at zero:

        order "choco"                                  order "paper" (as Algorithm 2 is printed)
        q     = Q(x_{t+1/2} - x-hat)                   x_{t+1} = x_{t+1/2} + gamma (W - I) x-hat
        x-hat = x-hat + q                              q       = Q(x_{t+1} - x-hat)
        x_{t+1} = x_{t+1/2} + gamma (W - I) x-hat      x-hat   = x-hat + q

    "choco" mixes what was just sent: without compression and at gamma = 1 it is exact gossip.
    "paper" mixes what was sent a step ago: its first step mixes nothing, and without compression
    it does not become the uncompressed method.

    Args:
      topology: who hears whom.
      compressor: the operator Q, applied to each tensor of each agent.
      gamma: averaging rate in (0, 1]; strong compression needs a small one (the paper: 0.4 for
        30 % top-k).
      order: "choco" or "paper".
      form: "auto", "dense" or "table", see `mixing_form`.

    Returns:
      A transform of stacked updates [A, ...]. Its update takes `key=` when the compressor draws
      random numbers, and notes compression_error = ||Q(theta) - theta|| and compression_input =
      ||theta||, each [A], in `metrics=` when given, where theta is the difference compressed, and the
      same and zeta for each tensor, see `note_compression`.
    """
    gamma = check_gossip(topology, gamma)
    check_compressor(compressor)
    checks.choice("order", order, ORDERS)
    mixing_form(topology, form)

    def init_fn(params: Params) -> ChocoState:
        trees.check_params(params, topology.size)
        return ChocoState(public=jax.tree.map(jnp.zeros_like, params))

    def publish(models, public, key, metrics):
        theta = jax.tree.map(jnp.subtract, models, public)
        q = compress_stacked(compressor, theta, stream(key, _STREAM))
        note_compression(metrics, "", theta, q, topology.present)
        return jax.tree.map(jnp.add, public, q)

    def update_fn(
        updates,
        state,
        params=None,
        *,
        key: Key | None = None,
        metrics: Metrics | None = None,
        **extra_args,
    ):
        del extra_args
        params = require_params(params)
        public = state.public
        if order == "choco":
            public = publish(optax.apply_updates(params, updates), public, key, metrics)
        updates = add_gossip(updates, disagreement(topology, public, form), gamma)
        if order == "paper":
            public = publish(optax.apply_updates(params, updates), public, key, metrics)
        return updates, ChocoState(public)

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def model_gossip(
    topology: Topology,
    gamma: Any,
    compressor: Compressor | None,
    order: Order,
    form: Form,
) -> optax.GradientTransformationExtraArgs:
    """The gossip of D-PSGD and QGM: exact without a compressor, CHOCO with one."""
    checks.choice("order", order, ORDERS)
    if compressor is None:
        return gossip(topology, gamma, form=form)
    return choco_gossip(topology, compressor, gamma, order, form=form)


def check_compressor(compressor: Any) -> None:
    """Checks that an argument is a compression operator."""
    checks.instance("compressor", compressor, Compressor, "sj.quantize(bits=8)")


def note_compression(
    metrics: Metrics | None, prefix: str, theta: Any, compressed: Any, present: np.ndarray
) -> None:
    """Notes what compression took away, if anybody asked.

    Args:
      metrics: where to; None notes nothing.
      prefix: before the names.
      theta: what was compressed [A, ...], or of pairs [A, K, ...].
      compressed: Q(theta).
      present: which agents [A] or pairs [A, K] are real, bool.

    The norms of theta and of Q(theta) - theta, [A] or [A, K]; their means for each tensor on its own, [L];
    and the measured contraction of each tensor, zeta_l = 1 - ||Q(theta_l) - theta_l||^2 / ||theta_l||^2 [L],
    the mean over those agents or pairs that had something to compress, NaN where none had.
    """
    if metrics is None:
        return
    axes = present.ndim
    error = jax.tree.map(jnp.subtract, compressed, theta)
    metrics[f"{prefix}compression_error"] = trees.agent_norms(error, axes)
    metrics[f"{prefix}compression_input"] = trees.agent_norms(theta, axes)
    errors, inputs = trees.layer_norms(error, axes), trees.layer_norms(theta, axes)
    metrics[f"{prefix}compression_error_by_layer"] = trees.mean_by_layer(errors, present[None])
    metrics[f"{prefix}compression_input_by_layer"] = trees.mean_by_layer(inputs, present[None])
    lost = (errors / jnp.where(inputs > 0, inputs, 1)) ** 2
    metrics[f"{prefix}zeta_by_layer"] = trees.mean_by_layer(1 - lost, (inputs > 0) & present[None])


def stream(key: Key | None, purpose: int) -> Key | None:
    """A key of one's own out of the one that all transforms of a chain are given."""
    return None if key is None else jax.random.fold_in(key, purpose)
