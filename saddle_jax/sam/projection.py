"""The part of one gradient that is orthogonal to another."""

import jax
import jax.numpy as jnp

from saddle_jax.base.types import Params
from saddle_jax.core.trees import agent_norms, inner_products, tree_map

# The difference of two parallel vectors is rounding error, which must not be taken for a direction.
_ROUNDING = 8


def orthogonal(u: Params, v: Params) -> Params:
    """Returns u - <u, v> v / ||v||^2, the products over all tensors of one model [...]; u if v is zero.

    The result is exactly zero if u and v are parallel up to rounding.
    """
    square = inner_products(v, v, axes=0)
    share = jnp.where(square > 0, inner_products(u, v, axes=0) / jnp.where(square > 0, square, 1), 0)
    rest = tree_map(lambda u, v: u - share * v, u, v)
    precision = max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(u))  # type: ignore[no-untyped-call]
    is_more = agent_norms(rest, axes=0) > _ROUNDING * precision * agent_norms(u, axes=0)
    return tree_map(lambda rest: jnp.where(is_more, rest, 0), rest)
