"""GSAM (Zhuang et al., ICLR 2022): SAM that also reduces the gap between the perturbed and the plain loss.

    g   = grad F(x; d)
    g_p = grad F(x + rho_t g / ||g||; d)
    g~  = g_p - alpha (g - <g, g_p^> g_p^),    g_p^ = g_p / ||g_p||
    rho_t = rho_min + (rho_max - rho_min) (eta_t - eta_min) / (eta_max - eta_min)

To first order, a step along the part of g that is orthogonal to g_p raises the plain loss and leaves the
perturbed one unchanged. Norms and products are over all parameters of the model. The perturbation is not
adaptive.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import About, Batch, Params
from saddle_jax.core.gradients import GradientEstimator, GradientFn, nothing, plain_gradient
from saddle_jax.core.trees import tree_map
from saddle_jax.sam.projection import orthogonal
from saddle_jax.sam.sam import perturbation

ABOUT = About("Zhuang et al., ICLR 2022")


def gsam(
    rho_max: Any = 0.1, rho_min: Any = 0.02, alpha: Any = 0.4, share: Callable[[Any], Any] | None = None
) -> GradientEstimator[tuple[()]]:
    """The gradient of GSAM, in two backward passes.

    Args:
      rho_max: radius of the perturbation at the largest learning rate, >= 0; 0 is the plain gradient. The
        authors' JAX code has 0.6, 0.1 and 0.6, for vision transformers: too much for small networks.
      rho_min: radius at the smallest learning rate, in [0, rho_max]; used with `share` only.
      alpha: coefficient of the orthogonal part that is subtracted, >= 0; 0 is `sj.sam(rho_max)`.
      share: a function of the step t, (eta_t - eta_min) / (eta_max - eta_min) in [0, 1]: the position of the
        learning rate between its smallest and largest value. None is 1: the radius stays rho_max.

    >>> sj.gsam(0.1, 0.05, share=optax.cosine_decay_schedule(1.0, 1000))
    gsam(rho_max=0.1, rho_min=0.05, alpha=0.4)
    """
    rho_max = checks.real("rho_max", rho_max, at_least=0.0)
    rho_min = checks.real("rho_min", rho_min, at_least=0.0)
    alpha = checks.real("alpha", alpha, at_least=0.0)
    if share is not None and not callable(share):
        raise ArgumentError(f"share must be a function of the step t, or None, got {share!r}")
    known = isinstance(rho_max, float) and isinstance(rho_min, float)
    if share is not None and known and rho_min > rho_max:
        raise ArgumentError(f"rho_min must be at most rho_max = {rho_max}, got {rho_min}")
    if isinstance(rho_max, float) and rho_max == 0.0:
        return plain_gradient()

    def gradient(
        grad: GradientFn, x: Params, d: Batch, state: tuple[()], kind: int
    ) -> tuple[Params, tuple[()]]:
        rho = rho_max if share is None else rho_min + (rho_max - rho_min) * share(grad.t)
        g = grad(x, d)
        g_p = grad(tree_map(jnp.add, x, perturbation(g, rho)), d)
        return tree_map(lambda g_p, h: g_p - alpha * h, g_p, orthogonal(g, g_p)), state

    name = f"gsam(rho_max={rho_max}, rho_min={rho_min}, alpha={alpha})"
    return GradientEstimator(name, nothing, gradient, needs=() if share is None else ("t",))
