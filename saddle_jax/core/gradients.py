"""Gradients: estimators for one model, and oracles that evaluate them for all agents, on own or others' data.

A gradient estimator knows nothing of agents. Its `gradient` is given the plain gradient function of the loss
and calls it once, or also at a perturbed point, as sharpness-aware methods do; `saddle_jax.sam` has one short
file for each estimator.

An oracle applies the estimator to all agents. A rule may ask a step for three kinds of gradients:

    own      grad F_i(x_i; d_i)                               [A, ...]
    pairs    g_ij = grad F_j(x_i; d_j), j a neighbour of i    [A, K, ...]
    mean     sum_j w_ij g_ij                                  [A, ...]

each through the method's estimator. In a real network agent j computes g_ij on the model that i sent and
returns it. Here the batch d_j is moved to agent i instead: the numbers are the same, and no model is copied.
The estimator has a state for each pair.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import About, Array, Batch, Key, LossFn, Params, State, Tree
from saddle_jax.core.network import Network
from saddle_jax.core.trees import agent_keys, scale_slices, zeros_like, zeros_of_pairs
from saddle_jax.devices import policy
from saddle_jax.devices.lifting import on_shards, vmap_agents

ABOUT = About("")  # no citation: it is the gradient

Need = Literal["key", "t", "along"]
NEEDS: tuple[Need, ...] = ("key", "t", "along")


@dataclasses.dataclass(frozen=True, eq=False)
class GradientFn:
    """The plain gradient function of one model's loss: `grad(x, d)` is the gradient at x on batch d.

    Attributes:
      grad: (x, d) -> gradient.
      losses: (x, d) -> [B], the loss of each sample of the batch, without a backward pass.
      key: a key for this model and step; None unless the estimator needs one.
      t: the number of the step, int32 []; None unless the estimator needs it.
      along: an ascent direction that the rule provides; None if it provides none or the estimator needs none.
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
    """An estimator of the gradient of one model on one batch, as a pair of pure functions.

    Attributes:
      name: the call that makes it, such as "sam(rho=0.05)".
      init: x -> state, the state before the first step; `()` without state.
      gradient: (grad, x, d, state, kind) -> (g, state). `grad(x, d)` is the plain gradient at x on
        batch d. `kind` is static: a Python integer, the kind of the step.
      kinds: the kinds of the steps of one period. With (0,) all steps are of one kind; with (0, 1, 1) every
        third step, from the first on, is of kind 0. Each kind is compiled by itself.
      is_linear: whether the gradient of a weighted sum of losses is the weighted sum of their gradients.
      needs: which optional attributes `grad` must have: "key", "t" or "along", see `GradientFn`.
      cost: kind -> backward passes of a step, where a pass over a part of the batch counts as that part;
        None counts the calls of `grad`.

    >>> gradient = lambda grad, x, d, state, kind: (grad(x, d) / 2, state)
    >>> half = sj.GradientEstimator("half", lambda x: (), gradient)
    >>> method = sj.saddle(sj.dpsgd(sj.ring(2), 0.1, beta=0.0, weight_decay=0.0), half)
    >>> x = jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]
    Array([0.75, 0.75], dtype=float32)
    """

    name: str
    init: Callable[[Params], State]
    gradient: Callable[[GradientFn, Params, Batch, State, int], tuple[Params, State]]
    kinds: tuple[int, ...] = (0,)
    is_linear: bool = False
    needs: tuple[Need, ...] = ()
    cost: Callable[[int], float] | None = None

    def __post_init__(self) -> None:
        for need in self.needs:
            checks.choice("needs", need, NEEDS)
        if not self.kinds or any(not isinstance(kind, int) for kind in self.kinds):
            raise ArgumentError(f"kinds must be a tuple of integers, got {self.kinds!r}")

    def __repr__(self) -> str:
        return self.name

    @property
    def period(self) -> int:
        """The number of steps after which the kinds of steps repeat."""
        return len(self.kinds)

    def kind(self, t: int) -> int:
        """Returns the kind of step number t, counted from 0."""
        return self.kinds[checks.whole("t", t, at_least=0) % self.period]

    def keeps_state(self, x: Params) -> bool:
        """Returns whether the estimator has a state for a model x."""
        return bool(jax.tree.leaves(jax.eval_shape(self.init, x)))

    def passes(self, kind: int) -> float:
        """Returns the number of backward passes in a step of this kind, see `cost`."""
        if self.cost is not None:
            return self.cost(kind)
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
            return self.gradient(GradientFn(grad, losses, key, t), x, (), self.init(x), kind)

        model, t = {"x": jax.ShapeDtypeStruct((1,), jnp.float32)}, jax.ShapeDtypeStruct((), jnp.int32)
        jax.eval_shape(gradient, model, jax.eval_shape(jax.random.key, 0), t)
        return count

    @property
    def passes_per_step(self) -> float:
        """The number of backward passes of a step, the mean over a period: 1 for plain, 2 for SAM."""
        return sum(self.passes(kind) for kind in self.kinds) / self.period


