"""Convolutions by kernels of our own (native.py has how JAX calls them).

A derivative of such a kernel, which is a convolution again, is left to XLA: first derivatives are kernels
too, because convolution.py writes them, so this matters only for Hessians.

The gain is in 3x3 convolutions of stride 1, which Winograd's tiles compute with fewer products
(native_winograd.h), and in the gradients of kernels, for which XLA's library has no fast form with few
channels. 1x1 convolutions stay matrix products, but for the gradient of their kernel.
"""

import functools
from collections.abc import Callable, Sequence

import jax

from saddle_jax.base.types import Array
from saddle_jax.kernels import native
from saddle_jax.kernels.convolution_forms import ON_CPU, Form, Window


def _call(name: str, window: Window, shape: Sequence[int], left: Array, right: Array) -> Array:
    options = {"stride": window.stride, "padding": window.padding}
    return native.call(name, [shape], left, right, over="sequential", **options)


def _bilinear(
    kernel: Callable[[Array, Array], Array], by_xla: Callable[[Array, Array], Array]
) -> Callable[[Array, Array], Array]:
    """Gives a kernel the derivatives that XLA's form of the same product has."""
    operation = jax.custom_jvp(kernel)

    @operation.defjvp
    def _derivative(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
        (left, right), (left_dot, right_dot) = primals, tangents
        return operation(left, right), by_xla(left_dot, right) + by_xla(left, right_dot)

    return operation


def _forward(window: Window, x: Array, kernel: Array) -> Array:
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


def _input_gradient(window: Window, size: Sequence[int], g: Array, kernel: Array) -> Array:
    if kernel.shape[:2] == (1, 1):
        return ON_CPU.input_gradient(window, size, g, kernel)
    shape = (g.shape[0], *size, kernel.shape[2])
    return _bilinear(
        functools.partial(_call, "input_gradient", window, shape),
        functools.partial(ON_CPU.input_gradient, window, size),
    )(g, kernel)


def _kernel_gradient(window: Window, size: Sequence[int], x: Array, g: Array) -> Array:
    shape = (*size, x.shape[3], g.shape[3])
    return _bilinear(
        functools.partial(_call, "kernel_gradient", window, shape),
        functools.partial(ON_CPU.kernel_gradient, window, size),
    )(x, g)


NATIVE = Form(_forward, _input_gradient, _kernel_gradient)
