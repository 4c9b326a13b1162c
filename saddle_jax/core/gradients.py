"""Every agent's gradient, on its own data or on its neighbours': the loss function lifted over the agents.

An oracle answers the three questions that a rule may ask of a step:

    own      grad F_i(x_i; d_i)                               [A, ...]
    pairs    g_ij = grad F_j(x_i; d_j), j a neighbour of i    [A, K, ...]
    mean     sum_j w_ij g_ij                                  [A, ...]

each through the method's ascent. In a network agent j computes g_ij on the model that i sent and returns
it. Here the batch d_j is brought to agent i instead: the same numbers, and no model is copied. Every pair has
an ascent of its own.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, LossFn, Params, Tree
from saddle_jax.core.ascent import Ascent
from saddle_jax.core.network import Network
from saddle_jax.core.trees import scale_slices, zeros_like
from saddle_jax.devices.lifting import lift, on_shards

Kind = Literal["own", "pairs", "mean"]


class Evaluation(NamedTuple):
    """What the first backward pass on a batch saw."""

    loss: Array  # scalar, or [A]; at the perturbed point in a step that reuses a perturbation
    aux: Any  # what loss_fn returned beside the loss; None if nothing


class Oracle(Protocol):
    """Whom a step asks for gradients; x is stacked [A, ...]."""

    def own(self, x: Params) -> Params:
        """grad F_i(x_i; d_i), [A, ...]."""

    def pairs(self, x: Params, own: Params | None) -> Params:
        """g_ij = grad F_j(x_i; d_j), [A, K, ...]; `own` is where g_ii is taken, None for x."""

    def mean(self, x: Params, own: Params | None) -> Params:
        """sum_j w_ij g_ij, [A, ...]."""


@dataclasses.dataclass(eq=False)
class Gradients:
    """The oracle of a real step.

    Attributes:
      loss_fn: of one agent.
      ascent: how the gradient of one model is taken.
      batch: stacked [A, B, ...].
      network: whose batches are heard.
      states: the ascent's, one for each question of a step in their order; replaced as they are asked.
      phase: which kind of step this is; None: told by network.t, inside the compiled program.
      group: how many of a device's agents are computed at a time; 0 chooses, see `policy.group_size`.
      evaluations: each agent's loss and aux on its own batch, one entry for each question.
    """

    loss_fn: LossFn
    ascent: Ascent
    batch: Batch
    network: Network
    states: list[Any]
    phase: int | None = 0
    group: int = 0
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list)

    def own(self, x: Params) -> Params:
        """grad F_i(x_i; d_i), [A, ...]."""
        return self._answer(lambda phase, state: self._lifted(phase)(x, self.batch, state))

    def mean(self, x: Params, own: Params | None) -> Params:
        """sum_j w_ij g_ij, [A, ...], without keeping the pairs."""
        reached = self._reached()
        if own is None and self.ascent.is_linear:
            return self._answer(lambda phase, state: self._gradient_of_mean(x, reached, state))
        return self._answer(lambda phase, state: self._by_slots(x, own, reached, phase, state, mean=True))

    def pairs(self, x: Params, own: Params | None) -> Params:
        """g_ij = grad F_j(x_i; d_j), [A, K, ...]."""
        reached = self._reached()
        return self._answer(lambda phase, state: self._by_slots(x, own, reached, phase, state, mean=False))

    def _reached(self) -> tuple[Any, Array, Array]:
        """The neighbours' batches, whose each is, and the weights; asked of the network before any branch."""
        return (*self.network.reach(self.batch), self.network.weights)

    def _answer(self, compute: Callable[[int, Any], tuple[Params, Any, Evaluation]]) -> Params:
        number = len(self.evaluations)
        state = self.states[number] if number < len(self.states) else ()
        kinds = sorted(set(self.ascent.phases))
        if self.phase is not None or len(kinds) == 1:
            result = compute(kinds[0] if self.phase is None else self.phase, state)
        else:
            places = jnp.array([kinds.index(phase) for phase in self.ascent.phases])
            branches = [lambda phase=phase: compute(phase, state) for phase in kinds]
            result = jax.lax.switch(places[self.network.t % self.ascent.period], branches)
        gradient, state, evaluation = result
        self.evaluations.append(evaluation)
        if number < len(self.states):
            self.states[number] = state
        return gradient

    def _lifted(self, phase: int) -> Callable[[Params, Batch, Any], tuple[Params, Any, Evaluation]]:
        return lift(of_one_model(self.loss_fn, self.ascent, phase), self.group)

    def _gradient_of_mean(self, x: Params, reached: Any, state: Any) -> tuple[Params, Any, Evaluation]:
        """sum_j w_ij F_j(x; d_j) is one function of x: its gradient is one backward pass."""

        def mean_loss(x, neighbours_data, weights):
            losses, aux = jax.vmap(with_aux(self.loss_fn), in_axes=(None, 0))(x, neighbours_data)
            own = jax.tree.map(lambda leaf: leaf[0], Evaluation(losses, aux))
            return jnp.sum(losses * weights.astype(losses.dtype)), own

        def of_a_shard(x, heard, senders, weights):
            def of_one(x, senders, weights):
                neighbours_data = jax.tree.map(lambda d: d[senders], heard)
                return jax.grad(mean_loss, has_aux=True)(x, neighbours_data, weights)

            return lift(of_one, self.group)(x, senders, weights)

        gradients, own = on_shards(of_a_shard)(x, *reached)
        return gradients, state, own

    def _by_slots(
        self, x: Params, own: Params | None, reached: Any, phase: int, state: Any, mean: bool
    ) -> tuple[Params, Any, Evaluation]:
        """Slot after slot of the table, all agents at once: one pair's gradient is alive at a time."""
        gradient = self._lifted(phase)

        def of_a_shard(x, own, heard, senders, weights, state):
            def visit(total, slot):
                models, slot_senders, shares, state = slot
                neighbours_data = jax.tree.map(lambda d: d[slot_senders], heard)
                g, state, evaluation = gradient(x if models is None else models, neighbours_data, state)
                if mean:
                    return jax.tree.map(jnp.add, total, scale_slices(g, shares)), (None, state, evaluation)
                return None, (g, state, evaluation)

            total = zeros_like(x) if mean else None
            slots = (None, senders.T, weights.T, _swap_leading(state))
            if own is None:
                total, (g, state, evaluation) = jax.lax.scan(visit, total, slots)
            else:  # the first slot, the agent itself, has a model of its own
                head, tail = (
                    jax.tree.map(lambda s, part=part: s[part], slots) for part in (0, slice(1, None))
                )
                total, first = visit(total, (own, *head[1:]))
                total, rest = jax.lax.scan(visit, total, tail)
                g, state, evaluation = jax.tree.map(
                    lambda one, others: jnp.concatenate([one[None], others]), first, rest
                )
            own_evaluation = jax.tree.map(lambda leaf: leaf[0], evaluation)
            return total if mean else _swap_leading(g), _swap_leading(state), own_evaluation

        return on_shards(of_a_shard)(x, own, *reached, state)


