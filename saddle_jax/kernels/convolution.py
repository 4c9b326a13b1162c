"""Convolution of one model's images [B, H, W, C], with its own batching rules for vmap over agents.

vmap over agents, each with its own kernel, turns XLA's convolution into a grouped one. XLA:CPU runs that many
times slower than one ordinary convolution per agent. So the forward pass and the two gradients have batching
rules of their own. `conv_impl` is one of

    auto      native if the kernels can be compiled here, otherwise fast
    native    on a CPU our own kernels (native.py), one call per agent; elsewhere fast
    fast      on a CPU one convolution per agent, in a loop if there are many; elsewhere a grouped one
    each      one convolution per agent, all in one program
    patches   one batched matrix product of all agents' patches
    plain     JAX's own rules; also for transformations without a rule here, such as forward mode

In a grouped convolution agents are groups of channels, in the gradients too. JAX's own rule would make the
gradient of the kernels a convolution with a window as large as the image, for which a GPU's library has no
fast kernel. `saddle train --plan --target=a40` shows the windows; docs/devices.md has what is compiled for
each choice.

If the kernels cannot be compiled, `native` is an error. It uses `fast` for float64; bfloat16 is computed in
float32 on a CPU, and rounded. On a CPU, agents are computed one by one (`devices`), so no batching rule is
used there. On a GPU, `bin/bench q_saddle --conv_impl=...` compares the choices.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from saddle_jax.base import checks
from saddle_jax.base.types import Array
from saddle_jax.devices import policy
from saddle_jax.kernels import native

ConvImpl = Literal["auto", "native", "fast", "each", "patches", "plain"]
CONV_IMPLS = ("auto", "native", "fast", "each", "patches", "plain")

# ---- three forms of the convolution and its two gradients: ordinary, by patches, and fast on XLA:CPU ----
#
# XLA:CPU hands a convolution to its library of kernels (YNNPACK) only if it is images [B, H, W, C] by a
# kernel [h, w, C, D], the images are not dilated, neither kernel nor result is larger than they are, and
# there are more than 16 channels in or out. Any other runs at half that speed or less, and within a loop
# (`lax.map`, `lax.scan`) at a twentieth of it. So `ON_CPU` writes all three as such a convolution if that is
# possible, and otherwise as a matrix product.
#
# Measured on one core, 3x3, batch 32, in GFLOP/s of CPU time, the ordinary form first:
#
#     forward, 32x32           3 -> 16 channels 13 | 46,  16 -> 16 channels 49 | 70
#     input gradient, 32x32    16 -> 16 channels 48 | 70,  16 -> 32 channels of stride 2 50 | 59
#     kernel gradient          the same, but 1x1 of stride 2: 16 -> 32 channels 12 | 49,  32 -> 64 18 | 43
#     within a loop, stride 2  input gradient 3.6 | 52,  kernel gradient 0.9 | 34


# XLA:CPU does not use its library for a convolution with at most this many channels in and out.
_NARROW = 16


class Window(NamedTuple):
    """The parameters of a convolution apart from its tensors."""

    stride: int
    padding: int  # zeros on each side, top and bottom, left and right
    groups: int  # of channels: 1, or the number of channels for a depthwise convolution
    precision: str | None = None  # of its products, as JAX names them; None is the hardware's default


class Form(NamedTuple):
    """One way to compute a convolution of images x [B, H, W, C] with a kernel [h, w, C / groups, D]."""

    forward: Callable[[Window, Array, Array], Array]  # (window, x, kernel) -> y
    input_gradient: Callable[[Window, Sequence[int], Array, Array], Array]  # (window, (H, W), g, kernel)
    kernel_gradient: Callable[[Window, Sequence[int], Array, Array], Array]  # (window, (h, w), x, g)


def _form_of(forward: Callable[[Window, Array, Array], Array]) -> Form:
    """Makes a form from a forward pass; JAX derives the two gradients, its transposes."""

    def input_gradient(window: Window, size: Sequence[int], g: Array, kernel: Array) -> Array:
        shape = jax.ShapeDtypeStruct((g.shape[0], *size, window.groups * kernel.shape[2]), g.dtype)
        result: tuple[Array] = jax.linear_transpose(lambda x: forward(window, x, kernel), shape)(g)
        return result[0]

    def kernel_gradient(window: Window, size: Sequence[int], x: Array, g: Array) -> Array:
        shape = jax.ShapeDtypeStruct((*size, x.shape[3] // window.groups, g.shape[3]), g.dtype)
        result: tuple[Array] = jax.linear_transpose(lambda kernel: forward(window, x, kernel), shape)(g)
        return result[0]

    return Form(forward, input_gradient, kernel_gradient)


def in_float32(form: Form) -> Form:
    """Computes convolutions of narrower dtypes in float32, and rounds the results to the inputs' dtype."""

    def wide(x: Array) -> Array:
        return x.astype(jnp.float32)

    return Form(
        lambda window, x, kernel: form.forward(window, wide(x), wide(kernel)).astype(x.dtype),
        lambda window, size, g, kernel: form.input_gradient(window, size, wide(g), wide(kernel)).astype(
            g.dtype
        ),
        lambda window, size, x, g: form.kernel_gradient(window, size, wide(x), wide(g)).astype(g.dtype),
    )


