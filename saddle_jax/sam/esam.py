"""ESAM (Du et al., ICLR 2022): SAM that perturbs some of the tensors and descends on some of the samples.

    g  = grad F(x; d)
    xi = (rho / beta) M g / ||M g||,    M is 1 on each tensor with probability beta, and 0 otherwise
    g~ = grad F(x + xi; d+),            d+ the int(gamma B) samples of d whose loss rose most from x to x + xi

The norm is over all tensors that M selects. The losses take two forward passes, which are not counted as
backward passes but take about the time that gamma = 1/2 saves. The authors' code drops one of the
int(gamma B) samples by a strict comparison; here there are exactly int(gamma B), and at least one.
"""

from collections.abc import Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import About, Array, Batch, Key, Params
from saddle_jax.core.gradients import GradientEstimator, GradientFn, nothing, plain_gradient
from saddle_jax.core.trees import tree_map
from saddle_jax.sam.sam import perturbation

ABOUT = About("Du et al., ICLR 2022")


def esam(rho: Any = 0.05, beta: Any = 0.6, gamma: float = 0.5) -> GradientEstimator[tuple[()]]:
    """The gradient of efficient SAM, in 1 + gamma backward passes. It draws random numbers.

    If a batch is a dict with "mask" [B], as those of images are, samples whose mask is zero are ignored:
    int(gamma n) of the n others are selected.

    Args:
      rho: radius of the perturbation, >= 0; 0 is the plain gradient.
      beta: the probability in (0, 1] with which a tensor is perturbed.
      gamma: the fraction of a batch in (0, 1] for the second gradient; beta = gamma = 1 is `sj.sam`.

    >>> sj.esam(0.05, gamma=0.5).passes_per_step
    1.5
    """
    rho = checks.real("rho", rho, at_least=0.0)
    beta = checks.real("beta", beta, above=0.0, at_most=1.0)
    gamma = checks.real("gamma", gamma, above=0.0, at_most=1.0)
    if not isinstance(gamma, float):
        raise ArgumentError(f"gamma must be a number when a step is compiled, it is a shape, got {gamma!r}")
    if isinstance(rho, float) and rho == 0.0:
        return plain_gradient()
    name = f"esam(rho={rho}, beta={beta}, gamma={gamma})"

    def gradient(
        grad: GradientFn, x: Params, d: Batch, state: tuple[()], kind: int
    ) -> tuple[Params, tuple[()]]:
        g, key = grad(x, d), cast(Key, grad.key)  # the step has checked that there is a key
        xi = perturbation(some_tensors(g, key, beta), rho / beta)
        above = tree_map(jnp.add, x, xi)
        if gamma == 1.0:
            return grad(above, d), state
        _check_samples(name, d)
        g_tilde = grad(above, rising(d, grad.losses(above, d) - grad.losses(x, d), gamma))
        # A traced rho may be zero, which is the plain gradient of all samples.
        return tree_map(lambda g_tilde, g: jnp.where(rho > 0, g_tilde, g), g_tilde, g), state

    return GradientEstimator(name, nothing, gradient, needs=("key",), cost=lambda kind: 1 + gamma)


def some_tensors(g: Params, key: Key, beta: Any) -> Params:
    """Keeps each tensor of one model's gradient [...] with probability beta and puts zeros elsewhere."""
    leaves, structure = jax.tree.flatten(g)
    kept = jax.random.bernoulli(key, beta, (len(leaves),))
    return tree_map(lambda g, keep: jnp.where(keep, g, 0), g, jax.tree.unflatten(structure, list(kept)))


def rising(d: Batch, rise: Array, gamma: float) -> Batch:
    """Selects the int(gamma B) samples of one batch [B, ...] with the largest `rise` [B] of the loss."""
    size = len(rise)
    # int(gamma n) for every n, in Python's double precision, whatever that of the program is.
    count = [max(1, int(gamma * n)) for n in range(size + 1)]
    mask = d.get("mask") if isinstance(d, Mapping) else None
    if mask is None or jnp.ndim(mask) != 1:
        return _rows(d, jax.lax.top_k(rise, count[size])[1])
    chosen = jax.lax.top_k(jnp.where(mask > 0, rise, -jnp.inf), count[size])[1]
    first = jnp.arange(len(chosen)) < jnp.array(count)[jnp.sum(mask > 0)]
    rows = _rows(d, chosen)
    return {**rows, "mask": jnp.where(first, rows["mask"], 0)}


def _rows(d: Batch, chosen: Array) -> Any:
    return jax.tree.map(lambda leaf: jnp.take(leaf, chosen, axis=0), d)


def _check_samples(name: str, d: Batch) -> None:
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(d)]
    if not all(shapes) or len({shape[0] for shape in shapes}) != 1:
        raise ArgumentError(f"batch must have samples for {name}, [B, ...] of each agent, got {shapes}")
