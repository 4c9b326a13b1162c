"""Stage one of a step: every agent's gradient, on its own data or on its neighbourhood's.

The only place where the user's loss function is lifted over the agents.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax import checks
from saddle_jax.agents import lift, on_shards
from saddle_jax.exchange import bring
from saddle_jax.sam import Ascent, Evaluation, sam_gradient, with_aux
from saddle_jax.topology import Topology
from saddle_jax.trees import check_params, check_stacked, scale_slices, zeros_of_pairs
from saddle_jax.types import Array, Batch, LossFn, Params


class AscentState(NamedTuple):
    """State of a gradient stage."""

    step: Array  # steps taken, int32 []
    perturbation: Params  # xi of the last climb, [A, ...] or [A, K, ...]; None if not kept


@dataclasses.dataclass(frozen=True)
class GradientStage(abc.ABC):
    """The first stage of a method: `init`, then `compute` at every step.

    `dataclasses.replace(stage, ascent=...)` gives the same stage with another kind of SAM.

    Attributes:
      ascent: how SAM climbs.
      group: how many of a device's agents are computed at a time; 0 chooses, see `agents.group_size`.
    """

    ascent: Ascent = Ascent()
    group: int = 0

    @property
    def leading_axes(self) -> int:
        """How many axes stand before a parameter's own: 1 for [A, ...], 2 for [A, K, ...]."""
        return 1

    def init(self, params: Params) -> AscentState:
        """The state before the first step; params are stacked [A, ...]."""
        kept = self._perturbations(params) if self.ascent.keeps_perturbation else None
        return AscentState(jnp.zeros([], jnp.int32), kept)

    def compute(
        self,
        loss_fn: LossFn,
        params: Params,
        batch: Batch,
        state: AscentState,
        ascend: bool | None = None,
    ) -> tuple[Any, AscentState, Evaluation]:
        """Gradients, next state, and each agent's loss and aux [A, ...] on its own batch.

        `ascend` tells whether SAM climbs in this step. With None, the state's step decides,
        inside the compiled program, which then holds both kinds of step.
        """

        def gradients(climbs: bool):
            return self._gradients(loss_fn, params, batch, state, climbs)

        batch = jax.tree.map(jnp.asarray, batch)
        if ascend is None and (self.ascent.every == 1 or self.ascent.is_plain):
            ascend = True
        if ascend is None:
            due = state.step % self.ascent.every == 0
            result = jax.lax.cond(due, lambda: gradients(True), lambda: gradients(False))
        else:
            result = gradients(ascend)
        grads, xi, evaluation = result
        return grads, AscentState(state.step + 1, xi), evaluation

    @abc.abstractmethod
    def _perturbations(self, params: Params) -> Params:
        """Zeros in the shape of all perturbations of a step."""

    @abc.abstractmethod
    def _gradients(
        self, loss_fn: LossFn, params: Params, batch: Batch, state: AscentState, climbs: bool
    ) -> tuple[Any, Params, Evaluation]:
        """Gradients, perturbations and evaluation of a step that climbs or does not."""


