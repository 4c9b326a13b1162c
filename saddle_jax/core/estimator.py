"""How the gradient of ONE model is taken: plainly, or after a climb, as sharpness-aware methods do.

An estimator knows nothing of agents. `gradient` is handed the plain gradient function of the loss and calls
it as often as it likes; `saddle_jax.sam` has one short file for each kind.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, Literal

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.about import About
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Batch, Key, Params, State

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
