"""ResNet-20 and ResNet-8 for 32x32 images (He et al., 2016), ResNet-18 for 224x224.

As in the code that the paper builds on, EvoNorm, which includes its non-linearity, follows both convolutions
of a block and that of the shortcut, and nothing follows the sum. With GroupNorm a ReLU follows the norm of
the first convolution, and the sum.
"""

import functools
from collections.abc import Callable, Sequence

import flax.linen as nn

from saddle_jax.base.types import Array
from saddle_jax.kernels.convolution import ConvImpl
from saddle_jax.models.layers import (
    NORM_SHAPES,
    Activation,
    Conv,
    Linear,
    Norm,
    global_mean,
    he_normal_by_outputs,
)
from saddle_jax.models.state_dict import TreeLayout

_TORCH_NAMES = (
    ("^stem/", "conv1/"),
    ("^stem_norm/norm/", "bn1/"),
    (r"^stage(\d+)_block(\d+)/", lambda place: f"layer{place[1]}/{int(place[2]) - 1}/"),
    (r"/norm(\d)/norm/", r"/bn\1/"),
    ("/shortcut/", "/downsample/0/"),
    ("/shortcut_norm/norm/", "/downsample/1/"),
    ("^linear/", "fc/"),
)


class Block(nn.Module):
    """A block of two 3x3 convolutions and a shortcut, a 1x1 convolution where the shape changes."""

    features: int
    stride: int
    norm: Norm
    conv_impl: ConvImpl

    @nn.compact
    def __call__(self, x: Array) -> Array:
        conv = functools.partial(
            Conv, self.features, initializer=he_normal_by_outputs, conv_impl=self.conv_impl
        )
        activation = functools.partial(Activation, self.norm, self.conv_impl)
        y = activation(name="norm1")(conv(stride=self.stride, name="conv1")(x))
        y = activation(is_last=True, name="norm2")(conv(name="conv2")(y))
        if x.shape != y.shape:
            x = conv(size=1, stride=self.stride, name="shortcut")(x)
            x = activation(is_last=True, name="shortcut_norm")(x)
        return nn.relu(x + y) if self.norm == "groupnorm" else x + y


class ResNet(nn.Module):
    """A ResNet: stages of blocks, each but the first at half the resolution, global mean, linear layer."""

    num_classes: int
    blocks: Sequence[int]  # per stage
    widths: Sequence[int]  # per stage
    imagenet_stem: bool = False  # 7x7 convolution and pooling, to a quarter of the resolution
    norm: Norm = "evonorm"
    conv_impl: ConvImpl = "auto"

    @property
    def smallest_image(self) -> int:
        """The smallest height and width at which every stage has pixels."""
        result: int = 2 ** (len(self.blocks) - 1) * (4 if self.imagenet_stem else 1)
        return result

    @property
    def torch_layout(self) -> TreeLayout:
        """The names of the code that the paper builds on."""
        return TreeLayout(_TORCH_NAMES, NORM_SHAPES[self.norm])

    @nn.compact
    def __call__(self, x: Array) -> Array:
        size, stride = (7, 2) if self.imagenet_stem else (3, 1)
        stem = Conv(
            self.widths[0],
            size,
            stride,
            initializer=he_normal_by_outputs,
            conv_impl=self.conv_impl,
            name="stem",
        )
        x = Activation(self.norm, self.conv_impl, name="stem_norm")(stem(x))
        if self.imagenet_stem:
            pool: Callable[..., Array] = nn.max_pool
            x = pool(x, (3, 3), strides=(2, 2), padding=[(1, 1), (1, 1)])
        for stage, (count, width) in enumerate(zip(self.blocks, self.widths, strict=True)):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                x = Block(
                    width, stride, self.norm, self.conv_impl, name=f"stage{stage + 1}_block{block + 1}"
                )(x)
        return Linear(self.num_classes, name="linear")(global_mean(x))


resnet20 = functools.partial(ResNet, blocks=(3, 3, 3), widths=(16, 32, 64))
resnet8 = functools.partial(ResNet, blocks=(1, 1, 1), widths=(16, 32, 64))
resnet18 = functools.partial(ResNet, blocks=(2, 2, 2, 2), widths=(64, 128, 256, 512), imagenet_stem=True)
