"""LESAM (after Fan et al., ICML 2024): SAM in one backward pass, along the direction of the last movement.

    g~ = grad F(x + xi; d),    xi = rho v / ||v||

v points uphill and costs nothing. FedLESAM takes the last update of the server, v = x_old - x_new. Among
neighbours there is no server. A rule that estimates the global direction hands it over: QGM has m-hat. In all
others v is the agent's own last movement, x_{t-1} - x_t. The norm runs over all parameters of the model.
Without a direction, as in the first step, xi is zero.
"""

from typing import Any

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.about import About
from saddle_jax.base.types import Batch, Params
from saddle_jax.core.gradients import GradientEstimator, GradientFn, plain_gradient
from saddle_jax.core.trees import tree_map
from saddle_jax.sam.sam import perturbation

ABOUT = About("Fan et al., ICML 2024")


def lesam(rho: Any = 0.1) -> GradientEstimator[Any]:
    """Takes the gradient after a climb back along the last way, in one backward pass.

    It remembers the last model; of each pair, where neighbours' gradients are asked for.

    Args:
      rho: radius of the perturbation, >= 0; 0 is the plain gradient.

    >>> sj.lesam(0.1).passes_per_step
    1.0
    """
    rho = checks.real("rho", rho, at_least=0.0)
    if isinstance(rho, float) and rho == 0.0:
        return plain_gradient()

    def init(x: Params) -> Params:
        return jax.tree.map(jnp.copy, x)  # whoever donates models and states must not do it twice

    def gradient(grad: GradientFn, x: Params, d: Batch, last_x: Params, phase: int) -> tuple[Params, Params]:
        v = tree_map(jnp.subtract, last_x, x) if grad.along is None else grad.along
        return grad(tree_map(jnp.add, x, perturbation(v, rho)), d), x

    return GradientEstimator(f"lesam(rho={rho})", init, gradient, needs=("along",))
