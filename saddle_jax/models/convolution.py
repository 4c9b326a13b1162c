"""Convolution of one model's images [B, H, W, C], which stays fast when vmap adds agents.

Plain vmap over agents, each with a kernel of its own, turns a convolution into a grouped one, which
XLA:CPU runs many times slower than one ordinary convolution per agent. So the forward pass and the
two gradients each carry a batching rule of their own: up to some number of agents one convolution each,
beyond it one batched matrix product of all agents' patches. `lowering="plain"` is the ordinary
`jax.lax` convolution, for transformations that the rules do not know, such as forward mode.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from saddle_jax.types import Array

Lowering = Literal["fast", "plain"]
LOWERINGS = ("fast", "plain")

# Beyond this many agents, one convolution each takes too long to compile. Patches and a batched matrix
# product compile in the same time for any number; they run somewhat slower, and hold nine times the images.
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


def _taps(window: Window, x: Array, size: Sequence[int]) -> list[list[Array]]:
    """What every entry of a kernel of this size meets: for each its share of the images, [B, H', W', C]."""
    pad, stride = window.padding, window.stride
    x = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    batch, height, width, channels = x.shape
    last_row = (height - size[0]) // stride * stride
    last_column = (width - size[1]) // stride * stride

    def taken(i: int, j: int) -> Array:
        end = (batch, i + last_row + 1, j + last_column + 1, channels)
        return jax.lax.slice(x, (0, i, j, 0), end, (1, stride, stride, 1))

    return [[taken(i, j) for j in range(size[1])] for i in range(size[0])]


def _depthwise(window: Window, x: Array, kernel: Array) -> Array:
    """One multiplication per tap of the kernel: element-wise, so agents are one axis more.

    kernel [h, w, 1, C]; every channel has a filter of its own.
    """
    taps = _taps(window, x, kernel.shape[:2])
    terms = [
        tap * kernel[i, j].reshape(1, 1, 1, -1) for i, row in enumerate(taps) for j, tap in enumerate(row)
    ]
    return functools.reduce(jnp.add, terms)


def _by_patches(window: Window, x: Array, kernel: Array) -> Array:
    """The same convolution as a matrix product: patches [B H' W', h w C] times the kernel [h w C, D]."""
    taps = [tap for row in _taps(window, x, kernel.shape[:2]) for tap in row]
    patches = jnp.concatenate(taps, axis=-1)
    return patches @ kernel.reshape(-1, kernel.shape[-1])


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

    def run(convolve, x, kernel):
        return convolve(window, x, kernel)

    return _with_rule(run, shared=1)


@functools.cache
def _input_gradient(window: Window, size: tuple[int, int]) -> Callable[[Array, Array], Array]:
    """(g, kernel) -> gradient by x, whose height and width are given."""

    def run(convolve, g, kernel):
        shape = jax.ShapeDtypeStruct((g.shape[0], *size, kernel.shape[2]), g.dtype)
        (result,) = jax.linear_transpose(lambda x: convolve(window, x, kernel), shape)(g)
        return result

    return _with_rule(run, shared=1)


@functools.cache
def _kernel_gradient(window: Window, size: tuple[int, int]) -> Callable[[Array, Array], Array]:
    """(x, g) -> gradient by the kernel, whose height and width are given."""

    def run(convolve, x, g):
        shape = jax.ShapeDtypeStruct((*size, x.shape[3], g.shape[3]), g.dtype)
        (result,) = jax.linear_transpose(lambda kernel: convolve(window, x, kernel), shape)(g)
        return result

    return _with_rule(run, shared=None)


def _with_rule(run: Callable[..., Array], shared: int | None) -> Callable[[Array, Array], Array]:
    """`run(convolve, left, right)` with XLA's convolution, and with its batching rule.

    `shared` is the argument that all images of a batch have in common. Where vmap leaves it alone,
    its axis is just more images; otherwise every index gets an operation of its own, or, if there are
    too many, all of them share one over patches.
    """
    operation = custom_vmap(functools.partial(run, _convolve))

    @operation.def_vmap
    def rule(axis_size: int, in_batched: list[bool], left: Array, right: Array) -> tuple[Any, bool]:
        arguments = (left, right)
        if shared is not None and not in_batched[shared]:
            merged = operation(left.reshape(-1, *left.shape[2:]), right)
            return merged.reshape(axis_size, -1, *merged.shape[1:]), True
        if axis_size > _MAX_UNROLLED:
            axes = [0 if batched else None for batched in in_batched]
            return jax.vmap(functools.partial(run, _by_patches), in_axes=axes)(*arguments), True

        def pick(index: int) -> list[Array]:
            return [a[index] if batched else a for a, batched in zip(arguments, in_batched, strict=True)]

        return jnp.stack([operation(*pick(index)) for index in range(axis_size)]), True

    return operation
