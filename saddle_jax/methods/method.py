"""What a method is: gradients, then a transform that turns them into updates with gossip inside."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from saddle_jax import checks, trees
from saddle_jax.compression import Compressor, identity
from saddle_jax.gradients import AscentState, GradientStage
from saddle_jax.topology import Topology
from saddle_jax.types import Array, Batch, Key, LossFn, Metrics, Params


class MethodState(NamedTuple):
    """State of a method."""

    gradients: AscentState  # of the first stage
    transform: optax.OptState  # of the second and third: direction and gossip


@dataclasses.dataclass(frozen=True)
class Method:
    """A complete algorithm: gradients -> direction -> gossip.

    The named methods (`sj.qgm`, `sj.n_saddle`, ...) are made of the same parts that a new one is:

        sj.Method(topology, sj.LocalGradients(), optax.chain(..., sj.gossip(topology)))

    Attributes:
      topology: who hears whom.
      gradients: the first stage, `sj.LocalGradients` or `sj.CrossGradients`.
      transform: what turns gradients into updates; it contains the gossip, so that
        `optax.apply_updates` ends the step. It is given `key=` and `metrics=`.
      name: what to call it.
      rounds: how each message of a step to a neighbour is compressed, one per round: what the ledger
        counts. The default is one whole model.
    """

    topology: Topology
    gradients: GradientStage
    transform: optax.GradientTransformation
    name: str = "method"
    rounds: tuple[Compressor, ...] = (identity(),)

    def __post_init__(self):
        checks.instance("topology", self.topology, Topology, "sj.ring(10)")
        checks.instance("gradients", self.gradients, GradientStage, "sj.LocalGradients()")
        checks.instance("transform", self.transform, optax.GradientTransformation, "sj.gossip(topology)")
        graph = getattr(self.gradients, "topology", self.topology)
        if graph is not self.topology:
            raise ValueError(
                f"gradients must be on the method's graph {self.topology.name}, got {graph.name}"
            )

    def init(self, params: Params) -> MethodState:
        """The state before the first step; params are stacked [A, ...], see `sj.replicate`."""
        trees.check_params(params, self.topology.size)
        params = jax.tree.map(jnp.asarray, params)
        return MethodState(self.gradients.init(params), self.transform.init(params))

    def step(
        self,
        loss_fn: LossFn,
        params: Params,
        state: MethodState,
        batch: Batch,
        key: Key | None = None,
        *,
        ascend: bool | None = None,
        diagnostics: bool = False,
    ) -> tuple[Params, MethodState, Metrics]:
        """One step of all agents. Pure: jit it with loss_fn, ascend and diagnostics static.

        Args:
          loss_fn: (params, batch) -> scalar loss of ONE agent, or (loss, aux); no agent axis.
          params: stacked models [A, ...].
          state: from `init` or the step before.
          batch: one batch per agent, stacked [A, B, ...].
          key: consumed; only compressors that draw random numbers need one.
          ascend: whether SAM climbs in this step; `ascends(t)` tells. None decides by the state's
            step inside the compiled program, which then holds both kinds.
          diagnostics: also measure what costs extra passes over the parameters.

        Returns:
          The new models, the new state, and the metrics: loss [A], of the first backward pass (in a
          step that reuses a perturbation, at the perturbed point); aux (stacked [A, ...]) if
          loss_fn returns it; with diagnostics also gradient_norm ([A], or [A, K] for pairs),
          update_norm [A], consensus_distance [] of the new models, and what the transform notes:
          compression_error ||Q(theta) - theta|| and compression_input ||theta|| of compressed
          models [A], and the same with gradient_ in front of compressed cross-gradients [A, K]. Names
          that end in _by_layer are vectors [L], one number for each parameter tensor in tree order,
          the mean over agents or pairs: of these norms, and zeta, the measured contraction.
        """
        trees.check_params(params, self.topology.size)
        trees.check_stacked("batch", batch, self.topology.size)
        grads, ascent_state, evaluation = self.gradients.compute(
            loss_fn, params, batch, state.gradients, ascend
        )
        notes: Metrics = {}
        transform = optax.with_extra_args_support(self.transform)
        updates, transform_state = transform.update(
            grads, state.transform, params, key=key, metrics=notes if diagnostics else None
        )
        _check_updates(updates, params)
        new_params = optax.apply_updates(params, updates)

        metrics: Metrics = {"loss": evaluation.loss}
        if evaluation.aux is not None:
            metrics["aux"] = evaluation.aux
        if diagnostics:
            metrics["gradient_norm"], metrics["gradient_norm_by_layer"] = self._gradient_norms(grads)
            metrics["update_norm"] = trees.agent_norms(updates)
            metrics["consensus_distance"] = trees.consensus_distance(new_params, self._present)
            metrics |= notes
        return new_params, MethodState(ascent_state, transform_state), self._of_present(metrics)

    def ascends(self, step: int) -> bool:
        """Whether SAM climbs in step `step` (from 0), for loops that count the steps themselves."""
        return step % self.gradients.ascent.every == 0

    @property
    def _present(self) -> Any:
        return self.topology.present if self.topology.idle else None

    def _of_present(self, metrics: Metrics) -> Metrics:
        """Without the rows of idle agents."""
        if not self.topology.idle:
            return metrics
        count = self.topology.size - self.topology.idle
        per_agent = {
            name: value
            for name, value in metrics.items()
            if name != "consensus_distance" and not name.endswith("_by_layer")
        }
        return metrics | jax.tree.map(lambda x: x[:count], per_agent)

    def _gradient_norms(self, grads: Any) -> tuple[Array, Array]:
        """Of each agent [A] or pair [A, K], zero in free slots; and the mean of each tensor's [L]."""
        axes = self.gradients.leading_axes
        norms, by_layer = trees.agent_norms(grads, axes), trees.layer_norms(grads, axes)
        if axes == 1:
            return norms, trees.mean_by_layer(by_layer, self.topology.present[None])
        occupied = jnp.asarray(self.topology.occupied)
        return jnp.where(occupied, norms, 0), trees.mean_by_layer(by_layer, occupied[None])


def _check_updates(updates: Any, params: Params) -> None:
    """Gradients of pairs that nobody averaged would broadcast against the models."""
    for (path, update), x in zip(jax.tree.leaves_with_path(updates), jax.tree.leaves(params), strict=True):
        if update.shape != x.shape:
            raise ValueError(
                f"the transform must return updates of the parameters' shapes, got {update.shape} for "
                f"params{jax.tree_util.keystr(path)} {x.shape}: is sj.neighbourhood_mean missing?"
            )
