"""How gradients are taken: of one model by an estimator, of all agents on their own data or on others'.

A gradient estimator knows nothing of agents. Its `gradient` is handed the plain gradient function of the loss
and calls it as often as it likes: once, or at a perturbed point too, as sharpness-aware methods do;
`saddle_jax.sam` has one short file for each kind.

An oracle applies it to all agents. It answers the three questions that a rule may ask of a step:

    own      grad F_i(x_i; d_i)                               [A, ...]
    pairs    g_ij = grad F_j(x_i; d_j), j a neighbour of i    [A, K, ...]
    mean     sum_j w_ij g_ij                                  [A, ...]

each through the method's estimator. In a network agent j computes g_ij on the model that i sent and returns
it. Here the batch d_j is brought to agent i instead: the same numbers, and no model is copied. Every pair has
an estimator of its own.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.about import About
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, Key, LossFn, Params, State, Tree
from saddle_jax.core.network import Network
from saddle_jax.core.trees import agent_keys, scale_slices, zeros_like, zeros_of_pairs
from saddle_jax.devices import policy
from saddle_jax.devices.lifting import on_shards, vmap_agents

ABOUT = About("")  # nobody: it is the gradient

Need = Literal["key", "t", "along"]
NEEDS: tuple[Need, ...] = ("key", "t", "along")


@dataclasses.dataclass(frozen=True, eq=False)
class GradientFn:
    """The plain gradient function of one model's loss: `grad(x, d)` is the gradient at x on batch d.

    Attributes:
      grad: (x, d) -> gradient.
      losses: (x, d) -> [B], the loss of each sample of the batch by itself, without a backward pass.
      key: a key of this model and step alone; None unless the estimator needs one.
      t: the number of the step, int32 []; None unless the estimator needs it.
      along: a direction uphill that the rule has at hand; None if it has none, or the estimator needs none.
    """

    grad: Callable[[Params, Batch], Params]
    losses: Callable[[Params, Batch], Array]
    key: Key | None = None
    t: Any = None
    along: Params | None = None

    def __call__(self, x: Params, d: Batch) -> Params:
        """Returns the plain gradient at x on batch d."""
        return self.grad(x, d)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GradientEstimator(Generic[State]):
    """An estimator takes the gradient of one model on one batch; it is a pure pair of functions.

    Attributes:
      name: the call that makes it, such as "sam(rho=0.05)".
      init: x -> state, the state before the first step; `()` if nothing is remembered.
      gradient: (grad, x, d, state, phase) -> (g, state). `grad(x, d)` is the plain gradient at x on
        batch d. `phase` is static: a Python integer that tells which kind of step this is.
      phases: the kinds of the steps of one period. (0,) makes all steps alike; (0, 1, 1) makes every third
        step, from the first on, of kind 0. Steps of one kind are one compiled program.
      is_linear: whether the gradient of a weighted sum of losses is the weighted sum of their gradients.
      needs: what `grad` must carry beside the loss: "key", "t" or "along", see `GradientFn`.
      cost: phase -> backward passes of a step, where some see a part of the batch only and count as that
        part; None counts the calls of `grad`.

    >>> gradient = lambda grad, x, d, state, phase: (grad(x, d) / 2, state)
    >>> half = sj.GradientEstimator("half", lambda x: (), gradient)
    >>> method, x = sj.saddle(sj.dpsgd(sj.ring(2), 0.1), half), jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]
    Array([0.75, 0.75], dtype=float32)
    """

    name: str
    init: Callable[[Params], State]
    gradient: Callable[[GradientFn, Params, Batch, State, int], tuple[Params, State]]
    phases: tuple[int, ...] = (0,)
    is_linear: bool = False
    needs: tuple[Need, ...] = ()
    cost: Callable[[int], float] | None = None

    def __post_init__(self) -> None:
        for need in self.needs:
            checks.choice("needs", need, NEEDS)
        if not self.phases or any(not isinstance(phase, int) for phase in self.phases):
            raise ArgumentError(f"phases must be a tuple of integers, got {self.phases!r}")

    def __repr__(self) -> str:
        return self.name

    @property
    def period(self) -> int:
        """The number of steps after which the kinds of steps repeat."""
        return len(self.phases)

    def phase(self, t: int) -> int:
        """Returns the kind of step number t, counted from 0."""
        return self.phases[checks.whole("t", t, at_least=0) % self.period]

    def keeps_state(self, x: Params) -> bool:
        """Returns whether something is remembered of a model x from one step to the next."""
        return bool(jax.tree.leaves(jax.eval_shape(self.init, x)))

    def passes(self, phase: int) -> float:
        """Counts the backward passes of a step of this kind, on a model of one number, see `cost`."""
        if self.cost is not None:
            return self.cost(phase)
        count = 0

        def grad(x: Params, d: Batch) -> Params:
            nonlocal count
            del d
            count += 1
            return x

        def losses(x: Params, d: Batch) -> Array:
            del x, d
            return jnp.ones(1)

        def gradient(x: Params, key: Key, t: Array) -> Any:
            return self.gradient(GradientFn(grad, losses, key, t), x, (), self.init(x), phase)

        model, t = {"x": jax.ShapeDtypeStruct((1,), jnp.float32)}, jax.ShapeDtypeStruct((), jnp.int32)
        jax.eval_shape(gradient, model, jax.eval_shape(jax.random.key, 0), t)
        return count

    @property
    def passes_per_step(self) -> float:
        """The number of backward passes of a step, the mean over a period: 1 for plain, 2 for SAM."""
        return sum(self.passes(phase) for phase in self.phases) / self.period


def nothing(x: Params) -> tuple[()]:
    """Returns the state of an estimator that remembers nothing."""
    del x
    return ()


def plain_gradient() -> GradientEstimator[tuple[()]]:
    """Takes the gradient of the loss itself, g = grad F(x; d), in one backward pass.

    >>> sj.plain_gradient().passes_per_step
    1.0
    """
    return GradientEstimator(
        "plain()", nothing, lambda grad, x, d, state, phase: (grad(x, d), state), is_linear=True
    )


# ---- the agents' gradients ----


Kind = Literal["own", "pairs", "mean"]


class Evaluation(NamedTuple):
    """The loss that the first backward pass on a batch saw."""

    loss: Array  # scalar, or [A]; at the perturbed point in a step that reuses a perturbation
    aux: Tree  # what loss_fn returned beside the loss; None if it returned the loss alone


GradientOutput: TypeAlias = tuple[Params, Any, Evaluation]  # gradients, the estimator's new state, own losses
Gathered: TypeAlias = tuple[Batch, Array, Array]  # neighbours' batches, their senders [A, K], weights [A, K]


class GradientInputs(NamedTuple):
    """What an estimator needs beside the loss, see `GradientFn`: of one model, or stacked."""

    key: Key | None = None
    t: Any = None
    along: Params | None = None


class Oracle(Protocol):
    """An oracle answers a step's three questions for gradients at stacked models x [A, ...]."""

    def own(self, x: Params, along: Params | None = None) -> Params:
        """Returns every agent's gradient on its own batch, grad F_i(x_i; d_i), [A, ...].

        `along` [A, ...] is a direction uphill that the rule has at hand, for estimators that use one.
        """

    def pairs(self, x: Params, own: Params | None) -> Params:
        """Returns g_ij = grad F_j(x_i; d_j), [A, K, ...]; g_ii is taken at `own`, or at x if that is None."""

    def mean(self, x: Params, own: Params | None) -> Params:
        """Returns sum_j w_ij g_ij, [A, ...], where g_ij are the `pairs`."""


