"""Convolution of one model's images [B, H, W, C], and what vmap over agents turns it into.

vmap over agents, each with its own kernel, turns XLA's convolution into a grouped one. XLA:CPU runs that many
times slower than one ordinary convolution per agent. So the forward pass and the two gradients have batching
rules of their own. There is a choice:

    auto      native if the kernels can be compiled here, otherwise fast
    native    on a CPU kernels of our own (convolution_native.py), one call per agent; elsewhere fast
    fast      on a CPU one convolution per agent, in a loop if there are many; elsewhere a grouped one
    each      one convolution per agent, all in one program
    patches   one batched matrix product of all agents' patches
    plain     whatever JAX makes of it; also for transformations without such a rule, like forward mode

Grouped, agents are groups of channels, in the gradients too. JAX's own rule would make the gradient of the
kernels a convolution with a window as large as the image, for which a GPU's library has no fast kernel.
`saddle plan --target=a40` shows the windows; docs/gpu.md has what each choice is compiled to.

Where the kernels cannot be compiled, `native` is an error. Arrays that they are not for (float64) are `fast`;
those of bfloat16 are computed in float32 on a CPU, and rounded.
On a CPU, agents are computed one by one (devices/lifting.py), so no batching rule is used there. On a GPU,
`saddle bench q_saddle --lowering=...` finds out which choice is best.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from saddle_jax.base import checks
from saddle_jax.base.types import Array
from saddle_jax.devices import policy
from saddle_jax.kernels import convolution_native, native
from saddle_jax.kernels.convolution_forms import (
    BY_PATCHES,
    ON_CPU,
    ORDINARY,
    Form,
    Window,
    in_float32,
    ordinary,
    taps,
)

Lowering = Literal["auto", "native", "fast", "each", "patches", "plain"]
LOWERINGS = ("auto", "native", "fast", "each", "patches", "plain")

# Convolutions in one program are faster than in a loop, but take longer to compile.
_MAX_UNROLLED = 8


def convolve(
    x: Array,
    kernel: Array,
    *,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    lowering: Lowering = "auto",
) -> Array:
    """Correlates images [B, H, W, C] with a kernel [h, w, C / groups, D] into [B, H', W', D]."""
    # Both gradients multiply as the forward pass does, also where they are traced after it.
    window = Window(stride, padding, groups, jax.default_matmul_precision.value)
    lowering = _chosen(lowering)
    if lowering == "plain":
        return ordinary(window, x, kernel)
    if groups > 1 and not _is_grouped(lowering):
        return _depthwise(window, x, kernel)
    return _convolve_by_rule(lowering, window, x, kernel)


def _is_grouped(lowering: Lowering) -> bool:
    return lowering == "fast" and policy.batches_convolutions()


def _chosen(lowering: Lowering) -> Lowering:
    """Returns what a lowering means on this hardware."""
    if lowering in ("auto", "native", "fast") and policy.batches_convolutions():
        return "fast"
    if lowering == "auto":
        return "native" if native.obstacle() is None else "fast"
    return lowering


def check_lowering(lowering: str) -> None:
    """Checks that there is such a lowering, and that it works here."""
    checks.choice("lowering", lowering, LOWERINGS)
    if lowering == "native" and policy.takes_native_convolutions():
        native.check()


def _form(lowering: Lowering, *arrays: Any) -> Form:
    """Returns the form in which one agent's convolution of these arrays is computed."""
    if policy.widens_bfloat16() and any(array.dtype == jnp.bfloat16 for array in arrays):
        return in_float32(_form(lowering, *(jax.ShapeDtypeStruct(a.shape, jnp.float32) for a in arrays)))
    if native.used(lowering, *arrays):
        return convolution_native.NATIVE
    return ON_CPU if policy.takes_library_convolutions() else ORDINARY


def _depthwise(window: Window, x: Array, kernel: Array) -> Array:
    """Convolves each channel with its own filter of the kernel [h, w, 1, C].

    There is one multiplication per entry of the kernel. It is element-wise, so agents are just another axis.
    """
    inputs = taps(window, x, kernel.shape[:2])
    terms = [
        tap * kernel[i, j].reshape(1, 1, 1, -1) for i, row in enumerate(inputs) for j, tap in enumerate(row)
    ]
    return functools.reduce(jnp.add, terms)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _convolve_by_rule(lowering: Lowering, window: Window, x: Array, kernel: Array) -> Array:
    return _forward(lowering, window)(x, kernel)


