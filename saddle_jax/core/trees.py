"""Algebra over stacked trees: every leaf is [A, ...], one slice per agent.

Reductions here run within each agent. The norms of optax reduce over the whole tree and would mix the
agents: clipping or SAM with those is the likeliest silent bug of such a simulator.
"""

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.types import Array, Key, Params
from saddle_jax.devices import policy


def tree_map(function: Callable[..., Any], first: Any, *rest: Any) -> Any:
    """Applies a function leaf by leaf; each result keeps the dtype of the first tree's leaf.

    Hyper-parameters that are traced have a dtype of their own, which must not spread to the models.
    """

    def leaf(x: Any, *others: Any) -> Array:
        return jnp.asarray(function(x, *others)).astype(x.dtype)

    return jax.tree.map(leaf, first, *rest)


def zeros_like(tree: Any) -> Any:
    """Returns zeros with the shapes, dtypes and sharding of a tree."""
    return jax.tree.map(jnp.zeros_like, tree)


def replicate(params: Params, size: int) -> Params:
    """Stacks `size` equal copies of one model's parameters: leaves [...] become [A, ...].

    >>> sj.replicate({"w": jnp.array([1.0, 2.0])}, 3)["w"].shape
    (3, 2)
    """
    size = checks.whole("size", size, at_least=1)

    def stack(x: Any) -> Array:
        x = jnp.asarray(x)
        x = x.astype(x.dtype)  # drops the weak type of a Python number, which would change at the first step
        return jnp.repeat(x[None], size, axis=0)

    return jax.tree.map(stack, params)


def consensus(params: Params, present: Any = None) -> Params:
    """Averages the agents' models to the consensus model x-bar: leaves [A, ...] become [...].

    Agents that are not `present`, bool [A], are not counted, see `Topology.present`.

    >>> sj.consensus({"w": jnp.array([[0.0, 0.0], [6.0, 8.0]])})
    {'w': Array([3., 4.], dtype=float32)}
    """
    return jax.tree.map(lambda x: jnp.mean(x, axis=0, where=_where(present, x)), params)


def consensus_distance(params: Params, present: Any = None) -> Array:
    """Returns the consensus distance sqrt(1/A sum_i ||x_i - x-bar||^2), a scalar.

    >>> sj.consensus_distance({"w": jnp.array([[0.0, 0.0], [6.0, 8.0]])})
    Array(5., dtype=float32)
    """
    average = consensus(params, present)
    squares = squared_norms(jax.tree.map(lambda x, mean: x - mean[None], params, average))
    return jnp.sqrt(jnp.mean(squares, where=_where(present, squares)))


def _where(present: Any, x: Array) -> Array | None:
    return None if present is None else jnp.asarray(present).reshape(-1, *(1,) * (x.ndim - 1))


def squared_norms(tree: Any, axes: int = 1) -> Array:
    """Returns ||x_i||^2 over all leaves of each agent: [A], or [A, K] with axes=2 for [A, K, ...] leaves."""
    return inner_products(tree, tree, axes)


def agent_norms(tree: Any, axes: int = 1) -> Array:
    """Returns ||x_i|| over all leaves of each agent: [A], or [A, K] with axes=2 for [A, K, ...] leaves.

    >>> sj.agent_norms({"w": jnp.array([[0.0, 6.0], [0.0, 0.0]]), "b": jnp.array([8.0, 1.0])})
    Array([10.,  1.], dtype=float32)
    """
    return jnp.sqrt(squared_norms(tree, axes))


def layer_norms(tree: Any, axes: int = 1) -> Array:
    """Returns ||x_i|| for each leaf, in the order of jax.tree.leaves: [L, A], or [L, A, K] with axes=2."""
    return jnp.stack([agent_norms(leaf, axes) for leaf in jax.tree.leaves(tree)])


def mean_by_layer(values: Array, present: Any = True) -> Array:
    """Averages [L, A] or [L, A, K] over the agents or pairs that are `present`: [L], NaN without any."""
    return jnp.mean(values, axis=tuple(range(1, values.ndim)), where=jnp.broadcast_to(present, values.shape))


