"""EvoNorm-S0 (Liu et al., 2020): normalisation and non-linearity in one, without running statistics.

    y = scale * x h(x) / sqrt(var_g(x) + 1e-5) + bias

h is a hard sigmoid, clip(x / 6 + 1/2, 0, 1), or the sigmoid; var_g is the biased variance over the height,
width and channels of one of 8 contiguous groups of channels of a sample. There is no learnable v, as the
paper's parameter counts show.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from saddle_jax.base.types import Array
from saddle_jax.kernels import native

Gate = Literal["hard_sigmoid", "sigmoid"]
GROUPS = 8
_EPSILON = 1e-5


def evonorm_plain(gate: Gate, x: Array, scale: Array, bias: Array) -> Array:
    """Computes EvoNorm as the formula is written; x [B, H, W, C], scale and bias [C]."""
    wide = _wide(x)
    _, deviation = _statistics(wide)
    gated, _ = _gated(gate, wide)
    return (_per_channel(scale) * gated / deviation + _per_channel(bias)).astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def evonorm(gate: Gate, x: Array, scale: Array, bias: Array) -> Array:
    """Computes `evonorm_plain` with a custom derivative: autodiff takes several times as many passes."""
    return evonorm_plain(gate, x, scale, bias)


def save(gate: Gate, x: Array, scale: Array, bias: Array) -> tuple[Array, tuple[Array, ...]]:
    """Returns the result and its residuals: x, scale, and the mean and deviation [B, 1, 1, C]."""
    wide = _wide(x)
    mean, deviation = _statistics(wide)
    gated, _ = _gated(gate, wide)
    y = _per_channel(scale) * gated / deviation + _per_channel(bias)
    return y.astype(x.dtype), (x, scale, mean, deviation)


def gradients(gate: Gate, saved: tuple[Array, ...], g: Array) -> tuple[Array, Array, Array]:
    """Computes the gradients with respect to x, scale and bias from the residuals."""
    # With n(x) = x h(x), s = 1 / sqrt(var + eps), u = scale g and N numbers in a group:
    #   dx = u s n'(x) - (x - mean) s^3 / N sum_group(u n)
    saved_x, scale, mean, deviation = saved
    x, g = _wide(saved_x), _wide(g)
    gated, slope = _gated(gate, x)
    inverse = 1 / deviation  # [B, 1, 1, C], equal within a group
    per_image = jnp.sum(g * gated, axis=(1, 2), keepdims=True)  # [B, 1, 1, C]
    weighted = _group_sum(per_image * _per_channel(scale))
    count = x.shape[1] * x.shape[2] * (x.shape[3] // GROUPS)
    pull = weighted * inverse**3 / count
    dx = g * (_per_channel(scale) * inverse) * slope - (x - mean) * pull
    dscale, dbias = jnp.sum(per_image * inverse, axis=(0, 1, 2)), jnp.sum(g, axis=(0, 1, 2))
    return dx.astype(saved_x.dtype), dscale.astype(scale.dtype), dbias.astype(scale.dtype)


evonorm.defvjp(save, gradients)


def _wide(x: Array) -> Array:
    """Returns x in a dtype for sums: bfloat16 as float32, all others as they are."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _gated(gate: Gate, x: Array) -> tuple[Array, Array]:
    """Returns n(x) = x h(x) and its derivative, element by element."""
    if gate == "sigmoid":
        h = jax.nn.sigmoid(x)
        return x * h, h * (1 + x * (1 - h))
    h = jnp.clip(x / 6 + 0.5, 0, 1)
    inside = (x > -3) & (x < 3)
    return x * h, jnp.where(inside, x / 3 + 0.5, h)


def _statistics(x: Array) -> tuple[Array, Array]:
    """Returns mean and sqrt(var + eps) of each group, repeated over its channels: [B, 1, 1, C]."""
    count = x.shape[1] * x.shape[2] * (x.shape[3] // GROUPS)
    mean = _group_sum(jnp.sum(x, axis=(1, 2), keepdims=True)) / count
    variance = _group_sum(jnp.sum(jnp.square(x - mean), axis=(1, 2), keepdims=True)) / count
    return mean, jnp.sqrt(variance + _EPSILON)


def _group_sum(per_channel: Array) -> Array:
    """Sums [B, 1, 1, C] within each group and gives every channel its group's sum: [B, 1, 1, C]."""
    batch, channels = per_channel.shape[0], per_channel.shape[3]
    sums = per_channel.reshape(batch, 1, 1, GROUPS, channels // GROUPS).sum(axis=4)
    return jnp.repeat(sums, channels // GROUPS, axis=3)


def _per_channel(x: Array) -> Array:
    return x.reshape(1, 1, 1, -1)


# ---- with the hard sigmoid, by our own kernels (native_evonorm.h) ----
#
# XLA takes a pass over all images for each sum and for each result. The kernels process one image at a time,
# which stays in the caches: on one core they need about a fifth of the time. Derivatives of the kernels are
# those of XLA's form, see `evonorm`: first derivatives are kernels too, so this matters only for Hessians.


_LANES = 16  # of the widest vectors: one or two pixels must fill whole ones


def native_takes(gate: Gate, x: Array) -> bool:
    """Returns whether the kernels support images [B, H, W, C] of this shape and dtype."""
    _, height, width, channels = x.shape
    return gate == "hard_sigmoid" and (channels % _LANES == 0 or height * width % 2 == 0)


@jax.custom_vjp
def evonorm_native(x: Array, scale: Array, bias: Array) -> Array:
    """Computes `evonorm.evonorm` with its hard sigmoid; x [B, H, W, C], scale and bias [C]."""
    return _save(x, scale, bias)[0]


def _save(x: Array, scale: Array, bias: Array) -> tuple[Array, tuple[Array, ...]]:
    y, mean, deviation = _forward(x, scale, bias)
    return y, (x, scale, mean, deviation)


def _gradients(saved: tuple[Array, ...], g: Array) -> tuple[Array, Array, Array]:
    result: tuple[Array, Array, Array] = _backward(*saved, g)
    return result


evonorm_native.defvjp(_save, _gradients)


def _differentiable(kernel: Callable[..., Any], form: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a kernel the derivatives of XLA's form of the same function."""
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
    y, (_, _, mean, deviation) = save("hard_sigmoid", x, scale, bias)
    return y, mean, deviation


def _backward_by_kernel(x: Array, scale: Array, mean: Array, deviation: Array, g: Array) -> Any:
    shapes = (x.shape, scale.shape, scale.shape)
    arrays = (x, scale, mean, deviation, g)
    return tuple(native.call("evonorm_gradients", shapes, *arrays, over="broadcast_all"))


def _backward_by_xla(x: Array, scale: Array, mean: Array, deviation: Array, g: Array) -> Any:
    return gradients("hard_sigmoid", (x, scale, mean, deviation), g)


_forward = _differentiable(_forward_by_kernel, _forward_by_xla)
_backward = _differentiable(_backward_by_kernel, _backward_by_xla)