def nothing(x: Params) -> tuple[()]:
    """Returns the empty state, for estimators without state."""
    del x
    return ()


def plain_gradient() -> GradientEstimator[tuple[()]]:
    """The gradient of the loss itself, g = grad F(x; d), in one backward pass.

    >>> sj.plain_gradient().passes_per_step
    1.0
    """
    return GradientEstimator(
        "plain()", nothing, lambda grad, x, d, state, kind: (grad(x, d), state), is_linear=True
    )


# ---- the agents' gradients ----


Scope = Literal["own", "pairs", "mean"]


class Evaluation(NamedTuple):
    """The loss at the point of the first backward pass on a batch."""

    loss: Array  # scalar, or [A]; at the perturbed point in a step that reuses a perturbation
    aux: Tree  # the auxiliary output of loss_fn; None if it returns the loss alone


GradientOutput: TypeAlias = tuple[Params, Any, Evaluation]  # gradients, the estimator's new state, own losses
Gathered: TypeAlias = tuple[Batch, Array, Array]  # neighbours' batches, their senders [A, K], weights [A, K]


class GradientInputs(NamedTuple):
    """The optional attributes of `GradientFn`: of one model, or stacked."""

    key: Key | None = None
    t: Any = None
    along: Params | None = None


class Oracle(Protocol):
    """The gradients that a step may ask for, at stacked models x [A, ...]."""

    def own(self, x: Params, along: Params | None = None) -> Params:
        """Returns every agent's gradient on its own batch, grad F_i(x_i; d_i), [A, ...].

        `along` [A, ...] is an ascent direction that the rule provides, for estimators that use one.
        """

    def pairs(self, x: Params, own: Params | None) -> Params:
        """Returns g_ij = grad F_j(x_i; d_j), [A, K, ...]; g_ii is taken at `own`, or at x if that is None."""

    def mean(self, x: Params, own: Params | None) -> Params:
        """Returns sum_j w_ij g_ij, [A, ...], where g_ij are the `pairs`."""


