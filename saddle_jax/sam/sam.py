"""SAM (Foret et al., 2021): descend along the gradient at the worst point nearby.

Lines 2 and 4 of SADDLe's Algorithm 1:

    g  = grad F(x; d)
    g~ = grad F(x + xi; d),    xi = rho g / ||g||

The norm is over all parameters of the model, and both passes use the same mini-batch.
"""

from typing import Any

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.types import About, Batch, Params
from saddle_jax.core.gradients import GradientEstimator, GradientFn, nothing, plain_gradient
from saddle_jax.core.trees import agent_norms, tree_map

ABOUT = About("Foret et al., ICLR 2021")

# Keeps xi finite if the gradient is zero.
_NORM_FLOOR = 1e-12
_CLIMBS, _BETWEEN = 0, 1


def sam(rho: Any = 0.05, every: int = 1, reuse: bool = False) -> GradientEstimator[Any]:
    """The sharpness-aware gradient, in two backward passes.

    Args:
      rho: radius of the perturbation, >= 0; 0 is the plain gradient. The default is that of the paper's
        experiments, as are those of `sj.dpsgd`.
      every: perturb in every N-th step only, from the first on; 5 is the paper's compute-efficient variant,
        which costs 6 backward passes in 5 steps instead of 10.
      reuse: in the steps between, False takes the plain gradient (the paper mentions no reuse), True perturbs
        with the last xi again.

    >>> sj.sam(0.05, every=5).passes_per_step
    1.2
    >>> sj.saddle(sj.dpsgd(sj.ring(10), 0.1), sj.sam(0.05)).gradient
    sam(rho=0.05)
    """
    rho = checks.real("rho", rho, at_least=0.0)
    every = checks.whole("every", every, at_least=1)
    checks.instance("reuse", reuse, bool, "True")
    if isinstance(rho, float) and rho == 0.0:
        return plain_gradient()
    remembers = reuse and every > 1

    def init(x: Params) -> Any:
        return jax.tree.map(jnp.zeros_like, x) if remembers else nothing(x)

    def gradient(grad: GradientFn, x: Params, d: Batch, last_xi: Any, kind: int) -> tuple[Params, Any]:
        if kind == _BETWEEN:
            return grad(tree_map(jnp.add, x, last_xi) if remembers else x, d), last_xi
        g = grad(x, d)  # line 2
        xi = perturbation(g, rho)
        g_tilde = grad(tree_map(jnp.add, x, xi), d)  # line 4
        return g_tilde, xi if remembers else last_xi

    options = f", every={every}" * (every > 1) + ", reuse=True" * remembers
    kinds = (_CLIMBS, *[_BETWEEN] * (every - 1))
    return GradientEstimator(f"sam(rho={rho}{options})", init, gradient, kinds)


def perturbation(gradient: Params, rho: Any) -> Params:
    """Returns xi = rho g / (||g|| + 1e-12), the norm taken over all tensors of one model [...]."""
    scale = rho / (agent_norms(gradient, axes=0) + _NORM_FLOOR)
    return tree_map(lambda g: scale * g, gradient)
