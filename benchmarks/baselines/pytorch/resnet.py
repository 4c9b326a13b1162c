"""ResNet-20 with GroupNorm as a torch module, and a step of D-PSGD on one module for each agent.

It is written as a PyTorch user would write it: modules, autograd, and gossip on each parameter of all agents.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn

from benchmarks.baselines.pytorch.models import Tensor


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(2, width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(2, width)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            convolution = nn.Conv2d(inputs, width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.GroupNorm(2, width))

    def forward(self, x: Tensor) -> Tensor:
        """Computes images [B, C, H, W]."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet20(nn.Module):
    """ResNet-20 for 32x32 images; `blocks` 1 is ResNet-8."""

    def __init__(self, blocks: int = 3, channels: int = 3):
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(channels, 16, 3, 1, 1, bias=False),
            nn.GroupNorm(2, 16),
            nn.ReLU(),
        ]
        inputs = 16
        for width in (16, 32, 64):
            for block in range(blocks):
                layers.append(Block(inputs, width, 2 if block == 0 and width > 16 else 1))
                inputs = width
        self.features, self.linear = nn.Sequential(*layers), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Computes logits [B, 10] of images [B, C, H, W]."""
        return self.linear(self.features(x).mean((2, 3)))


class LoopStep:
    """A step of D-PSGD: every module's gradient one after another, then W x; channels last in memory.

    Args:
      make: makes a module.
      weights: W [A, A].
      batch: inputs [A, B, H, W, C] and targets [A, B].
    """

    def __init__(self, make: Any, weights: Any, batch: Any):
        self._weights = torch.from_numpy(weights.astype("float32"))
        self._modules = [make().to(memory_format=torch.channels_last) for _ in weights]
        self._inputs = torch.from_numpy(batch["inputs"]).permute(0, 1, 4, 2, 3)
        self._targets = torch.from_numpy(batch["targets"]).long()

    def __call__(self) -> None:
        """Takes one step."""
        for module, x, y in zip(self._modules, self._inputs, self._targets, strict=True):
            module.zero_grad()
            F.cross_entropy(module(x), y).backward()
        parameters = [list(module.parameters()) for module in self._modules]
        with torch.no_grad():
            for of_all in zip(*parameters, strict=True):
                moved = torch.stack([p - 0.1 * p.grad for p in of_all])
                mixed = self._weights @ moved.flatten(1)
                for parameter, row in zip(of_all, mixed, strict=True):
                    parameter.copy_(row.reshape(parameter.shape))