@dataclasses.dataclass(eq=False)
class Gradients:
    """The oracle of a real step, which evaluates the loss function on the agents' batches.

    Attributes:
      loss_fn: the loss of one agent.
      estimator: the gradient estimator of one model.
      batch: one batch per agent, stacked [A, B, ...].
      network: gathers the neighbours' batches.
      t: the number of the step, int32 [].
      states: the estimator's states, one for each call of a step, in order; each call replaces its own.
      kind: the estimator's kind of step; None decides by t inside the compiled program.
      agents_per_call: of a device's agents, how many are computed at a time; 0: see `policy.group_size`.
      evaluations: each agent's loss and aux on its own batch, one entry per call.
      calls: the kinds of gradients that were asked for, in order.
    """

    loss_fn: LossFn
    estimator: GradientEstimator[Any]
    batch: Batch
    network: Network
    t: Any
    states: list[Any]
    kind: int | None = 0
    agents_per_call: int = 0
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list)
    calls: list[Scope] = dataclasses.field(default_factory=list)

    def own(self, x: Params, along: Params | None = None) -> Params:
        """Returns every agent's gradient on its own batch, grad F_i(x_i; d_i), [A, ...]."""
        self.calls.append("own")
        inputs = self._inputs(along)
        return self._call(lambda kind, state: self._vmapped(kind)(x, self.batch, state, inputs))

    def mean(self, x: Params, own: Params | None) -> Params:
        """Returns sum_j w_ij g_ij, [A, ...], without keeping the pairs in memory."""
        self.calls.append("mean")
        if own is None and self.estimator.is_linear and policy.joins_neighbours():
            gathered = self._gathered()
            return self._call(lambda kind, state: self._gradient_of_mean(x, gathered, state))
        return self._slots(x, own, mean=True)

    def pairs(self, x: Params, own: Params | None) -> Params:
        """Returns g_ij = grad F_j(x_i; d_j), [A, K, ...]; g_ii is taken at `own`, or at x if that is None."""
        self.calls.append("pairs")
        return self._slots(x, own, mean=False)

    def _slots(self, x: Params, own: Params | None, mean: bool) -> Params:
        gathered, inputs = self._gathered(), self._inputs_of_pairs()
        return self._call(lambda kind, state: self._by_slots(x, own, gathered, inputs, kind, state, mean))

    def _gathered(self) -> Gathered:
        """Returns the neighbours' batches; gathered outside of any branch, where a network cannot be used."""
        return (*self.network.gather_batches(self.batch), self.network.weights)

    def _inputs(self, along: Params | None = None) -> GradientInputs:
        """Returns the inputs that the estimator needs, [A, ...], and None for the others."""
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
        """Returns the inputs for each pair, slot by slot, [K, A, ...]; there is no `along` for pairs."""
        inputs, slots = self._inputs(), jnp.arange(self.network.width)
        t = None if inputs.t is None else jnp.repeat(inputs.t[None], len(slots), axis=0)
        if inputs.key is None:
            return GradientInputs(t=t)
        of_slot = jax.vmap(jax.vmap(jax.random.fold_in, in_axes=(0, None)), in_axes=(None, 0))
        return GradientInputs(key=of_slot(inputs.key, slots), t=t)

    def _call(self, compute: Callable[[int, Any], GradientOutput]) -> Params:
        number = len(self.evaluations)
        state = self.states[number] if number < len(self.states) else ()
        kinds = sorted(set(self.estimator.kinds))
        if self.kind is not None or len(kinds) == 1:
            gradient, state, evaluation = compute(kinds[0] if self.kind is None else self.kind, state)
        else:
            places = jnp.array([kinds.index(kind) for kind in self.estimator.kinds])
            branches = [lambda kind=kind: compute(kind, state) for kind in kinds]
            place = places[self.t % self.estimator.period]
            gradient, state, evaluation = jax.lax.switch(place, branches)
        self.evaluations.append(evaluation)
        if number < len(self.states):
            self.states[number] = state
        return gradient

    def _vmapped(self, kind: int) -> Callable[[Params, Batch, Any, GradientInputs], GradientOutput]:
        return vmap_agents(single_model(self.loss_fn, self.estimator, kind), self.agents_per_call)

    def _gradient_of_mean(self, x: Params, gathered: Gathered, state: Any) -> GradientOutput:
        """Computes the gradient of sum_j w_ij F_j(x; d_j), one function of x, in one backward pass."""

        def mean_loss(x: Params, neighbours_data: Batch, weights: Array) -> tuple[Array, Evaluation]:
            losses, aux = jax.vmap(with_aux(self.loss_fn), in_axes=(None, 0))(x, neighbours_data)
            own = jax.tree.map(lambda leaf: leaf[0], Evaluation(losses, aux))
            return jnp.sum(losses * weights.astype(losses.dtype)), own

        def shard_fn(x: Params, gathered_batch: Batch, senders: Array, weights: Array) -> Any:
            def single(x: Params, senders: Array, weights: Array) -> Any:
                neighbours_data = jax.tree.map(lambda d: d[senders], gathered_batch)
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
        kind: int,
        state: Any,
        mean: bool,
    ) -> GradientOutput:
        """Loops over the K slots, all agents at once, so that one gradient per agent is in memory."""
        gradient = self._vmapped(kind)

        def shard_fn(
            x: Params,
            own: Params | None,
            gathered_batch: Batch,
            senders: Array,
            weights: Array,
            inputs: GradientInputs,
            state: Any,
        ) -> GradientOutput:
            def visit(total: Params | None, slot: Any) -> tuple[Params | None, Any]:
                models, slot_senders, shares, inputs, state = slot
                neighbours_data = jax.tree.map(lambda d: d[slot_senders], gathered_batch)
                model = x if models is None else models
                g, state, evaluation = gradient(model, neighbours_data, state, inputs)
                if mean:
                    return jax.tree.map(jnp.add, total, scale_slices(g, shares)), (None, state, evaluation)
                return None, (g, state, evaluation)

            total = zeros_like(x) if mean else None
            slots = (None, senders.T, weights.T, _swap_leading(inputs), _swap_leading(state))
            if own is None:
                total, (g, state, evaluation) = jax.lax.scan(visit, total, slots)
            else:  # the first slot, the agent itself, is evaluated at another model
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
    """The oracle of an abstract step, which returns zeros and records the calls."""

    slots: int  # K
    calls: list[Scope] = dataclasses.field(default_factory=list)

    def own(self, x: Params, along: Params | None = None) -> Params:
        """Records the call and returns zeros [A, ...]."""
        del along
        self.calls.append("own")
        return zeros_like(x)

    def mean(self, x: Params, own: Params | None) -> Params:
        """Records the call and returns zeros [A, ...]."""
        del own
        self.calls.append("mean")
        return zeros_like(x)

    def pairs(self, x: Params, own: Params | None) -> Params:
        """Records the call and returns zeros [A, K, ...]."""
        del own
        self.calls.append("pairs")
        return zeros_of_pairs(x, self.slots)


