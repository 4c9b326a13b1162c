"""The sharpness-aware gradient of one model on one batch (Foret et al., 2021).

Lines 2 and 4 of the paper's Algorithm 1:

    g  = grad F(x; d)
    g~ = grad F(x + xi; d),    xi = rho g / ||g||

The norm runs over all parameters of the model, and both passes see the same mini-batch. Nothing
here knows of agents: `gradients.py` lifts these functions over them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from saddle_jax import checks
from saddle_jax.trees import agent_norms
from saddle_jax.types import Array, Batch, LossFn, Params

# Keeps xi finite where the gradient vanishes.
_NORM_FLOOR = 1e-12


class Evaluation(NamedTuple):
    """What the first backward pass on a batch saw."""

    loss: Array  # scalar; at the perturbed point in a step that reuses a perturbation
    aux: Any  # what loss_fn returned beside the loss; None if nothing


@dataclasses.dataclass(frozen=True)
class Ascent:
    """How SAM climbs before it descends.

    Attributes:
      rho: radius of the perturbation, >= 0; 0 is the plain gradient.
      every: climb at each `every`-th step only; 5 is the paper's compute-efficient variant.
      reuse: in the steps between, False takes the plain gradient, True perturbs with the last xi.
    """

    rho: Any = 0.0
    every: int = 1
    reuse: bool = False

    def __post_init__(self):
        checks.real("rho", self.rho, at_least=0.0)
        checks.whole("ascent_every", self.every, at_least=1)

    @property
    def is_plain(self) -> bool:
        """Whether no step ever climbs. A traced rho may turn out to be anything, so it climbs."""
        return not isinstance(self.rho, jax.core.Tracer) and float(self.rho) == 0.0

    @property
    def keeps_perturbation(self) -> bool:
        """Whether xi has to be remembered from one step to the next."""
        return self.reuse and self.every > 1 and not self.is_plain


def perturbation(gradient: Params, rho: Any) -> Params:
    """xi = rho g / (||g|| + 1e-12), the norm over all tensors of one model."""
    scale = rho / (agent_norms(gradient, axes=0) + _NORM_FLOOR)
    return jax.tree.map(lambda g: (scale * g).astype(g.dtype), gradient)


def sam_gradient(
    loss_fn: LossFn, ascent: Ascent, climbs: bool
) -> Callable[[Params, Batch, Params | None], tuple[Params, Params | None, Evaluation]]:
    """The gradient function of one model, for a step that climbs or for one between climbs.

    Returns:
      (x, d, last_xi) -> (gradient, xi, evaluation). xi is passed on from step to step if `ascent`
      keeps it, and is None otherwise.
    """
    value_and_grad = jax.value_and_grad(with_aux(loss_fn), has_aux=True)
    climbs = climbs and not ascent.is_plain

    def gradient(x: Params, d: Batch, last_xi: Params | None):
        if not climbs:
            point = x if last_xi is None else optax.apply_updates(x, last_xi)
            (loss, aux), g = value_and_grad(point, d)
            return g, last_xi, Evaluation(loss, aux)
        (loss, aux), g = value_and_grad(x, d)  # line 2
        xi = perturbation(g, ascent.rho)
        _, g_tilde = value_and_grad(optax.apply_updates(x, xi), d)  # line 4
        return g_tilde, xi if ascent.keeps_perturbation else None, Evaluation(loss, aux)

    return gradient


def with_aux(loss_fn: LossFn) -> Callable[[Params, Batch], tuple[Array, Any]]:
    """loss_fn in one form: (loss, aux), aux None where it returns the loss alone."""

    def loss_and_aux(params: Params, batch: Batch) -> tuple[Array, Any]:
        result = loss_fn(params, batch)
        loss, aux = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        if jnp.shape(loss) != ():
            raise ValueError(
                "loss_fn must return the scalar loss of one agent, or (loss, aux), "
                f"got a loss of shape {jnp.shape(loss)}"
            )
        return loss, aux

    return loss_and_aux
