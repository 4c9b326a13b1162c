"""Convolution of one model's images [B, H, W, C], which stays fast when vmap adds agents.

Plain vmap over agents, each with a kernel of its own, turns a convolution into a grouped one, which
XLA:CPU runs many times slower than one ordinary convolution per agent. So the forward pass and the
two gradients each carry a batching rule of their own. `lowering="plain"` is the ordinary
`jax.lax` convolution, for transformations that the rules do not know, such as forward mode.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from saddle_jax.types import Array

Lowering = Literal["fast", "plain"]
LOWERINGS = ("fast", "plain")

# Beyond this many agents, one convolution each would take too long to compile: XLA's grouped form
# is used instead.
_MAX_UNROLLED = 64


class Window(NamedTuple):
    """What a convolution is, its tensors apart."""

    stride: int
    padding: int  # zeros on each side, top and bottom, left and right
    groups: int  # 1, or the number of channels for a depthwise convolution


def convolve(
    x: Array,
    kernel: Array,
    *,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    lowering: Lowering = "fast",
) -> Array:
    """Cross-correlation of images [B, H, W, C] with a kernel [h, w, C / groups, D]: [B, H', W', D]."""
    window = Window(stride, padding, groups)
    if lowering == "plain":
        return _convolve(window, x, kernel)
    if groups > 1:
        return _depthwise(window, x, kernel)
    return _convolve_fast(window, x, kernel)


def _convolve(window: Window, x: Array, kernel: Array) -> Array:
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        window_strides=(window.stride, window.stride),
        padding=[(window.padding, window.padding)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=window.groups,
    )


def _depthwise(window: Window, x: Array, kernel: Array) -> Array:
    """One multiplication per tap of the kernel: element-wise, so agents are one axis more.

    kernel [h, w, 1, C]; every channel has a filter of its own.
    """
    height, width, _, channels = kernel.shape
    pad = window.padding
    x = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    rows = (x.shape[1] - height) // window.stride + 1
    columns = (x.shape[2] - width) // window.stride + 1
    total = None
    for i in range(height):
        for j in range(width):
            taken = jax.lax.slice(
                x,
                (0, i, j, 0),
                (
                    x.shape[0],
                    i + (rows - 1) * window.stride + 1,
                    j + (columns - 1) * window.stride + 1,
                    channels,
                ),
                (1, window.stride, window.stride, 1),
            )
            term = taken * kernel[i, j].reshape(1, 1, 1, channels)
            total = term if total is None else total + term
    assert total is not None
    return total


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _convolve_fast(window: Window, x: Array, kernel: Array) -> Array:
    return _forward(window)(x, kernel)


def _save(window: Window, x: Array, kernel: Array):
    return _forward(window)(x, kernel), (x, kernel)


def _gradients(window: Window, saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, kernel = saved
    return (
        _input_gradient(window, x.shape[1:3])(g, kernel),
        _kernel_gradient(window, kernel.shape[:2])(x, g),
    )


_convolve_fast.defvjp(_save, _gradients)


@functools.cache
def _forward(window: Window) -> Callable[[Array, Array], Array]:
    """(x, kernel) -> y."""

    def run(x, kernel):
        return _convolve(window, x, kernel)

    return _with_rule(run, shared=1)


@functools.cache
def _input_gradient(window: Window, size: tuple[int, int]) -> Callable[[Array, Array], Array]:
    """(g, kernel) -> gradient by x, whose height and width are given."""

    def run(g, kernel):
        shape = jax.ShapeDtypeStruct((g.shape[0], *size, kernel.shape[2] * window.groups), g.dtype)
        (result,) = jax.linear_transpose(lambda x: _convolve(window, x, kernel), shape)(g)
        return result

    return _with_rule(run, shared=1)


@functools.cache
def _kernel_gradient(window: Window, size: tuple[int, int]) -> Callable[[Array, Array], Array]:
    """(x, g) -> gradient by the kernel, whose height and width are given."""

    def run(x, g):
        shape = jax.ShapeDtypeStruct((*size, x.shape[3] // window.groups, g.shape[3]), g.dtype)
        (result,) = jax.linear_transpose(lambda kernel: _convolve(window, x, kernel), shape)(g)
        return result

    return _with_rule(run, shared=None)


def _with_rule(run: Callable[[Array, Array], Array], shared: int | None) -> Callable[[Array, Array], Array]:
    """`run` with its batching rule.

    `shared` is the argument that all images of a batch have in common. Where vmap leaves it alone,
    its axis is just more images; otherwise every index gets an operation of its own.
    """
    operation = custom_vmap(run)

    @operation.def_vmap
    def rule(axis_size: int, in_batched: list[bool], left: Array, right: Array) -> tuple[Any, bool]:
        arguments = (left, right)
        if shared is not None and not in_batched[shared]:
            merged = operation(left.reshape(-1, *left.shape[2:]), right)
            return merged.reshape(axis_size, -1, *merged.shape[1:]), True
        if axis_size > _MAX_UNROLLED:
            return jax.vmap(run, in_axes=[0 if batched else None for batched in in_batched])(*arguments), True

        def pick(index: int) -> list[Array]:
            return [a[index] if batched else a for a, batched in zip(arguments, in_batched, strict=True)]

        return jnp.stack([operation(*pick(index)) for index in range(axis_size)]), True

    return operation