def layer_names(tree: Any) -> list[str]:
    """Lists the leaves' names, such as "conv1/kernel", in the order of jax.tree.leaves."""
    return [
        jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in jax.tree.leaves_with_path(tree)
    ]


def inner_products(left: Any, right: Any, axes: int = 1) -> Array:
    """Returns <x_i, y_i> over all leaves of each agent: [A], or [A, K] with axes=2; in float32 at least."""

    def inner(x: Array, y: Array) -> Array:
        wide = jnp.promote_types(jnp.result_type(x, y), jnp.float32)
        return jnp.sum(x.astype(wide) * y.astype(wide), axis=tuple(range(axes, x.ndim)))

    products: list[Array] = jax.tree.leaves(jax.tree.map(inner, left, right))
    return functools.reduce(operator.add, products)


def scale_slices(tree: Any, scales: Array) -> Any:
    """Multiplies each agent's slice by its own scale; `scales` is [A], or [A, K] for leaves [A, K, ...]."""

    def scale(x: Array) -> Array:
        return x * scales.reshape(scales.shape + (1,) * (x.ndim - scales.ndim)).astype(x.dtype)

    return jax.tree.map(scale, tree)


@jax.custom_jvp
def in_memory(tree: Any) -> Any:
    """Returns the tree itself, stored: XLA must not compute it again in each fusion that reads it.

    XLA:CPU duplicates a cheap expression into every fusion that reads it, so that x - eta g of all models was
    computed again for each neighbour. It removes optimization barriers before fusion, so one on the tensor
    does not help. Here the barrier hides from XLA that a loop over the tensor runs zero times.
    """
    if not policy.is_cpu():
        return jax.lax.optimization_barrier(tree)
    rounds = jax.lax.optimization_barrier(jnp.int32(0))

    def same(turn: Array, x: Array) -> Array:
        return jnp.where(turn < 0, jnp.zeros_like(x), x)

    return jax.tree.map(lambda x: jax.lax.fori_loop(0, rounds, same, x), tree)


@in_memory.defjvp
def _in_memory_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    return in_memory(*primals), tangents[0]


def agent_keys(key: Key, size: int) -> Key:
    """Returns one key per agent [A]; agent i's depends on (key, i) alone, not on the number of agents."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(size))


def zeros_of_pairs(params: Params, slots: int) -> Params:
    """Returns zeros [A, K, ...] for parameters [A, ...], sharded as those are; slots is K."""

    def zeros(x: Array) -> Array:
        return jnp.repeat(jnp.zeros_like(x)[:, None], slots, axis=1)

    return jax.tree.map(zeros, params)


def check_params(name: str, params: Params, size: int) -> None:
    """Checks that every leaf is a real floating-point array [A, ...]; the error names the one that is not."""
    check_stacked(name, params, size)
    for path, leaf in jax.tree.leaves_with_path(params):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise checks.ArgumentError(
                f"{name}{jax.tree_util.keystr(path)} must be floating-point, got {jnp.result_type(leaf)}"
            )


def check_stacked(name: str, tree: Any, size: int) -> None:
    """Checks that every leaf has the leading axis A = size; the error names the one that does not."""
    leaves = jax.tree.leaves_with_path(tree)
    if not leaves:
        raise checks.ArgumentError(f"{name} must have at least one array, got {tree!r}")
    for path, leaf in leaves:
        shape = np.shape(leaf)
        if not shape or shape[0] != size:
            raise checks.ArgumentError(
                f"{name}{jax.tree_util.keystr(path)} must have leading axis A = {size}, "
                f"one slice per agent, got shape {shape}"
            )


def scalars_like(numbers: Mapping[str, Any], params: Params) -> dict[str, Array]:
    """Converts numbers to arrays [] of the dtype of the parameters."""
    dtypes = [jnp.result_type(leaf) for leaf in jax.tree.leaves(params)]
    dtype = next((each for each in dtypes if jnp.issubdtype(each, jnp.floating)), jnp.dtype(jnp.float32))
    return {name: jnp.asarray(number, dtype) for name, number in numbers.items()}