@dataclasses.dataclass(eq=False)
class Gradients:
    """The oracle of a real step computes gradients from a loss function and the agents' batches.

    Attributes:
      loss_fn: the loss of one agent.
      estimator: how the gradient of one model is taken.
      batch: one batch per agent, stacked [A, B, ...].
      network: brings the neighbours' batches.
      t: the number of the step, int32 [].
      states: the estimator's states, one for each question of a step, in order; each answer replaces its own.
      phase: which kind of step this is; None decides by t inside the compiled program.
      agents_per_call: of a device's agents, how many are computed at a time; 0: see `policy.group_size`.
      evaluations: each agent's loss and aux on its own batch, one entry for each question.
      calls: which questions there were.
    """

    loss_fn: LossFn
    estimator: GradientEstimator[Any]
    batch: Batch
    network: Network
    t: Any
    states: list[Any]
    phase: int | None = 0
    agents_per_call: int = 0
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list)
    calls: list[Kind] = dataclasses.field(default_factory=list)

    def own(self, x: Params, along: Params | None = None) -> Params:
        """Returns every agent's gradient on its own batch, grad F_i(x_i; d_i), [A, ...]."""
        self.calls.append("own")
        inputs = self._inputs(along)
        return self._call(lambda phase, state: self._vmapped(phase)(x, self.batch, state, inputs))

    def mean(self, x: Params, own: Params | None) -> Params:
        """Returns sum_j w_ij g_ij, [A, ...], without keeping the pairs in memory."""
        self.calls.append("mean")
        if own is None and self.estimator.is_linear and policy.joins_neighbours():
            gathered = self._gathered()
            return self._call(lambda phase, state: self._gradient_of_mean(x, gathered, state))
        return self._slots(x, own, mean=True)

    def pairs(self, x: Params, own: Params | None) -> Params:
        """Returns g_ij = grad F_j(x_i; d_j), [A, K, ...]; g_ii is taken at `own`, or at x if that is None."""
        self.calls.append("pairs")
        return self._slots(x, own, mean=False)

    def _slots(self, x: Params, own: Params | None, mean: bool) -> Params:
        gathered, inputs = self._gathered(), self._inputs_of_pairs()
        return self._call(lambda phase, state: self._by_slots(x, own, gathered, inputs, phase, state, mean))

    def _gathered(self) -> Gathered:
        """Asks the network for the neighbours' batches, before any branch: it may not be used inside one."""
        return (*self.network.gather_batches(self.batch), self.network.weights)

    def _inputs(self, along: Params | None = None) -> GradientInputs:
        """Returns what the estimator needs beside the loss, [A, ...], and nothing that it does not need."""
        size, inputs = self.network.topology.size, GradientInputs()
        if "key" in self.estimator.needs:
            key = self.network.key()
            if key is None:
                raise ArgumentError(
                    f"key must be given to a step with {self.estimator}, which draws, got None"
                )
            inputs = inputs._replace(key=agent_keys(key, size))
        if "t" in self.estimator.needs:
            inputs = inputs._replace(t=jnp.full(size, self.t, jnp.int32))
        if "along" in self.estimator.needs:
            inputs = inputs._replace(along=along)
        return inputs

    def _inputs_of_pairs(self) -> GradientInputs:
        """Returns the same for each pair, slot by slot, [K, A, ...]; a pair has no direction at hand."""
        inputs, slots = self._inputs(), jnp.arange(self.network.width)
        t = None if inputs.t is None else jnp.repeat(inputs.t[None], len(slots), axis=0)
        if inputs.key is None:
            return GradientInputs(t=t)
        of_slot = jax.vmap(jax.vmap(jax.random.fold_in, in_axes=(0, None)), in_axes=(None, 0))
        return GradientInputs(key=of_slot(inputs.key, slots), t=t)

    def _call(self, compute: Callable[[int, Any], GradientOutput]) -> Params:
        number = len(self.evaluations)
        state = self.states[number] if number < len(self.states) else ()
        kinds = sorted(set(self.estimator.phases))
        if self.phase is not None or len(kinds) == 1:
            gradient, state, evaluation = compute(kinds[0] if self.phase is None else self.phase, state)
        else:
            places = jnp.array([kinds.index(phase) for phase in self.estimator.phases])
            branches = [lambda phase=phase: compute(phase, state) for phase in kinds]
            place = places[self.t % self.estimator.period]
            gradient, state, evaluation = jax.lax.switch(place, branches)
        self.evaluations.append(evaluation)
        if number < len(self.states):
            self.states[number] = state
        return gradient

    def _vmapped(self, phase: int) -> Callable[[Params, Batch, Any, GradientInputs], GradientOutput]:
        return vmap_agents(single_model(self.loss_fn, self.estimator, phase), self.agents_per_call)

    def _gradient_of_mean(self, x: Params, gathered: Gathered, state: Any) -> GradientOutput:
        """Takes the gradient of sum_j w_ij F_j(x; d_j), one function of x, in one backward pass."""

        def mean_loss(x: Params, neighbours_data: Batch, weights: Array) -> tuple[Array, Evaluation]:
            losses, aux = jax.vmap(with_aux(self.loss_fn), in_axes=(None, 0))(x, neighbours_data)
            own = jax.tree.map(lambda leaf: leaf[0], Evaluation(losses, aux))
            return jnp.sum(losses * weights.astype(losses.dtype)), own

        def shard_fn(x: Params, heard: Batch, senders: Array, weights: Array) -> Any:
            def single(x: Params, senders: Array, weights: Array) -> Any:
                neighbours_data = jax.tree.map(lambda d: d[senders], heard)
                return jax.grad(mean_loss, has_aux=True)(x, neighbours_data, weights)

            return vmap_agents(single, self.agents_per_call)(x, senders, weights)

        gradients, own = on_shards(shard_fn)(x, *gathered)
        return gradients, state, own

    def _by_slots(
        self,
        x: Params,
        own: Params | None,
        gathered: Gathered,
        inputs: GradientInputs,
        phase: int,
        state: Any,
        mean: bool,
    ) -> GradientOutput:
        """Goes through the table slot by slot, all agents at once: one gradient per agent is in memory."""
        gradient = self._vmapped(phase)

        def shard_fn(
            x: Params,
            own: Params | None,
            heard: Batch,
            senders: Array,
            weights: Array,
            inputs: GradientInputs,
            state: Any,
        ) -> GradientOutput:
            def visit(total: Params | None, slot: Any) -> tuple[Params | None, Any]:
                models, slot_senders, shares, inputs, state = slot
                neighbours_data = jax.tree.map(lambda d: d[slot_senders], heard)
                model = x if models is None else models
                g, state, evaluation = gradient(model, neighbours_data, state, inputs)
                if mean:
                    return jax.tree.map(jnp.add, total, scale_slices(g, shares)), (None, state, evaluation)
                return None, (g, state, evaluation)

            total = zeros_like(x) if mean else None
            slots = (None, senders.T, weights.T, _swap_leading(inputs), _swap_leading(state))
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

        gradients, states, evaluation = on_shards(shard_fn)(x, own, *gathered, _swap_leading(inputs), state)
        return gradients, states, evaluation