@dataclasses.dataclass(eq=False)
class Rehearsal:
    """The oracle of an abstract step: it answers with shapes alone and remembers what it was asked."""

    width: int
    asked: list[Kind] = dataclasses.field(default_factory=list)

    def own(self, x: Params) -> Params:
        """Zeros [A, ...]."""
        self.asked.append("own")
        return zeros_like(x)

    def mean(self, x: Params, own: Params | None) -> Params:
        """Zeros [A, ...]."""
        del own
        self.asked.append("mean")
        return zeros_like(x)

    def pairs(self, x: Params, own: Params | None) -> Params:
        """Zeros [A, K, ...]."""
        del own
        self.asked.append("pairs")
        return jax.tree.map(lambda leaf: jnp.zeros((len(leaf), self.width, *leaf.shape[1:]), leaf.dtype), x)


@dataclasses.dataclass(eq=False)
class Given:
    """The oracle of a transform in somebody's optax chain: the gradients are there already."""

    gradients: Params

    def own(self, x: Params) -> Params:
        """What was given, whatever x is."""
        del x
        return self.gradients

    def mean(self, x: Params, own: Params | None) -> Params:
        """Refused: a transform is given gradients and cannot ask for others."""
        raise ArgumentError(
            "a transform must live on the gradients it is given, got a rule that asks for pairs"
        )

    pairs = mean


def of_one_model(
    loss_fn: LossFn, ascent: Ascent, phase: int
) -> Callable[[Params, Batch, Any], tuple[Params, Any, Evaluation]]:
    """The gradient function of one model: (x, d, state) -> (gradient, state, first evaluation)."""
    value_and_grad = jax.value_and_grad(with_aux(loss_fn), has_aux=True)

    def gradient(x: Params, d: Batch, state: Any) -> tuple[Params, Any, Evaluation]:
        evaluations: list[Evaluation] = []

        def grad(x: Params, d: Batch) -> Params:
            (loss, aux), g = value_and_grad(x, d)
            evaluations.append(Evaluation(loss, aux))
            return g

        g, state = ascent.gradient(grad, x, d, state, phase)
        if not evaluations:
            raise ArgumentError(f"ascent {ascent} must take at least one gradient, got none in phase {phase}")
        return g, state, evaluations[0]

    return gradient


def with_aux(loss_fn: LossFn) -> Callable[[Params, Batch], tuple[Array, Any]]:
    """loss_fn in one form: (loss, aux), aux None where it returns the loss alone."""

    def loss_and_aux(params: Params, batch: Batch) -> tuple[Array, Any]:
        result = loss_fn(params, batch)
        loss, aux = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        if jnp.shape(loss) != ():
            raise ArgumentError(
                "loss_fn must return the scalar loss of one agent, or (loss, aux), "
                f"got a loss of shape {jnp.shape(loss)}"
            )
        return loss, aux

    return loss_and_aux


def initial_states(ascent: Ascent, x: Params, asked: list[Kind], width: int) -> tuple[Any, ...]:
    """The ascent's states before the first step: [A, ...] for own gradients, [A, K, ...] for pairs."""

    def of_kind(kind: Kind) -> Tree:
        states = jax.vmap(ascent.init)(x)
        if kind == "own":
            return states
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], width, axis=1), states)

    one = jax.tree.map(lambda leaf: leaf[0], x)
    return tuple(of_kind(kind) for kind in asked) if ascent.keeps_state(one) else ()


def _swap_leading(tree: Tree) -> Tree:
    """Leaves [K, A, ...] become [A, K, ...], and the other way round."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)
