"""Small networks, for the embedded data, for text, for thousands of agents, and for tests."""

import functools
import math
from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp

from saddle_jax.base.types import Array
from saddle_jax.kernels.convolution import ConvImpl
from saddle_jax.models.layers import Activation, Conv, Linear, Norm, global_mean


class CNN(nn.Module):
    """A small network: 3x3 convolutions, all but the first of stride 2; global mean; linear layer."""

    num_classes: int
    widths: Sequence[int] = (16, 32, 64)
    strides: Sequence[int] = (1, 2, 2)
    norm: Norm = "evonorm"
    conv_impl: ConvImpl = "auto"

    @property
    def smallest_image(self) -> int:
        """The smallest height and width at which every layer has pixels."""
        return math.prod(self.strides)

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for layer, (width, stride) in enumerate(zip(self.widths, self.strides, strict=True), start=1):
            x = Conv(width, stride=stride, conv_impl=self.conv_impl, name=f"conv{layer}")(x)
            x = Activation(self.norm, self.conv_impl, name=f"norm{layer}")(x)
        return Linear(self.num_classes, name="linear")(global_mean(x))


# A quarter of the work of `cnn`, for hundreds of runs of 200 epochs on two cores.
strided_cnn = functools.partial(CNN, strides=(2, 2, 2))


class MLP(nn.Module):
    """A network of linear layers and ReLUs on flattened images; without hidden ones, logistic regression."""

    num_classes: int
    hidden: Sequence[int] = (128, 64)

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = x.reshape(x.shape[0], -1)
        for layer, width in enumerate(self.hidden):
            x = nn.relu(Linear(width, name=f"hidden{layer + 1}")(x))
        return Linear(self.num_classes, name="linear")(x)


logistic = functools.partial(MLP, hidden=())


class Product(nn.Module):
    """The product x W of flattened inputs, with weights initialised to zero and no bias."""

    num_classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = x.reshape(x.shape[0], -1)
        return x @ self.param("kernel", nn.initializers.zeros, (x.shape[-1], self.num_classes))


# ---- text: from characters [B, T] to logits of each next one, [B, T, V] ----


class CausalMLP(nn.Module):
    """A network of two hidden layers on the last eight characters (Bengio et al., 2003).

    SGD, which decentralized methods use, trains it in a fraction of the time of a GRU or a transformer of
    the same size. Positions before the first character are zeros.
    """

    num_classes: int
    context: int = 8
    embedding: int = 24
    width: int = 160

    @nn.compact
    def __call__(self, tokens: Array) -> Array:
        batch, length = tokens.shape
        table = self.param("embedding", nn.initializers.normal(1.0), (self.num_classes, self.embedding))
        vectors = jnp.pad(table[tokens.astype(jnp.int32)], ((0, 0), (self.context - 1, 0), (0, 0)))
        recent = [vectors[:, start : start + length] for start in range(self.context)]
        x = jnp.concatenate(recent, axis=-1).reshape(batch * length, -1)
        first = nn.LayerNorm(name="norm")(nn.relu(Linear(self.width, name="hidden1")(x)))
        second = nn.relu(Linear(self.width, name="hidden2")(first))
        logits = Linear(self.num_classes, name="linear")(jnp.concatenate([first, second], axis=-1))
        return logits.reshape(batch, length, self.num_classes)
