"""The quadratic program of CGA, solved exactly for a few unknowns by enumerating all active sets.

    minimise  1/2 v'Gv + b'v   subject to   v >= margin,       G positive definite [k, k]

With u = v - margin and c = b + G margin, u is the solution where y = G u + c has

    u >= 0,   y >= 0,   u_i y_i = 0 for all i.

So u_i = 0 or y_i = 0 for each i, and all 2^k choices are tried at once. One pivot exchanges u_i and y_i in
the system y = G u + c (Cottle, Dantzig, 1968); doubling the list of systems for each i takes 2^(k+1) pivots
for all. With rounding errors several choices may satisfy the conditions, or none: the one that violates them
least is taken.
"""
# ruff: noqa: N803, N806 (G is the program's name)

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array

MOST_UNKNOWNS = 8  # 256 systems of 8 equations for each agent and tensor


@jax.jit  # one program for all tensors: their number of neighbours is the same
def solve(G: Array, b: Array, margin: Any) -> Array:
    """Returns the v [..., k] that minimises 1/2 v'Gv + b'v over v >= margin; G is [..., k, k], b [..., k].

    >>> from saddle_jax.methods.cga_program import solve
    >>> solve(jnp.eye(2), jnp.array([-3.0, 1.0]), margin=0.5)
    Array([3. , 0.5], dtype=float32)
    """
    unknowns = b.shape[-1]
    # Tensors differ by orders of magnitude: with a unit diagonal their errors are comparable.
    scale = jnp.sqrt(jnp.diagonal(G, axis1=-2, axis2=-1))
    c = (b + margin * G.sum(axis=-1)) / scale
    G = G / (scale[..., :, None] * scale[..., None, :])
    constants = _all_pivots(G, c)
    chosen = jnp.broadcast_to(_chosen(unknowns), constants.shape)
    u = jnp.where(chosen, jnp.maximum(constants, 0), 0)  # [..., 2^k, k]
    y = jnp.einsum("...ij,...sj->...si", G, u, precision="highest") + c[..., None, :]
    misses = jnp.abs(jnp.minimum(u, y))
    misses = jnp.where(jnp.isfinite(misses), misses, jnp.inf)  # after a pivot on zero
    error = misses.max(axis=-1, initial=0)
    best = jnp.argmin(error, axis=-1)[..., None, None]
    v: Array = margin + jnp.take_along_axis(u, best, axis=-2)[..., 0, :] / scale
    return v


def _chosen(unknowns: int) -> np.ndarray:
    """Returns which unknowns are exchanged in each system, bool [2^k, k], in the order of `_all_pivots`."""
    bits = np.arange(2**unknowns)[:, None] >> np.arange(unknowns)[::-1]
    return np.asarray(bits % 2 == 1)


def _all_pivots(G: Array, c: Array) -> Array:
    """Returns the constants of y = G u + c after every set of exchanges, [..., 2^k, k]."""
    unknowns = c.shape[-1]
    systems = jnp.concatenate([G, c[..., None]], axis=-1)[..., None, :, :]  # [..., 2^i, k, k + 1]
    for i in range(unknowns):
        exchanged = _pivot(systems, i)
        both = jnp.stack([systems, exchanged], axis=-3)
        systems = both.reshape(*both.shape[:-4], -1, *both.shape[-2:])
    return systems[..., -1]


def _pivot(systems: Array, i: int) -> Array:
    """Solves equation i of each system [..., k, k + 1] for unknown i and substitutes it in the others."""
    row, column, pivot = systems[..., [i], :], systems[..., :, [i]], systems[..., [i], :][..., [i]]
    in_row, in_column = (
        jax.lax.broadcasted_iota(jnp.int32, systems.shape, systems.ndim - axis) == i for axis in (2, 1)
    )
    others = jnp.where(in_column, column / pivot, systems - column * row / pivot)
    solved = jnp.where(in_column, 1, -row) / pivot
    return jnp.where(in_row, solved, others)