def _save(lowering: Lowering, window: Window, x: Array, kernel: Array):
    return _forward(lowering, window)(x, kernel), (x, kernel)


def _gradients(
    lowering: Lowering, window: Window, saved: tuple[Array, Array], g: Array
) -> tuple[Array, Array]:
    x, kernel = saved
    return (
        _input_gradient(lowering, window, x.shape[1:3])(g, kernel),
        _kernel_gradient(lowering, window, kernel.shape[:2])(x, g),
    )


_convolve_by_rule.defvjp(_save, _gradients)


@functools.cache
def _forward(lowering: Lowering, window: Window) -> Callable[[Array, Array], Array]:
    """Returns the convolution (x, kernel) -> y with the rule of a lowering."""
    return _with_rule(lowering, window, lambda form, *arguments: form.forward(*arguments), shared=1)


@functools.cache
def _input_gradient(
    lowering: Lowering, window: Window, size: tuple[int, int]
) -> Callable[[Array, Array], Array]:
    """Returns (g, kernel) -> the gradient with respect to x, whose height and width are `size`."""
    return _with_rule(
        lowering,
        window,
        lambda form, window, g, kernel: form.input_gradient(window, size, g, kernel),
        shared=1,
    )


@functools.cache
def _kernel_gradient(
    lowering: Lowering, window: Window, size: tuple[int, int]
) -> Callable[[Array, Array], Array]:
    """Returns (x, g) -> the gradient with respect to the kernel, whose height and width are `size`."""
    return _with_rule(
        lowering, window, lambda form, window, x, g: form.kernel_gradient(window, size, x, g), shared=None
    )


def _with_rule(
    lowering: Lowering, window: Window, run: Callable[..., Array], shared: int | None
) -> Callable[[Array, Array], Array]:
    """Gives `run(form, window, left, right)` the form for one agent, and the batching rule of a lowering.

    `shared` is the position of the argument that all images of a batch share. Where vmap does not batch it,
    the new axis is just more images.
    """

    @custom_vmap
    def operation(left: Array, right: Array) -> Array:
        return run(_form(lowering, left, right), window, left, right)

    @operation.def_vmap
    def rule(axis_size: int, in_batched: list[bool], left: Array, right: Array) -> tuple[Any, bool]:
        arguments = (left, right)
        if shared is not None and not in_batched[shared]:
            merged = operation(left.reshape(-1, *left.shape[2:]), right)
            return merged.reshape(axis_size, -1, *merged.shape[1:]), True
        if _is_grouped(lowering) and all(in_batched):
            together = _with_rule(lowering, window._replace(groups=axis_size * window.groups), run, shared)
            return _apart(together(_joined(left), _joined(right)), axis_size), True
        if lowering == "patches" or _is_grouped(lowering):
            form = BY_PATCHES if lowering == "patches" else ORDINARY
            axes = [0 if batched else None for batched in in_batched]
            return jax.vmap(functools.partial(run, form, window), in_axes=axes)(*arguments), True

        def pick(index: Any) -> list[Array]:
            return [a[index] if batched else a for a, batched in zip(arguments, in_batched, strict=True)]

        if lowering == "each" or axis_size <= _MAX_UNROLLED:
            return jnp.stack([operation(*pick(index)) for index in range(axis_size)]), True
        return jax.lax.map(lambda index: operation(*pick(index)), jnp.arange(axis_size)), True

    return operation


def _joined(x: Array) -> Array:
    """Makes the agents groups of channels: images [N, B, H, W, C] become [B, H, W, N C], kernels likewise."""
    return jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)


def _apart(x: Array, agents: int) -> Array:
    """Undoes `_joined`: groups of channels become an axis of agents, the first one."""
    return jnp.moveaxis(x.reshape(*x.shape[:-1], agents, -1), -2, 0)
