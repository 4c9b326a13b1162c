"""ASAM (Kwon et al., ICML 2021): SAM with a perturbation in proportion to the size of each parameter.

    g  = grad F(x; d)
    g~ = grad F(x + xi; d),    xi = rho T^2 g / ||T g||

T is |x| + eta at weights and 1 at all other parameters, elementwise. The norm is over all parameters of the
model. So the sharpness is invariant to rescalings of the weights that leave the network's function unchanged.
"""

from typing import Any

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.types import About, Batch, Params
from saddle_jax.core.gradients import GradientEstimator, GradientFn, nothing, plain_gradient
from saddle_jax.core.trees import layer_names, tree_map
from saddle_jax.sam.sam import perturbation

ABOUT = About("Kwon et al., ICML 2021")

# The authors' code selects parameters named "weight" in torch; these are flax's names for them. A
# normalisation's "scale" is one: torch calls it "weight" too.
WEIGHTS = ("weight", "kernel", "embedding", "scale")


def asam(rho: Any = 0.5, eta: Any = 0.01) -> GradientEstimator[tuple[()]]:
    """The gradient of adaptive SAM, in two backward passes.

    A parameter is a weight if its own name contains "weight", "kernel", "embedding" or "scale". In a model
    without any of these names, all arrays with two axes or more are weights.

    Args:
      rho: radius of the perturbation, >= 0, in units of the parameters; 0 is the plain gradient. It is about
        ten times as large as SAM's: the authors use 0.5 for CIFAR-10 and 1 for CIFAR-100.
      eta: added to |x|, >= 0, so that small weights are perturbed too.

    >>> sj.saddle(sj.qgm(sj.ring(10), 0.1), sj.asam(0.5)).gradient
    asam(rho=0.5, eta=0.01)
    """
    rho = checks.real("rho", rho, at_least=0.0)
    eta = checks.real("eta", eta, at_least=0.0)
    if isinstance(rho, float) and rho == 0.0:
        return plain_gradient()

    def gradient(
        grad: GradientFn, x: Params, d: Batch, state: tuple[()], kind: int
    ) -> tuple[Params, tuple[()]]:
        g = grad(x, d)
        scale = tree_map(lambda x, weighs: jnp.abs(x) + eta if weighs else jnp.ones_like(x), x, weights(x))
        xi = tree_map(jnp.multiply, scale, perturbation(tree_map(jnp.multiply, scale, g), rho))
        return grad(tree_map(jnp.add, x, xi), d), state

    return GradientEstimator(f"asam(rho={rho}, eta={eta})", nothing, gradient)


def weights(x: Params) -> Any:
    """Returns whether each parameter of one model [...] is a weight: a tree of Python booleans."""
    leaves, structure = jax.tree.flatten(x)
    names = [name.rsplit("/", 1)[-1].lower() for name in layer_names(x)]
    named = [any(word in name for word in WEIGHTS) for name in names]
    return jax.tree.unflatten(structure, named if any(named) else [leaf.ndim >= 2 for leaf in leaves])
