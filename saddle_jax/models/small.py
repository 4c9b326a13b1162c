"""Small networks: for the embedded data, for thousands of agents, for tests."""

import functools
from collections.abc import Sequence

import flax.linen as nn

from saddle_jax.base.types import Array
from saddle_jax.models.convolution import Lowering
from saddle_jax.models.layers import Activation, Conv, Linear, Norm, global_mean


class CNN(nn.Module):
    """A small network: three 3x3 convolutions, the last two of stride 2; global mean; linear layer."""

    smallest_image = 4  # the least height and width that leave something to every layer

    num_classes: int
    widths: Sequence[int] = (16, 32, 64)
    norm: Norm = "evonorm"
    lowering: Lowering = "auto"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for layer, width in enumerate(self.widths):
            x = Conv(width, stride=1 if layer == 0 else 2, lowering=self.lowering, name=f"conv{layer + 1}")(x)
            x = Activation(self.norm, self.lowering, name=f"norm{layer + 1}")(x)
        return Linear(self.num_classes, name="linear")(global_mean(x))


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
    """The product x W of flattened inputs and weights that are zero at first, without a bias."""

    num_classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = x.reshape(x.shape[0], -1)
        return x @ self.param("kernel", nn.initializers.zeros, (x.shape[-1], self.num_classes))
