"""LESAM (after Fan et al., ICML 2024): SAM in one backward pass, along the direction of the last update.

    g~ = grad F(x + xi; d),    xi = rho v / ||v||

v is an ascent direction that costs no gradient. FedLESAM uses the last update of the server,
v = x_old - x_new. Without a server, v is the rule's estimate of the global direction, if it has one, such as
m-hat of QGM, and otherwise the agent's own last update, x_{t-1} - x_t. The norm is over all parameters of the
model. Without a direction, as in the first step, xi is zero.
"""

from typing import Any

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.types import About, Batch, Params
from saddle_jax.core.gradients import GradientEstimator, GradientFn, plain_gradient
from saddle_jax.core.trees import tree_map
from saddle_jax.sam.sam import perturbation

ABOUT = About("Fan et al., ICML 2024")


def lesam(rho: Any = 0.1) -> GradientEstimator[Any]:
    """The gradient at a point back along the last update, in one backward pass.

    Its state is the last model, one for each pair where a method asks for cross-gradients.

    Args:
      rho: radius of the perturbation, >= 0; 0 is the plain gradient.

    >>> sj.lesam(0.1).passes_per_step
    1.0
    """
    rho = checks.real("rho", rho, at_least=0.0)
    if isinstance(rho, float) and rho == 0.0:
        return plain_gradient()

    def init(x: Params) -> Params:
        return jax.tree.map(jnp.copy, x)  # models and state may be donated, and no array twice

    def gradient(grad: GradientFn, x: Params, d: Batch, last_x: Params, kind: int) -> tuple[Params, Params]:
        v = tree_map(jnp.subtract, last_x, x) if grad.along is None else grad.along
        return grad(tree_map(jnp.add, x, perturbation(v, rho)), d), x

    return GradientEstimator(f"lesam(rho={rho})", init, gradient, needs=("along",))
