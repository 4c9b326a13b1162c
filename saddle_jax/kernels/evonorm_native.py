"""EvoNorm-S0 with the hard sigmoid by kernels of our own (native_evonorm.h).

XLA takes a pass over all images for each sum and for each result. The kernels take image by image, which
stays in the caches: on one core they need about a fifth of the time. Derivatives of the kernels are left to
XLA's form, see `evonorm`: first derivatives are kernels too, so this matters only for Hessians.
"""

from collections.abc import Callable
from typing import Any

import jax

from saddle_jax.base.types import Array
from saddle_jax.kernels import evonorm as by_xla
from saddle_jax.kernels import native

_LANES = 16  # of the widest vectors: one or two pixels must fill whole ones


def takes(gate: by_xla.Gate, x: Array) -> bool:
    """Tells whether the kernels are for images [B, H, W, C] like these."""
    _, height, width, channels = x.shape
    return gate == "hard_sigmoid" and (channels % _LANES == 0 or height * width % 2 == 0)


@jax.custom_vjp
def evonorm(x: Array, scale: Array, bias: Array) -> Array:
    """Computes `evonorm.evonorm` with its hard sigmoid; x [B, H, W, C], scale and bias [C]."""
    return _save(x, scale, bias)[0]


def _save(x: Array, scale: Array, bias: Array) -> tuple[Array, tuple[Array, ...]]:
    y, mean, deviation = _forward(x, scale, bias)
    return y, (x, scale, mean, deviation)


def _gradients(saved: tuple[Array, ...], g: Array) -> tuple[Array, Array, Array]:
    return _backward(*saved, g)


evonorm.defvjp(_save, _gradients)


def _differentiable(kernel: Callable[..., Any], form: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a kernel the derivatives that XLA's form of the same function has."""
    operation = jax.custom_jvp(kernel)

    @operation.defjvp
    def _derivative(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Any, Any]:
        return operation(*primals), jax.jvp(form, primals, tangents)[1]

    return operation


def _forward_by_kernel(x: Array, scale: Array, bias: Array) -> tuple[Array, Array, Array]:
    per_image = (x.shape[0], 1, 1, x.shape[3])
    shapes = (x.shape, per_image, per_image)
    return tuple(native.call("evonorm", shapes, x, scale, bias, over="broadcast_all"))


def _forward_by_xla(x: Array, scale: Array, bias: Array) -> tuple[Array, Array, Array]:
    y, (_, _, mean, deviation) = by_xla.save("hard_sigmoid", x, scale, bias)
    return y, mean, deviation


def _backward_by_kernel(x: Array, scale: Array, mean: Array, deviation: Array, g: Array) -> Any:
    shapes = (x.shape, scale.shape, scale.shape)
    arrays = (x, scale, mean, deviation, g)
    return tuple(native.call("evonorm_gradients", shapes, *arrays, over="broadcast_all"))


def _backward_by_xla(x: Array, scale: Array, mean: Array, deviation: Array, g: Array) -> Any:
    return by_xla.gradients("hard_sigmoid", (x, scale, mean, deviation), g)


_forward = _differentiable(_forward_by_kernel, _forward_by_xla)
_backward = _differentiable(_backward_by_kernel, _backward_by_xla)
