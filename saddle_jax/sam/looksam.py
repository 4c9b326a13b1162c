"""LookSAM (Liu et al., CVPR 2022): SAM in every k-th step, whose orthogonal part the steps between reuse.

    t % k = 0:   g~ = grad F(x + rho g / ||g||; d),   and keep   g_v = g~ - <g~, g^> g^,   g^ = g / ||g||
    otherwise:   g~ = g + alpha ||g|| / ||g_v|| g_v

g = grad F(x; d). The part of SAM's gradient that is orthogonal to g changes slowly, so the steps between
reuse it. Norms and products are over all parameters of the model, as printed, and not per tensor.
"""

from typing import Any

import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.types import About, Batch, Params
from saddle_jax.core.gradients import GradientEstimator, GradientFn, nothing, plain_gradient
from saddle_jax.core.trees import agent_norms, tree_map, zeros_like
from saddle_jax.sam.projection import orthogonal
from saddle_jax.sam.sam import perturbation

ABOUT = About("Liu et al., CVPR 2022")

_CLIMBS, _BETWEEN = 0, 1


def looksam(rho: Any = 0.1, every: int = 5, alpha: Any = 0.7) -> GradientEstimator[Any]:
    """SAM's gradient in every k-th step; in the others the plain one plus SAM's last orthogonal part.

    It costs 1 + 1 / k backward passes, and its state is one vector of the model's size.

    Args:
      rho: radius of the perturbation, >= 0; 0 is the plain gradient.
      every: k, use SAM's gradient in every k-th step, from the first on; 1 is `sj.sam`.
      alpha: coefficient of the reused direction, >= 0; 0 is `sj.sam(rho, every)`.

    >>> sj.looksam(every=5).passes_per_step
    1.2
    """
    rho = checks.real("rho", rho, at_least=0.0)
    every = checks.whole("every", every, at_least=1)
    alpha = checks.real("alpha", alpha, at_least=0.0)
    if isinstance(rho, float) and rho == 0.0:
        return plain_gradient()
    init: Any = zeros_like if every > 1 else nothing

    def gradient(grad: GradientFn, x: Params, d: Batch, g_v: Any, kind: int) -> tuple[Params, Any]:
        g = grad(x, d)
        if kind == _BETWEEN:
            return tree_map(jnp.add, g, _of_length(alpha * agent_norms(g, axes=0), g_v)), g_v
        g_tilde = grad(tree_map(jnp.add, x, perturbation(g, rho)), d)
        if every == 1:
            return g_tilde, g_v
        # A traced rho may be zero: g_v is then zero, whatever rounding leaves.
        return g_tilde, tree_map(lambda v: jnp.where(rho > 0, v, 0), orthogonal(g_tilde, g))

    kinds = (_CLIMBS, *[_BETWEEN] * (every - 1))
    return GradientEstimator(f"looksam(rho={rho}, every={every}, alpha={alpha})", init, gradient, kinds)


def _of_length(length: Any, vector: Params) -> Params:
    """Scales one model's vector [...] to this norm; a zero stays zero."""
    norm = agent_norms(vector, axes=0)
    scale = jnp.where(norm > 0, length / jnp.where(norm > 0, norm, 1), 0)
    return tree_map(lambda v: scale * v, vector)