@dataclasses.dataclass(frozen=True)
class LocalGradients(GradientStage):
    """The stage of D-PSGD and QGM: grad F_i(x_i; d_i), [A, ...]."""

    def _perturbations(self, params):
        return jax.tree.map(jnp.zeros_like, params)

    def _gradients(self, loss_fn, params, batch, state, climbs):
        gradient = lift(sam_gradient(loss_fn, self.ascent, climbs), self.group)
        return gradient(params, batch, state.perturbation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrossGradients(GradientStage):
    """The stage of NGM: g_ij = grad F_j(x_i; d_j) for all neighbours j of i, itself included.

    In a network agent j computes g_ij on the model that i sent and returns it. Here the batch d_j
    is gathered to agent i instead: the same numbers, and no model is copied. Each pair has a
    perturbation of its own.

    Attributes:
      topology: who hears whom.
      mean: False gives all pairs [A, K, ...], for error feedback. True gives their weighted mean
        sum_j w_ij g_ij [A, ...] (lines 11 and 13 of the NGM algorithm): without SAM as ONE
        gradient of one weighted batch, with SAM pair after pair, so that a single pair's gradient
        is alive at a time.
      self_point: where the self-gradient g_ii is taken, as a function of the stacked models;
        None is the current models, as printed.
    """

    topology: Topology
    mean: bool = False
    self_point: Callable[[Params], Params] | None = None

    def __post_init__(self):
        check_undirected(self.topology)

    @property
    def leading_axes(self) -> int:
        return 1 if self.mean else 2

    def _perturbations(self, params):
        return zeros_of_pairs(params, self.topology.neighbours.shape[1])

    def _gradients(self, loss_fn, params, batch, state, climbs):
        if self.mean and self.ascent.is_plain and self.self_point is None:
            return self._gradient_of_mean(loss_fn, params, batch)
        return self._gradients_by_pair(loss_fn, params, batch, state, climbs)

    def _gradient_of_mean(self, loss_fn, params, batch):
        """sum_j w_ij F_j(x; d_j) is one function of x: its gradient is one backward pass."""

        def mean_loss(x, neighbours_data, weights):
            losses, aux = jax.vmap(with_aux(loss_fn), in_axes=(None, 0))(x, neighbours_data)
            own = jax.tree.map(lambda leaf: leaf[0], Evaluation(losses, aux))
            return jnp.sum(losses * weights.astype(losses.dtype)), own

        def of_a_shard(params, heard, senders, weights):
            def of_one(x, senders, weights):
                neighbours_data = jax.tree.map(lambda d: d[senders], heard)
                return jax.grad(mean_loss, has_aux=True)(x, neighbours_data, weights)

            return lift(of_one, self.group)(params, senders, weights)

        heard, senders = bring(self.topology, batch)
        weights = jnp.asarray(self.topology.weights)
        grads, own = on_shards(of_a_shard)(params, heard, jnp.asarray(senders), weights)
        return grads, None, own

    def _gradients_by_pair(self, loss_fn, params, batch, state, climbs):
        """Slot after slot of the neighbour table, all agents at once."""
        gradient = lift(sam_gradient(loss_fn, self.ascent, climbs), self.group)
        own_models = None if self.self_point is None else self.self_point(params)

        def of_a_shard(params, own_models, heard, senders, weights, xi):
            def visit(total, slot):
                k, slot_senders, shares, xi = slot
                models = params
                if own_models is not None:
                    models = jax.tree.map(lambda a, b: jnp.where(k == 0, a, b), own_models, params)
                neighbours_data = jax.tree.map(lambda d: d[slot_senders], heard)
                grads, xi, evaluation = gradient(models, neighbours_data, xi)
                if not self.mean:
                    return None, (grads, xi, evaluation)
                return jax.tree.map(jnp.add, total, scale_slices(grads, shares)), (None, xi, evaluation)

            slots = (jnp.arange(senders.shape[1]), senders.T, weights.T, _swap_leading(xi))
            total = jax.tree.map(jnp.zeros_like, params) if self.mean else None
            total, (grads, xi, evaluation) = jax.lax.scan(visit, total, slots)
            own = jax.tree.map(lambda leaf: leaf[0], evaluation)
            return total if self.mean else _swap_leading(grads), _swap_leading(xi), own

        heard, senders = bring(self.topology, batch)
        weights = jnp.asarray(self.topology.weights)
        return on_shards(of_a_shard)(
            params, own_models, heard, jnp.asarray(senders), weights, state.perturbation
        )


def check_undirected(topology: Any) -> None:
    """Checks a graph for cross-gradients: whom I send my model to must be able to answer me."""
    checks.instance("topology", topology, Topology, "sj.ring(10)")
    if topology.is_directed:
        raise ValueError(f"topology must be undirected to exchange cross-gradients, got {topology.name}")


def _swap_leading(tree: Any) -> Any:
    """[K, A, ...] to [A, K, ...] and back."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


def local_gradients(loss_fn: LossFn, rho: float = 0.0) -> Callable[[Params, Batch], Params]:
    """Every agent's gradient of its own loss at its own model.

    Args:
      loss_fn: (params, batch) -> scalar loss of ONE agent, or (loss, aux); no agent axis.
      rho: SAM's radius; 0 is the plain gradient.

    Returns:
      A function of stacked params [A, ...] and batch [A, B, ...] that gives gradients [A, ...].
    """
    return _once(LocalGradients(Ascent(rho)), loss_fn)


def cross_gradients(
    loss_fn: LossFn, topology: Topology, rho: float = 0.0
) -> Callable[[Params, Batch], Params]:
    """Every agent's gradients at its own model on the batches of its neighbours, itself included.

    Args:
      loss_fn: (params, batch) -> scalar loss of ONE agent, or (loss, aux); no agent axis.
      topology: who hears whom.
      rho: SAM's radius; 0 is the plain gradient.

    Returns:
      A function of stacked params [A, ...] and batch [A, B, ...] that gives gradients [A, K, ...]:
      [i, k] is grad F_j(x_i; d_j) with j = topology.neighbours[i, k]. `sj.neighbourhood_mean`
      averages them.
    """
    return _once(CrossGradients(Ascent(rho), topology=topology), loss_fn, topology.size)


def _once(
    stage: GradientStage, loss_fn: LossFn, size: int | None = None
) -> Callable[[Params, Batch], Params]:
    def gradients(params: Params, batch: Batch) -> Params:
        agents = jnp.shape(jax.tree.leaves(params)[0])[0] if size is None else size
        check_params(params, agents)
        check_stacked("batch", batch, agents)
        return stage.compute(loss_fn, params, batch, stage.init(params), True)[0]

    return gradients
