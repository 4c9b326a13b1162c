"""The invariants of gradient estimators, for a single model and within a method."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.registry import parameters_of
from saddle_jax.base.types import Array, Params
from saddle_jax.core.gradients import GradientEstimator, GradientFn
from saddle_jax.core.method import Method
from saddle_jax.methods.ngm import ngm
from saddle_jax.methods.saddle import saddle
from saddle_jax.testing import methods, trial
from saddle_jax.testing.invariants import InapplicableError, InvariantError, Result, results_of, verify

_RADIUS = 0.25


@dataclasses.dataclass(eq=False)
class EstimatorTrial:
    """The estimator under test, made by `factory(**options)`."""

    factory: Callable[..., GradientEstimator[Any]]
    options: dict[str, Any]

    @functools.cached_property
    def estimator(self) -> GradientEstimator[Any]:
        """The estimator under test."""
        return self.make()

    def make(self, **options: Any) -> GradientEstimator[Any]:
        """Makes the estimator with some options changed."""
        estimator = self.factory(**{**self.options, **options})
        if not isinstance(estimator, GradientEstimator):
            raise InvariantError(f"the factory must return a GradientEstimator, got {estimator!r:.80}")
        return estimator

    @functools.cached_property
    def radius(self) -> str:
        """The name of the first option if it is a radius, as for most estimators; "" otherwise."""
        first = next(iter(parameters_of(self.factory)), "")
        return first if first.startswith("rho") else ""


def check_gradient(
    factory: Callable[..., GradientEstimator[Any]],
    options: dict[str, Any] | None = None,
    *,
    tell: Callable[[str], None] | None = None,
) -> list[Result]:
    """Checks every invariant of the estimator that `factory(**options)` makes.

    Invariants of a step are checked within NGM, which computes gradients for each pair of neighbours.
    """
    on_trial = EstimatorTrial(factory, options or {})

    def with_gradient(topology: Any, learning_rate: Any) -> Method:
        return saddle(ngm(topology, learning_rate), on_trial.estimator)

    with jax.enable_x64(True):
        results = results_of(INVARIANTS, on_trial, tell, gates=1)
        if results[0].status == "fails":
            return verify(results)
    step = trial.Trial(with_gradient, {})
    return verify(results + methods.step_results(step, _OF_A_STEP, tell))


def gradients_and_states_keep_their_shapes_in_every_kind_of_step(on_trial: EstimatorTrial) -> str:
    """Checks that an estimator returns a gradient like the model and a state like the one it got."""
    estimator, model = on_trial.estimator, _model()
    state = estimator.init(model)
    for kind in estimator.kinds:
        gradient, after = estimator.gradient(_plain(), model, jnp.ones(3), state, kind)
        for what, old, new in (("the gradient", model, gradient), ("the state", state, after)):
            expected, got = ([(x.shape, x.dtype) for x in jax.tree.leaves(tree)] for tree in (old, new))
            if expected != got:
                raise InvariantError(f"{what} of kind {kind} must have shapes like {expected}, got {got}")
        if estimator.passes(kind) < 1:
            raise InvariantError(f"kind {kind} counts {estimator.passes(kind)} backward passes")
    return f"{estimator.passes_per_step:g} backward passes in a step"


def a_gradient_that_vanishes_stays_zero(on_trial: EstimatorTrial) -> str:
    """Checks that nothing is divided by a norm of zero, so that a minimum is a fixed point."""
    estimator, model = on_trial.estimator, {"x": jnp.ones(3)}
    state = estimator.init(model)
    for kind in estimator.kinds:
        gradient, state = estimator.gradient(_plain(), model, jnp.ones(3), state, kind)
        finite = all(np.isfinite(x).all() for x in jax.tree.leaves(state))
        if np.asarray(gradient["x"]).any() or not finite:
            raise InvariantError(
                f"at a minimum kind {kind} gives the gradient {gradient['x']} and state {state}"
            )
    return f"in {estimator.period} kinds"


def a_radius_of_zero_is_the_plain_gradient(on_trial: EstimatorTrial) -> str:
    """Checks a traced radius: in one program, zero gives the plain gradient and another value does not."""
    if not on_trial.radius:
        raise InapplicableError("its first option is no radius rho")

    def descent(radius: Any) -> Array:
        """Returns the models [T, 3] of two periods, because the initial state is empty."""
        estimator = on_trial.make(**{on_trial.radius: radius})
        model, state, models = _model(), estimator.init(_model()), []
        for t in range(2 * estimator.period):
            gradient, state = estimator.gradient(_plain(), model, jnp.ones(3), state, estimator.kind(t))
            model = jax.tree.map(lambda x, g: x - 0.1 * g, model, gradient)
            models.append(model["x"])
        return jnp.stack(models)

    none, some = trial.compiled(jax.vmap(descent))(jnp.array([0.0, _RADIUS]))
    model, plain = _model(), []
    for _ in none:
        model = jax.tree.map(lambda x, g: x - 0.1 * g, model, _plain()(model, jnp.ones(3)))
        plain.append(model["x"])
    if (gap := trial.distance(none, jnp.stack(plain))) > 1e-12:
        raise InvariantError(f"with {on_trial.radius} 0 it is {gap:.1e} away from plain descent")
    if (gap := trial.distance(some, descent(_RADIUS))) > 1e-12:
        raise InvariantError(f"with {on_trial.radius} swept it is {gap:.1e} away from the same alone")
    if (gap := trial.distance(some, none)) < 1e-4:
        raise InvariantError(f"with {on_trial.radius} {_RADIUS} it is plain descent too")
    return f"with {on_trial.radius} {_RADIUS} it is {gap:.1e} away"


def _model() -> Params:
    return {"x": jnp.arange(3.0)}


def _loss(params: Params, batch: Array) -> Array:
    return jnp.sum(jnp.sin(params["x"] - batch) ** 2)


def _losses(params: Params, batch: Array) -> Array:
    return jax.vmap(lambda sample: _loss(params, sample[None]))(batch)


def _plain() -> GradientFn:
    """Returns the gradient function with all inputs that an estimator may use."""
    return GradientFn(jax.grad(_loss), _losses, jax.random.key(0), jnp.int32(3))


INVARIANTS = (
    gradients_and_states_keep_their_shapes_in_every_kind_of_step,
    a_gradient_that_vanishes_stays_zero,
    a_radius_of_zero_is_the_plain_gradient,
)
_OF_A_STEP = (
    methods.every_leaf_of_a_state_is_of_agents_of_pairs_or_a_scalar,
    methods.a_step_keeps_shapes_and_dtypes,
    methods.a_second_step_does_not_compile_again,
    methods.a_run_that_was_stopped_goes_on_the_same_bit_for_bit,
    methods.every_random_number_follows_from_the_step,
    methods.what_the_network_does_not_deliver_does_not_arrive,
    methods.permuting_the_agents_permutes_the_result,
    methods.four_devices_give_the_same_numbers,
    methods.idle_agents_change_nothing,
    methods.only_rows_that_the_graph_asks_for_cross_devices,
    methods.replicas_run_in_one_program_with_a_learning_rate_each,
)