@dataclasses.dataclass(eq=False)
class AbstractGradients:
    """The oracle of an abstract step answers with zeros and remembers what it was asked."""

    slots: int  # K
    calls: list[Kind] = dataclasses.field(default_factory=list)

    def own(self, x: Params, along: Params | None = None) -> Params:
        """Remembers the question and returns zeros [A, ...]."""
        del along
        self.calls.append("own")
        return zeros_like(x)

    def mean(self, x: Params, own: Params | None) -> Params:
        """Remembers the question and returns zeros [A, ...]."""
        del own
        self.calls.append("mean")
        return zeros_like(x)

    def pairs(self, x: Params, own: Params | None) -> Params:
        """Remembers the question and returns zeros [A, K, ...]."""
        del own
        self.calls.append("pairs")
        return zeros_of_pairs(x, self.slots)


@dataclasses.dataclass(eq=False)
class FixedGradients:
    """The oracle of an optax transform hands out the gradients [A, ...] that were taken before the step.

    Attributes:
      gradients: one gradient of each agent [A, ...].
      x: the models [A, ...] that they were taken at: whoever asks elsewhere is refused.
      name: of the method that asks.
    """

    gradients: Params
    x: Params
    name: str
    states: list[Any] = dataclasses.field(default_factory=list)
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list)
    calls: list[Kind] = dataclasses.field(default_factory=list)

    def own(self, x: Params, along: Params | None = None) -> Params:
        """Returns the gradients, at the models of the step and once."""
        del along
        here = jax.tree.map(lambda leaf, other: leaf is other, x, self.x)
        if not all(jax.tree.leaves(here)):
            raise self._refusal("one that asks elsewhere")
        self.calls.append("own")
        if len(self.calls) > 1:
            raise self._refusal("one that asks twice")
        return self.gradients

    def mean(self, x: Params, own: Params | None) -> Params:
        """Raises an error: gradients on the neighbours' data were not taken."""
        raise self._refusal("one that asks for its neighbours' gradients")

    pairs = mean

    def _refusal(self, what: str) -> ArgumentError:
        return ArgumentError(
            "method must be one that asks for one gradient, at the models of the step, to be an optax "
            f"transform, got {self.name}, {what}"
        )


