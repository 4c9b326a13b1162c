"""Convolutions by kernels of our own (native.cc), which JAX calls through its foreign-function interface.

They are compiled when the first of them is traced (devices/compiler.py), and only for float32 on a CPU. A
derivative of such a kernel, which is a convolution again, is left to XLA: first derivatives are kernels
too, because convolution.py writes them, so this matters only for Hessians.

The gain is in the gradients of kernels, for which XLA's library has no fast form with few channels. 1x1
convolutions stay matrix products, but for the gradient of their kernel.
"""

import functools
import pathlib
import threading
from collections.abc import Callable, Sequence

import jax
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array
from saddle_jax.devices import compiler
from saddle_jax.models.convolution_forms import ON_CPU, Form, Window

SOURCE = pathlib.Path(__file__).parent / "native.cc"
_OPERATIONS = ("forward", "input_gradient", "kernel_gradient")
_lock = threading.Lock()


def obstacle() -> str | None:
    """Returns in one line why the kernels cannot be used here; None if they can, and are then loaded."""
    with _lock:  # JAX traces in several threads
        return _loaded()[1]


def check() -> None:
    """Checks that the kernels can be used, for a user who has asked for them by name."""
    if reason := obstacle():
        raise ArgumentError(f"lowering must be one that works here, got 'native': {reason}")


def takes(*arrays: Array) -> bool:
    """Returns whether the kernels are for arrays like these: float32, and not empty."""
    return all(array.dtype == np.float32 and array.size for array in arrays)


@functools.cache
def _loaded() -> tuple[str, str | None]:
    """Makes the kernels known to JAX. Returns the end of their names there, and why there are none."""
    try:
        library = compiler.load(SOURCE)
    except compiler.UnavailableError as error:
        return "", str(error)
    for name in _OPERATIONS:
        function = jax.ffi.pycapsule(getattr(library.functions, name))
        jax.ffi.register_ffi_target(f"saddle_{name}_{library.key}", function, platform="cpu")
    return library.key, None


def _call(name: str, window: Window, shape: Sequence[int], left: Array, right: Array) -> Array:
    check()
    result = jax.ShapeDtypeStruct(tuple(shape), np.dtype(np.float32))
    target = f"saddle_{name}_{_loaded()[0]}"
    options = {"stride": np.int64(window.stride), "padding": np.int64(window.padding)}
    return jax.ffi.ffi_call(target, result, vmap_method="sequential")(left, right, **options)


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
