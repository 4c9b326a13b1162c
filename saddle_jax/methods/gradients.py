"""The agents' gradients alone, for loops that are written by hand."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from saddle_jax.base.types import Batch, LossFn, Params
from saddle_jax.core.estimator import GradientEstimator
from saddle_jax.core.gradients import Gradients
from saddle_jax.core.mixing import Graphs
from saddle_jax.core.network import Network
from saddle_jax.core.trees import check_params, check_stacked
from saddle_jax.graphs.named import isolated
from saddle_jax.methods.ngm import check_undirected
from saddle_jax.sam.sam import sam


def local_gradients(loss_fn: LossFn, rho: Any = 0.0) -> Callable[[Params, Batch], Params]:
    """Makes a function that takes every agent's gradient of its own loss at its own model.

    Args:
      loss_fn: (params, batch) -> scalar loss of ONE agent, or (loss, aux); no agent axis.
      rho: SAM's radius; 0 is the plain gradient.

    Returns:
      A function of stacked params [A, ...] and batch [A, B, ...] that gives gradients [A, ...].

    >>> gradients = sj.local_gradients(lambda x, d: 0.5 * jnp.sum(x * x * d))
    >>> gradients(jnp.array([1.0, 2.0]), jnp.array([3.0, 5.0]))
    Array([ 3., 10.], dtype=float32)
    """
    estimator = sam(rho)

    def gradients(params: Params, batch: Batch) -> Params:
        agents = jnp.shape(jax.tree.leaves(params)[0])[0]
        return _oracle(loss_fn, estimator, isolated(agents), params, batch).own(params)

    return gradients


def cross_gradients(loss_fn: LossFn, topology: Graphs, rho: Any = 0.0) -> Callable[[Params, Batch], Params]:
    """Makes a function that takes every agent's gradients at its own model on its neighbours' batches.

    Args:
      loss_fn: the loss of one agent, as in `sj.local_gradients`.
      topology: who hears whom.
      rho: SAM's radius; 0 is the plain gradient.

    Returns:
      A function of stacked params [A, ...] and batch [A, B, ...] that gives gradients [A, K, ...]:
      [i, k] is grad F_j(x_i; d_j) with j = topology.neighbours[i, k]. `sj.neighbourhood_mean`
      averages them.

    >>> gradients = sj.cross_gradients(lambda x, d: 0.5 * jnp.sum(x * x * d), sj.complete(2))
    >>> gradients(jnp.array([1.0, 2.0]), jnp.array([3.0, 5.0]))  # own data first
    Array([[ 3.,  5.],
           [10.,  6.]], dtype=float32)
    """
    check_undirected(topology)
    estimator = sam(rho)

    def gradients(params: Params, batch: Batch) -> Params:
        return _oracle(loss_fn, estimator, topology, params, batch).pairs(params, None)

    return gradients


def _oracle(
    loss_fn: LossFn, estimator: GradientEstimator[Any], topology: Graphs, params: Params, batch: Batch
) -> Gradients:
    check_params(params, topology.size)
    check_stacked("batch", batch, topology.size)
    batch = jax.tree.map(jnp.asarray, batch)
    return Gradients(loss_fn, estimator, batch, Network(topology), t=0, states=[])