def single_model(
    loss_fn: LossFn, estimator: GradientEstimator[Any], phase: int
) -> Callable[[Params, Batch, Any, GradientInputs], GradientOutput]:
    """Makes the gradient function of one model: (x, d, state, known) -> (gradient, state, evaluation)."""
    with_value = with_aux(loss_fn)
    value_and_grad = jax.value_and_grad(with_value, has_aux=True)

    def losses(x: Params, d: Batch) -> Array:
        def single_sample(sample: Batch) -> Array:
            return with_value(x, jax.tree.map(lambda leaf: leaf[None], sample))[0]

        return jax.vmap(single_sample)(d)

    def gradient(x: Params, d: Batch, state: Any, inputs: GradientInputs) -> GradientOutput:
        evaluations: list[Evaluation] = []

        def grad(x: Params, d: Batch) -> Params:
            (loss, aux), g = value_and_grad(x, d)
            evaluations.append(Evaluation(loss, aux))
            return g

        g, state = estimator.gradient(GradientFn(grad, losses, *inputs), x, d, state, phase)
        if not evaluations:
            raise ArgumentError(
                f"estimator {estimator} must take at least one gradient, got none in phase {phase}"
            )
        return g, state, evaluations[0]

    return gradient


def with_aux(loss_fn: LossFn) -> Callable[[Params, Batch], tuple[Array, Any]]:
    """Brings loss_fn into one form, which returns (loss, aux); aux is None if it returns the loss alone."""

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


def initial_states(
    estimator: GradientEstimator[Any], x: Params, calls: Sequence[Kind], slots: int
) -> tuple[Any, ...]:
    """Makes the estimator's first states: [A, ...] for own gradients, [A, K, ...] for pairs."""

    def of_kind(kind: Kind) -> Tree:
        states = jax.vmap(estimator.init)(x)
        if kind == "own":
            return states
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], slots, axis=1), states)

    one = jax.tree.map(lambda leaf: leaf[0], x)
    return tuple(of_kind(kind) for kind in calls) if estimator.keeps_state(one) else ()


def _swap_leading(tree: Tree) -> Tree:
    """Swaps the two leading axes of every leaf: [K, A, ...] becomes [A, K, ...], and the other way round."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)
