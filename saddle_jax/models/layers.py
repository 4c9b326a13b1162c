"""The layers that the networks share: convolution, normalisation with non-linearity, linear layer."""

import math
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Key
from saddle_jax.kernels import native
from saddle_jax.kernels.convolution import ConvImpl, convolve
from saddle_jax.kernels.evonorm import GROUPS, Gate, evonorm, evonorm_native, evonorm_plain, native_takes

Norm = Literal["evonorm", "evonorm_sigmoid", "groupnorm"]
NORMS = ("evonorm", "evonorm_sigmoid", "groupnorm")
# The shapes that scale and bias of a norm have in the code that the paper builds on.
NORM_SHAPES = {"evonorm": (1, -1, 1, 1), "evonorm_sigmoid": (1, -1, 1, 1), "groupnorm": (-1,)}
Initializer = Callable[..., Any]

# GroupNorm's number of groups and epsilon in the code that the paper builds on.
_GROUPNORM_GROUPS, _GROUPNORM_FLOOR = 2, 1e-5


def he_normal_by_outputs(key: Key, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Draws a kernel [h, w, C, D] from a normal distribution of variance 2 / (h w D), as in ResNets."""
    height, width, _, outputs = shape
    return math.sqrt(2 / (height * width * outputs)) * jax.random.normal(key, shape, dtype)


def uniform_by_inputs(key: Key, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Draws uniformly from +-1 / sqrt(product of all axes but the last), PyTorch's default."""
    return _uniform(key, shape, math.prod(shape[:-1]), dtype)


def _uniform(key: Key, shape: tuple[int, ...], fan_in: int, dtype: Any) -> Array:
    bound = 1 / math.sqrt(fan_in)
    return jax.random.uniform(key, shape, dtype, -bound, bound)


class Conv(nn.Module):
    """A square convolution without bias, padded so that stride 1 keeps the size."""

    features: int
    size: int = 3
    stride: int = 1
    depthwise: bool = False
    initializer: Initializer = uniform_by_inputs
    conv_impl: ConvImpl = "auto"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        channels = x.shape[-1]
        groups = channels if self.depthwise else 1
        shape = (self.size, self.size, channels // groups, self.features)
        kernel = self.param("kernel", self.initializer, shape)
        return convolve(
            x,
            kernel,
            stride=self.stride,
            padding=self.size // 2,
            groups=groups,
            conv_impl=self.conv_impl,
        )


class Linear(nn.Module):
    """The linear layer x W + b on vectors [B, C], initialised as in PyTorch."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        inputs = x.shape[-1]

        def uniform(key: Key, shape: tuple[int, ...]) -> Array:
            return _uniform(key, shape, inputs, jnp.float32)

        kernel = self.param("kernel", uniform, (inputs, self.features))
        bias = self.param("bias", uniform, (self.features,))
        result: Array = x @ kernel + bias[None]
        return result


class EvoNorm(nn.Module):
    """EvoNorm-S0 as a layer for images [B, H, W, C]; C must be a multiple of 8.

    The derivative is a custom one; with `conv_impl="plain"` it is that of autodiff. Our own kernels compute
    it if they compute convolutions.
    """

    gate: Gate = "hard_sigmoid"
    conv_impl: ConvImpl = "auto"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        channels = x.shape[-1]
        scale = self.param("scale", nn.initializers.ones, (channels,), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (channels,), jnp.float32)
        if native_takes(self.gate, x) and native.used(self.conv_impl, x, scale, bias):
            return evonorm_native(x, scale, bias)
        run = evonorm_plain if self.conv_impl == "plain" else evonorm
        return run(self.gate, x, scale, bias)


class Activation(nn.Module):
    """Normalisation and non-linearity in one: EvoNorm, or GroupNorm and ReLU.

    The last one of a residual branch has no ReLU (`is_last`). EvoNorm includes its non-linearity.
    """

    norm: Norm = "evonorm"
    conv_impl: ConvImpl = "auto"
    is_last: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        checks.choice("norm", self.norm, NORMS)
        if self.norm == "groupnorm":
            y = nn.GroupNorm(num_groups=_GROUPNORM_GROUPS, epsilon=_GROUPNORM_FLOOR, name="norm")(x)
            return y if self.is_last else nn.relu(y)
        if x.shape[-1] % GROUPS:
            raise ArgumentError(f"channels must be a multiple of {GROUPS} for EvoNorm, got {x.shape[-1]}")
        gate: Gate = "sigmoid" if self.norm == "evonorm_sigmoid" else "hard_sigmoid"
        return EvoNorm(gate, self.conv_impl, name="norm")(x)


def global_mean(x: Array) -> Array:
    """Averages images [B, H, W, C] over their pixels: [B, C]."""
    return jnp.mean(x, axis=(1, 2))