# ---- ordinary ----


def ordinary(window: Window, x: Array, kernel: Array) -> Array:
    """Computes a convolution by `jax.lax`."""
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        window_strides=(window.stride, window.stride),
        padding=[(window.padding, window.padding)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=window.groups,
        precision=window.precision,
    )


# ---- by patches ----


def taps(window: Window, x: Array, size: Sequence[int]) -> list[list[Array]]:
    """Returns the inputs that each entry of a kernel of this size is multiplied with, each [B, H', W', C]."""
    pad, stride = window.padding, window.stride
    x = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    batch, height, width, channels = x.shape
    last_row = (height - size[0]) // stride * stride
    last_column = (width - size[1]) // stride * stride

    def tap(i: int, j: int) -> Array:
        end = (batch, i + last_row + 1, j + last_column + 1, channels)
        return jax.lax.slice(x, (0, i, j, 0), end, (1, stride, stride, 1))

    return [[tap(i, j) for j in range(size[1])] for i in range(size[0])]


def _by_patches(window: Window, x: Array, kernel: Array) -> Array:
    """Computes a convolution as a matrix product: patches [B H' W', h w C] times the kernel [h w C, D]."""
    patches = jnp.concatenate([tap for row in taps(window, x, kernel.shape[:2]) for tap in row], axis=-1)
    return jnp.matmul(patches, kernel.reshape(-1, kernel.shape[-1]), precision=window.precision)


ORDINARY = _form_of(ordinary)
BY_PATCHES = _form_of(_by_patches)


# ---- in the form that XLA:CPU runs fast ----


def _library(
    x: Array,
    kernel: Array,
    strides: tuple[int, int],
    padding: Sequence[tuple[int, int]],
    spread: int = 1,  # of the kernel's entries
) -> Array:
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        strides,
        padding,
        rhs_dilation=(spread, spread),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _cpu_forward(window: Window, x: Array, kernel: Array) -> Array:
    if kernel.shape[:2] == (1, 1):
        return BY_PATCHES.forward(window, x, kernel)
    return _by_wide_columns(x, kernel, window.stride, [(window.padding, window.padding)] * 2)


def _cpu_input_gradient(window: Window, size: Sequence[int], g: Array, kernel: Array) -> Array:
    if min(kernel.shape[:2]) < max(window.stride, 2):  # 1x1, or some inputs are not used
        return BY_PATCHES.input_gradient(window, size, g, kernel)
    if window.stride > 1:
        return _by_phases(window, size, g, kernel)
    around = [(length - 1 - window.padding,) * 2 for length in kernel.shape[:2]]
    return _by_wide_columns(g, jnp.flip(kernel, (0, 1)).swapaxes(2, 3), 1, around)


def _cpu_kernel_gradient(window: Window, size: Sequence[int], x: Array, g: Array) -> Array:
    """Convolves "images" [C, H, W, B] with a "kernel" [H', W', B, D], which gives [C, h, w, D]."""
    takes = _library_takes(x.shape[1:3], g.shape[1:3], size, x.shape[0], g.shape[3])
    if tuple(size) == (1, 1) or not takes:
        return BY_PATCHES.kernel_gradient(window, size, x, g)
    stride, low = window.stride, window.padding
    ends = [(low, _high(*of, stride, low)) for of in zip(x.shape[1:3], size, g.shape[1:3], strict=True)]
    result = _library(x.transpose(3, 1, 2, 0), g.transpose(1, 2, 0, 3), (1, 1), ends, spread=stride)
    return result.transpose(1, 2, 0, 3)


