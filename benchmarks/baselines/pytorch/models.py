"""The networks of `saddle_jax.models` as functions of named tensors; images [B, C, H, W].

Names are those of the flax parameters, such as "stage1_block1/conv1/kernel"; kernels are [D, C, h, w] and
linear weights [outputs, inputs].
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

Tensor: TypeAlias = Any  # torch.Tensor; PyTorch may not be installed for type checks
Tensors: TypeAlias = dict[str, Tensor]
Norm: TypeAlias = Callable[[Tensors, str, Tensor], Tensor]
Network: TypeAlias = Callable[..., Tensor]  # (tensors, images, norm=evonorm) -> logits

_GROUPS = 8
_EPSILON = 1e-5


class Layout(NamedTuple):
    """Where each tensor lies in a flat vector [P]."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]  # in PyTorch's layout

    def tensors(self, vector: Tensor) -> Tensors:
        """Returns the named tensors of one model [P], as views."""
        parts = vector.split([math.prod(shape) for shape in self.shapes])
        return {
            name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }


def evonorm(p: Tensors, name: str, x: Tensor) -> Tensor:
    """Computes scale * x h(x) / sqrt(var_g(x) + 1e-5) + bias; x h(x) with a hard sigmoid h is hardswish."""
    # Summing per channel before grouping is faster than Tensor.var over groups, especially in channels-last.
    width, count = x.shape[1] // _GROUPS, x[0].numel() // _GROUPS
    pixels = x.flatten(2)
    sums, squares = pixels.sum(2), torch.linalg.vecdot(pixels, pixels)  # [B, C]
    mean, square = (total.unflatten(1, (_GROUPS, width)).sum(2) / count for total in (sums, squares))
    inverse = torch.rsqrt(square - mean * mean + _EPSILON).repeat_interleave(width, 1)  # [B, C]
    slope = (p[f"{name}/norm/scale"] * inverse)[:, :, None, None]
    return torch.addcmul(p[f"{name}/norm/bias"][:, None, None], F.hardswish(x), slope)


def textbook_evonorm(p: Tensors, name: str, x: Tensor) -> Tensor:
    """Computes `evonorm` literally by its formula, as published code does."""
    grouped = x.unflatten(1, (_GROUPS, -1))  # [B, G, C / G, H, W]
    variance = grouped.var((2, 3, 4), correction=0, keepdim=True).expand_as(grouped)
    deviation = torch.sqrt(variance + _EPSILON).reshape(x.shape)
    scale, bias = (p[f"{name}/norm/{part}"][:, None, None] for part in ("scale", "bias"))
    return x * F.hardsigmoid(x) / deviation * scale + bias


NORMS: dict[str, Norm] = {"few passes": evonorm, "textbook": textbook_evonorm}


def convolve(p: Tensors, name: str, x: Tensor, stride: int = 1) -> Tensor:
    """Convolves without bias, padded so that stride 1 keeps the size."""
    kernel = p[f"{name}/kernel"]
    return F.conv2d(x, kernel, stride=stride, padding=kernel.shape[2] // 2)


def linear(p: Tensors, name: str, x: Tensor) -> Tensor:
    """Maps vectors [B, C] to [B, D] by weights and a bias."""
    return F.linear(x, p[f"{name}/kernel"], p[f"{name}/bias"])


def resnet(blocks: int, p: Tensors, x: Tensor, norm: Norm = evonorm) -> Tensor:
    """Computes the logits of a ResNet with `blocks` per stage (3: ResNet-20, 1: ResNet-8)."""
    x = norm(p, "stem_norm", convolve(p, "stem", x))
    for stage in range(3):
        for block in range(blocks):
            name = f"stage{stage + 1}_block{block + 1}"
            stride = 2 if stage > 0 and block == 0 else 1
            y = norm(p, f"{name}/norm1", convolve(p, f"{name}/conv1", x, stride))
            y = norm(p, f"{name}/norm2", convolve(p, f"{name}/conv2", y))
            if stride > 1:
                x = norm(p, f"{name}/shortcut_norm", convolve(p, f"{name}/shortcut", x, stride))
            x = x + y
    return linear(p, "linear", x.mean((2, 3)))


def cnn(p: Tensors, x: Tensor, norm: Norm = evonorm) -> Tensor:
    """Computes the logits of three convolutions, the last two of stride 2."""
    for layer in (1, 2, 3):
        x = norm(p, f"norm{layer}", convolve(p, f"conv{layer}", x, 1 if layer == 1 else 2))
    return linear(p, "linear", x.mean((2, 3)))


def mlp(p: Tensors, x: Tensor, norm: Norm = evonorm) -> Tensor:
    """Computes the logits of two layers of ReLUs on flattened images; it has no norm."""
    x = F.relu(linear(p, "hidden1", x.flatten(1)))
    return linear(p, "linear", F.relu(linear(p, "hidden2", x)))


NETWORKS: dict[str, Network] = {
    "resnet20": functools.partial(resnet, 3),
    "resnet8": functools.partial(resnet, 1),
    "cnn": cnn,
    "mlp": mlp,
}
