"""Convolution of one model's images [B, H, W, C], which stays fast when vmap adds agents.

Plain vmap over agents, each with a kernel of its own, turns a convolution into a grouped one, which
XLA:CPU runs many times slower than one ordinary convolution per agent. So the forward pass and the
two gradients each carry a batching rule of their own: up to some number of agents one convolution each,
beyond it a loop over them on a CPU, and elsewhere one batched matrix product of all agents' patches.
`lowering="plain"` is the ordinary `jax.lax` convolution, for transformations that the rules do not know,
such as forward mode.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from saddle_jax.models.convolution_forms import BY_PATCHES, ON_CPU, ORDINARY, Window, ordinary, taps
from saddle_jax.types import Array

Lowering = Literal["fast", "plain"]
LOWERINGS = ("fast", "plain")

# Beyond this many agents, one convolution each takes too long to compile. The loop over agents, and patches
# with a batched matrix product, compile in the same time for any number.
_MAX_UNROLLED = 64


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
        return ordinary(window, x, kernel)
    if groups > 1:
        return _depthwise(window, x, kernel)
    return _convolve_fast(window, x, kernel)


def _depthwise(window: Window, x: Array, kernel: Array) -> Array:
    """One multiplication per tap of the kernel: element-wise, so agents are one axis more.

    kernel [h, w, 1, C]; every channel has a filter of its own.
    """
    met = taps(window, x, kernel.shape[:2])
    terms = [
        tap * kernel[i, j].reshape(1, 1, 1, -1) for i, row in enumerate(met) for j, tap in enumerate(row)
    ]
    return functools.reduce(jnp.add, terms)


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
    return _with_rule(lambda form, x, kernel: form.forward(window, x, kernel), shared=1)


@functools.cache
def _input_gradient(window: Window, size: tuple[int, int]) -> Callable[[Array, Array], Array]:
    """(g, kernel) -> gradient by x, whose height and width are given."""
    return _with_rule(lambda form, g, kernel: form.input_gradient(window, size, g, kernel), shared=1)


@functools.cache
def _kernel_gradient(window: Window, size: tuple[int, int]) -> Callable[[Array, Array], Array]:
    """(x, g) -> gradient by the kernel, whose height and width are given."""
    return _with_rule(lambda form, x, g: form.kernel_gradient(window, size, x, g), shared=None)


def _with_rule(run: Callable[..., Array], shared: int | None) -> Callable[[Array, Array], Array]:
    """`run(form, left, right)` in the form for one agent, and with its batching rule.

    `shared` is the argument that all images of a batch have in common. Where vmap leaves it alone,
    its axis is just more images; otherwise every index gets an operation of its own, or, if there are
    too many, all of them share one.
    """

    @custom_vmap
    def operation(left: Array, right: Array) -> Array:
        return run(ON_CPU if jax.default_backend() == "cpu" else ORDINARY, left, right)

    @operation.def_vmap
    def rule(axis_size: int, in_batched: list[bool], left: Array, right: Array) -> tuple[Any, bool]:
        arguments = (left, right)
        if shared is not None and not in_batched[shared]:
            merged = operation(left.reshape(-1, *left.shape[2:]), right)
            return merged.reshape(axis_size, -1, *merged.shape[1:]), True

        def pick(index: int) -> list[Array]:
            return [a[index] if batched else a for a, batched in zip(arguments, in_batched, strict=True)]

        if axis_size <= _MAX_UNROLLED:
            return jnp.stack([operation(*pick(index)) for index in range(axis_size)]), True
        if jax.default_backend() == "cpu":
            return jax.lax.map(lambda index: operation(*pick(index)), jnp.arange(axis_size)), True
        axes = [0 if batched else None for batched in in_batched]
        return jax.vmap(functools.partial(run, BY_PATCHES), in_axes=axes)(*arguments), True

    return operation