def _by_wide_columns(x: Array, kernel: Array, stride: int, padding: Sequence[tuple[int, int]]) -> Array:
    """Computes n neighbouring columns of the result as one of n D channels, to have more than 16 channels.

    The kernel becomes [h, w + (n - 1) stride, C, n D], n copies each a stride further to the right, and
    moves by n strides; the result [B, H', W'/n, n D] lies in memory as [B, H', W', D] does. For n = 2 and
    w = 3 that is 4/3 of the multiplications.
    """
    height, width, inputs, outputs = kernel.shape
    rows, columns = (
        (extent + low + high - length) // stride + 1
        for extent, length, (low, high) in zip(x.shape[1:3], (height, width), padding, strict=True)
    )
    narrow = max(inputs, outputs) <= _NARROW
    # In GFLOP/s for 1, 2, 4 columns: 13, 16, 46 with 3 -> 16 channels; 49, 70, 46 with 16 -> 16.
    merged = (4 if min(inputs, outputs) <= 4 else 2) if narrow else 1
    steps = -(-columns // merged)
    widened = width + (merged - 1) * stride
    starts = [low for low, _ in padding]
    ends = [
        _high(x.shape[1], height, rows, stride, starts[0]),
        _high(x.shape[2], width, steps * merged, stride, starts[1]),
    ]
    padding = list(zip(starts, ends, strict=True))
    if not _library_takes(x.shape[1:3], (height, widened), (rows, steps), inputs, merged * outputs):
        config = [(0, 0, 0), *((low, high, 0) for low, high in padding), (0, 0, 0)]
        padded = jax.lax.pad(x, jnp.zeros((), x.dtype), config)
        return _by_patches(Window(stride, 0, 1), padded, kernel)[:, :, :columns]
    shifted = [
        jnp.pad(kernel, ((0, 0), (i * stride, (merged - 1 - i) * stride), (0, 0), (0, 0)))
        for i in range(merged)
    ]
    result = _library(x, jnp.concatenate(shifted, axis=-1), (stride, merged * stride), padding)
    return result.reshape(-1, rows, steps * merged, outputs)[:, :, :columns]


def _by_phases(window: Window, size: Sequence[int], g: Array, kernel: Array) -> Array:
    """Computes the input gradient for a stride s, without the zeros of a dilated g.

    Input row s a + q depends on those rows i of the kernel for which s divides q + padding - i, at row
    a + (q + padding - i) / s of g. So each phase q is a convolution of stride 1 with a part of the kernel.
    The same holds for the columns: their s phases are channels of one convolution, with zeros for entries of
    the kernel that a phase does not use.
    """
    stride, pad = window.stride, window.padding
    height, width, inputs, _ = kernel.shape
    turned = kernel.swapaxes(2, 3)  # [h, w, D, C]
    rows, columns = (-(-extent // stride) for extent in size)
    offsets = range(-((width - 1 - pad) // stride), (stride - 1 + pad) // stride + 1)

    def entry(i: int, j: int) -> Array:
        return turned[i, j] if 0 <= j < width else jnp.zeros_like(turned[i, 0])

    def phase(q: int) -> Array:
        kernel_rows = range((q + pad) % stride, height, stride)[::-1]
        part = [
            [
                jnp.concatenate([entry(i, r + pad - stride * offset) for r in range(stride)], -1)
                for offset in offsets
            ]
            for i in kernel_rows
        ]
        top, left = (kernel_rows[0] - q - pad) // stride, -offsets[0]
        ends = [
            (top, _high(g.shape[1], len(kernel_rows), rows, 1, top)),
            (left, _high(g.shape[2], len(offsets), columns, 1, left)),
        ]
        return _library(g, jnp.stack([jnp.stack(row) for row in part]), (1, 1), ends)

    phases = jnp.stack([phase(q) for q in range(stride)], axis=2)  # [B, H/s, s, W/s, s C]
    result = phases.reshape(-1, rows * stride, columns * stride, inputs)
    return result[:, : size[0], : size[1]]


def _library_takes(
    images: Sequence[int], kernel: Sequence[int], result: Sequence[int], inputs: int, outputs: int
) -> bool:
    """Returns whether XLA:CPU uses its kernel library for a convolution; the first three are (H, W)."""
    fits = all(max(sizes) <= extent for extent, *sizes in zip(images, kernel, result, strict=True))
    return fits and max(inputs, outputs) > _NARROW


def _high(extent: int, length: int, count: int, stride: int, low: int) -> int:
    """Returns the padding at the end (negative: a crop) at which the kernel fits `count` times."""
    return (count - 1) * stride + length - low - extent


ON_CPU = Form(_cpu_forward, _cpu_input_gradient, _cpu_kernel_gradient)


# ---- by our own kernels, which JAX calls through native.py ----
#
# The derivative of such a kernel, which is a convolution again, is computed by XLA. First derivatives are
# kernels too, because `_with_rule` writes them, so this matters only for Hessians.
#
# The gain is in 3x3 convolutions of stride 1, which Winograd's algorithm computes with fewer products
# (native_winograd.h), and in the gradients of kernels, for which XLA's library has no fast form with few
# channels. 1x1 convolutions are matrix products, except for the gradient of their kernel.


def _call(name: str, window: Window, shape: Sequence[int], left: Array, right: Array) -> Array:
    options = {"stride": window.stride, "padding": window.padding}
    result: Array = native.call(name, [shape], left, right, over="sequential", **options)
    return result


def _bilinear(
    kernel: Callable[[Array, Array], Array], by_xla: Callable[[Array, Array], Array]
) -> Callable[[Array, Array], Array]:
    """Gives a kernel the derivatives of XLA's form of the same product."""
    operation = jax.custom_jvp(kernel)

    @operation.defjvp
    def _derivative(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
        (left, right), (left_dot, right_dot) = primals, tangents
        return operation(left, right), by_xla(left_dot, right) + by_xla(left, right_dot)

    return operation


def _native_forward(window: Window, x: Array, kernel: Array) -> Array:
    if kernel.shape[:2] == (1, 1):
        return ON_CPU.forward(window, x, kernel)
    rows, columns = (
        (extent + 2 * window.padding - length) // window.stride + 1
        for extent, length in zip(x.shape[1:3], kernel.shape[:2], strict=True)
    )
    shape = (x.shape[0], rows, columns, kernel.shape[3])
    return _bilinear(
        functools.partial(_call, "forward", window, shape), functools.partial(ON_CPU.forward, window)
    )(x, kernel)


def _native_input_gradient(window: Window, size: Sequence[int], g: Array, kernel: Array) -> Array:
    if kernel.shape[:2] == (1, 1):
        return ON_CPU.input_gradient(window, size, g, kernel)
    shape = (g.shape[0], *size, kernel.shape[2])
    return _bilinear(
        functools.partial(_call, "input_gradient", window, shape),
        functools.partial(ON_CPU.input_gradient, window, size),
    )(g, kernel)


def _native_kernel_gradient(window: Window, size: Sequence[int], x: Array, g: Array) -> Array:
    shape = (*size, x.shape[3], g.shape[3])
    return _bilinear(
        functools.partial(_call, "kernel_gradient", window, shape),
        functools.partial(ON_CPU.kernel_gradient, window, size),
    )(x, g)


NATIVE = Form(_native_forward, _native_input_gradient, _native_kernel_gradient)


# ---- the choice for one model, and the rules of vmap over agents ----

# Convolutions in one program are faster than in a loop, but take longer to compile.
_MAX_UNROLLED = 8


def convolve(
    x: Array,
    kernel: Array,
    *,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    conv_impl: ConvImpl = "auto",
) -> Array:
    """Correlates images [B, H, W, C] with a kernel [h, w, C / groups, D] into [B, H', W', D]."""
    # Both gradients use the precision of the forward pass, also if they are traced later.
    window = Window(stride, padding, groups, jax.default_matmul_precision.value)
    conv_impl = _chosen(conv_impl)
    if conv_impl == "plain":
        return ordinary(window, x, kernel)
    if groups > 1 and not _is_grouped(conv_impl):
        return _depthwise(window, x, kernel)
    return _convolve_by_rule(conv_impl, window, x, kernel)


def _is_grouped(conv_impl: ConvImpl) -> bool:
    return conv_impl == "fast" and not policy.is_cpu()


def _chosen(conv_impl: ConvImpl) -> ConvImpl:
    """Resolves a conv_impl on this hardware."""
    if conv_impl in ("auto", "native", "fast") and not policy.is_cpu():
        return "fast"
    if conv_impl == "auto":
        return "native" if native.obstacle() is None else "fast"
    return conv_impl


def check_conv_impl(conv_impl: str) -> None:
    """Checks that a conv_impl exists and works here."""
    checks.choice("conv_impl", conv_impl, CONV_IMPLS)
    if conv_impl == "native" and policy.is_cpu():
        native.check()


def _form(conv_impl: ConvImpl, *arrays: Any) -> Form:
    """Returns the form in which one agent's convolution of these arrays is computed."""
    if policy.is_cpu() and any(array.dtype == jnp.bfloat16 for array in arrays):
        return in_float32(_form(conv_impl, *(jax.ShapeDtypeStruct(a.shape, jnp.float32) for a in arrays)))
    if native.used(conv_impl, *arrays):
        return NATIVE
    return ON_CPU if policy.is_cpu() else ORDINARY


def _depthwise(window: Window, x: Array, kernel: Array) -> Array:
    """Convolves each channel with its own filter of the kernel [h, w, 1, C].

    It is one element-wise product per entry of the kernel, so agents are just another axis.
    """
    inputs = taps(window, x, kernel.shape[:2])
    terms = [
        tap * kernel[i, j].reshape(1, 1, 1, -1) for i, row in enumerate(inputs) for j, tap in enumerate(row)
    ]
    return functools.reduce(jnp.add, terms)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _convolve_by_rule(conv_impl: ConvImpl, window: Window, x: Array, kernel: Array) -> Array:
    return _forward(conv_impl, window)(x, kernel)


def _save(conv_impl: ConvImpl, window: Window, x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _forward(conv_impl, window)(x, kernel), (x, kernel)


def _gradients(
    conv_impl: ConvImpl, window: Window, saved: tuple[Array, Array], g: Array
) -> tuple[Array, Array]:
    x, kernel = saved
    return (
        _input_gradient(conv_impl, window, x.shape[1:3])(g, kernel),
        _kernel_gradient(conv_impl, window, kernel.shape[:2])(x, g),
    )


_convolve_by_rule.defvjp(_save, _gradients)


@functools.cache
def _forward(conv_impl: ConvImpl, window: Window) -> Callable[[Array, Array], Array]:
    """Returns the convolution (x, kernel) -> y with the batching rule of a conv_impl."""
    return _with_rule(conv_impl, window, lambda form, *arguments: form.forward(*arguments), shared=1)


@functools.cache
def _input_gradient(
    conv_impl: ConvImpl, window: Window, size: tuple[int, int]
) -> Callable[[Array, Array], Array]:
    """Returns (g, kernel) -> the gradient with respect to x, whose height and width are `size`."""
    return _with_rule(
        conv_impl,
        window,
        lambda form, window, g, kernel: form.input_gradient(window, size, g, kernel),
        shared=1,
    )


@functools.cache
def _kernel_gradient(
    conv_impl: ConvImpl, window: Window, size: tuple[int, int]
) -> Callable[[Array, Array], Array]:
    """Returns (x, g) -> the gradient with respect to the kernel, whose height and width are `size`."""
    return _with_rule(
        conv_impl, window, lambda form, window, x, g: form.kernel_gradient(window, size, x, g), shared=None
    )


def _with_rule(
    conv_impl: ConvImpl, window: Window, run: Callable[..., Array], shared: int | None
) -> Callable[[Array, Array], Array]:
    """Gives `run(form, window, left, right)` the form for one agent, and the batching rule of a conv_impl.

    `shared` is the position of the argument that all images of a batch share. If vmap does not batch it, the
    new axis is just more images.
    """

    @custom_vmap
    def operation(left: Array, right: Array) -> Array:
        return run(_form(conv_impl, left, right), window, left, right)

    @operation.def_vmap
    def rule(axis_size: int, in_batched: list[bool], left: Array, right: Array) -> tuple[Any, bool]:
        arguments = (left, right)
        if shared is not None and not in_batched[shared]:
            merged = operation(left.reshape(-1, *left.shape[2:]), right)
            return merged.reshape(axis_size, -1, *merged.shape[1:]), True
        if _is_grouped(conv_impl) and all(in_batched):
            together = _with_rule(conv_impl, window._replace(groups=axis_size * window.groups), run, shared)
            return _apart(together(_joined(left), _joined(right)), axis_size), True
        if conv_impl == "patches" or _is_grouped(conv_impl):
            form = BY_PATCHES if conv_impl == "patches" else ORDINARY
            axes = [0 if batched else None for batched in in_batched]
            return jax.vmap(functools.partial(run, form, window), in_axes=axes)(*arguments), True

        def pick(index: Any) -> list[Array]:
            return [a[index] if batched else a for a, batched in zip(arguments, in_batched, strict=True)]

        if conv_impl == "each" or axis_size <= _MAX_UNROLLED:
            return jnp.stack([operation(*pick(index)) for index in range(axis_size)]), True
        return jax.lax.map(lambda index: operation(*pick(index)), jnp.arange(axis_size)), True

    return operation


def _joined(x: Array) -> Array:
    """Makes the agents groups of channels: images [N, B, H, W, C] become [B, H, W, N C], kernels likewise."""
    return jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)


def _apart(x: Array, agents: int) -> Array:
    """Undoes `_joined`: groups of channels become an axis of agents, the first one."""
    return jnp.moveaxis(x.reshape(*x.shape[:-1], agents, -1), -2, 0)
