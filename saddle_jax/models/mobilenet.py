"""MobileNet-V2 for 32x32 images (Sandler et al., 2018), in the form with a stride-1 stem.

EvoNorm's non-linearity also follows the projection (no linear bottleneck); with GroupNorm there is no ReLU
after the norms of the projection and the shortcut. A block of stride 1 that changes the width has a 1x1
convolution as its shortcut.
"""

import functools
import re

import flax.linen as nn

from saddle_jax.base.types import Array
from saddle_jax.kernels.convolution import ConvImpl
from saddle_jax.models.layers import NORM_SHAPES, Activation, Conv, Linear, Norm, global_mean
from saddle_jax.models.state_dict import TreeLayout

# expansion, output channels, blocks, stride of the first block
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _layer(place: re.Match[str]) -> str:
    """Returns the place of a block among those of all stages."""
    before = sum(count for _, _, count, _ in STAGES[: int(place[1]) - 1])
    return f"layers/{before + int(place[2]) - 1}/"


_TORCH_NAMES = (
    ("^stem", "conv1"),
    ("^head", "conv2"),
    (r"^stage(\d+)_block(\d+)/", _layer),
    ("/expand", "/conv1"),
    ("/depthwise", "/conv2"),
    ("/project", "/conv3"),
    ("/shortcut/", "/shortcut/0/"),
    ("/shortcut_norm/norm/", "/shortcut/1/"),
    (r"conv(\d)_norm/norm/", r"bn\1/"),
)


class Block(nn.Module):
    """An inverted residual: 1x1 expansion, 3x3 depthwise convolution, 1x1 projection, and a shortcut."""

    features: int
    expansion: int
    stride: int
    norm: Norm
    conv_impl: ConvImpl

    @nn.compact
    def __call__(self, x: Array) -> Array:
        conv = functools.partial(Conv, conv_impl=self.conv_impl)
        activation = functools.partial(Activation, self.norm, self.conv_impl)
        hidden = self.expansion * x.shape[-1]
        y = activation(name="expand_norm")(conv(hidden, size=1, name="expand")(x))
        y = conv(hidden, stride=self.stride, depthwise=True, name="depthwise")(y)
        y = activation(name="depthwise_norm")(y)
        y = activation(is_last=True, name="project_norm")(conv(self.features, size=1, name="project")(y))
        if self.stride != 1:
            return y
        if x.shape != y.shape:
            shortcut = conv(self.features, size=1, name="shortcut")(x)
            x = activation(is_last=True, name="shortcut_norm")(shortcut)
        return x + y


class MobileNetV2(nn.Module):
    """MobileNet-V2: a stem, seven stages, a wide 1x1 convolution, global mean, linear layer."""

    smallest_image = 8  # the smallest height and width at which every stage has pixels

    num_classes: int
    norm: Norm = "evonorm"
    conv_impl: ConvImpl = "auto"

    @property
    def torch_layout(self) -> TreeLayout:
        """The names of the code that the paper builds on."""
        return TreeLayout(_TORCH_NAMES, NORM_SHAPES[self.norm])

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = Conv(32, conv_impl=self.conv_impl, name="stem")(x)
        x = Activation(self.norm, self.conv_impl, name="stem_norm")(x)
        for stage, (expansion, features, count, first_stride) in enumerate(STAGES):
            for block in range(count):
                stride = first_stride if block == 0 else 1
                name = f"stage{stage + 1}_block{block + 1}"
                x = Block(features, expansion, stride, self.norm, self.conv_impl, name=name)(x)
        x = Conv(1280, size=1, conv_impl=self.conv_impl, name="head")(x)
        x = Activation(self.norm, self.conv_impl, name="head_norm")(x)
        return Linear(self.num_classes, name="linear")(global_mean(x))