@dataclasses.dataclass(eq=False)
class FixedGradients:
    """The oracle of an optax transform, which returns gradients [A, ...] that were taken before the step.

    Attributes:
      gradients: one gradient per agent [A, ...].
      x: the models [A, ...] that they were taken at; any other point raises an error.
      name: the method's name, for errors.
    """

    gradients: Params
    x: Params
    name: str
    states: list[Any] = dataclasses.field(default_factory=list)
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list)
    calls: list[Scope] = dataclasses.field(default_factory=list)

    def own(self, x: Params, along: Params | None = None) -> Params:
        """Returns the gradients; an error at other models than the step's, or at a second call."""
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
    loss_fn: LossFn, estimator: GradientEstimator[Any], kind: int
) -> Callable[[Params, Batch, Any, GradientInputs], GradientOutput]:
    """Returns the gradient function of one model: (x, d, state, inputs) -> (gradient, state, evaluation)."""
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

        g, state = estimator.gradient(GradientFn(grad, losses, *inputs), x, d, state, kind)
        if not evaluations:
            raise ArgumentError(
                f"estimator {estimator} must take at least one gradient, got none in kind {kind}"
            )
        return g, state, evaluations[0]

    return gradient


def with_aux(loss_fn: LossFn) -> Callable[[Params, Batch], tuple[Array, Any]]:
    """Wraps loss_fn so that it returns (loss, aux); aux is None if it returns the loss alone."""

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
    estimator: GradientEstimator[Any], x: Params, calls: Sequence[Scope], slots: int
) -> tuple[Any, ...]:
    """Returns the estimator's initial states: [A, ...] for own gradients, [A, K, ...] for pairs."""

    def of_scope(scope: Scope) -> Tree:
        states = jax.vmap(estimator.init)(x)
        if scope == "own":
            return states
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], slots, axis=1), states)

    one = jax.tree.map(lambda leaf: leaf[0], x)
    return tuple(of_scope(scope) for scope in calls) if estimator.keeps_state(one) else ()


def _swap_leading(tree: Tree) -> Tree:
    """Swaps the two leading axes of every leaf: [K, A, ...] becomes [A, K, ...] and vice versa."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)
