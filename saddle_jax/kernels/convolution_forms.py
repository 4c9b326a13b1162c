"""Three ways to write a convolution and its two gradients: ordinary, by patches, and fast on XLA:CPU.

XLA:CPU hands a convolution to its library of kernels (YNNPACK) only if it is images [B, H, W, C] by a
kernel [h, w, C, D], the images are not dilated, neither kernel nor result is larger than they are, and
there are more than 16 channels in or out. Any other runs at half that speed or less, and within a loop
(`lax.map`, `lax.scan`) at a twentieth of it. So `ON_CPU` writes all three as such a convolution where that is
possible, and as a matrix product where it is not.

Measured on one core, 3x3, batch 32, in GFLOP/s of CPU time, the ordinary form first:

    forward, 32x32           3 -> 16 channels 13 | 46,  16 -> 16 channels 49 | 70
    input gradient, 32x32    16 -> 16 channels 48 | 70,  16 -> 32 channels of stride 2 50 | 59
    kernel gradient          the same, but 1x1 of stride 2: 16 -> 32 channels 12 | 49,  32 -> 64 18 | 43
    within a loop, stride 2  input gradient 3.6 | 52,  kernel gradient 0.9 | 34
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base.types import Array

# XLA:CPU does not use its library for a convolution with at most this many channels in and out.
_NARROW = 16


class Window(NamedTuple):
    """What defines a convolution apart from its tensors."""

    stride: int
    padding: int  # zeros on each side, top and bottom, left and right
    groups: int  # of channels with filters of their own: 1, or as many as channels for a depthwise one
    precision: str | None = None  # of its products, as JAX names them; None is the hardware's own


class Form(NamedTuple):
    """One way to compute a convolution of images x [B, H, W, C] with a kernel [h, w, C / groups, D]."""

    forward: Callable[[Window, Array, Array], Array]  # (window, x, kernel) -> y
    input_gradient: Callable[[Window, Sequence[int], Array, Array], Array]  # (window, (H, W), g, kernel)
    kernel_gradient: Callable[[Window, Sequence[int], Array, Array], Array]  # (window, (h, w), x, g)


def _form_of(forward: Callable[[Window, Array, Array], Array]) -> Form:
    """Completes a forward pass with its two gradients, which are its transposes: JAX writes them."""

    def input_gradient(window: Window, size: Sequence[int], g: Array, kernel: Array) -> Array:
        shape = jax.ShapeDtypeStruct((g.shape[0], *size, window.groups * kernel.shape[2]), g.dtype)
        (result,) = jax.linear_transpose(lambda x: forward(window, x, kernel), shape)(g)
        return result

    def kernel_gradient(window: Window, size: Sequence[int], x: Array, g: Array) -> Array:
        shape = jax.ShapeDtypeStruct((*size, x.shape[3] // window.groups, g.shape[3]), g.dtype)
        (result,) = jax.linear_transpose(lambda kernel: forward(window, x, kernel), shape)(g)
        return result

    return Form(forward, input_gradient, kernel_gradient)


def in_float32(form: Form) -> Form:
    """Computes convolutions of narrower numbers in float32, and rounds the results to what came in."""

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
    """Computes a convolution just as `jax.lax` does."""
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
    """Returns what each entry of a kernel of this size is multiplied with, each [B, H', W', C]."""
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
    """Computes it as a matrix product: patches [B H' W', h w C] times the kernel [h w C, D]."""
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
    if min(kernel.shape[:2]) < max(window.stride, 2):  # 1x1, or some inputs meet no entry of the kernel
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
    """Computes n neighbouring columns of the result as one column of n D channels, to have more than 16.

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

    Input row s a + q meets those rows i of the kernel for which s divides q + padding - i, at row
    a + (q + padding - i) / s of g. So each phase q is a convolution of stride 1 with a part of the kernel.
    The same holds for the columns: their s phases are channels of one convolution, and zero where no entry of
    the kernel is met.
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
    """Returns whether XLA:CPU uses its library for this; the first three are heights and widths."""
    fits = all(max(sizes) <= extent for extent, *sizes in zip(images, kernel, result, strict=True))
    return fits and max(inputs, outputs) > _NARROW


def _high(extent: int, length: int, count: int, stride: int, low: int) -> int:
    """Returns the padding at the end (negative: the cut) with which such a kernel fits `count` times."""
    return (count - 1) * stride + length - low - extent


ON_CPU = Form(_cpu_forward, _cpu_input_gradient, _cpu_kernel_gradient)
