"""Networks of PyTorch to train and to compare with; importing this file needs PyTorch."""

import math

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import nn

# ---- a zoo of what people bring ----


class MLP(nn.Module):
    def __init__(self, num_classes=10, hidden=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.LazyLinear(hidden), nn.ReLU(), nn.Linear(hidden, num_classes)
        )
        self.net(torch.zeros(1, 1, 8, 8))

    def forward(self, x):
        return self.net(x)


class EvoNorm(nn.Module):
    """As the code that the paper builds on has it, without the learnable v."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x):
        grouped = x.unflatten(1, (8, -1))
        variance = grouped.var((2, 3, 4), correction=0, keepdim=True).expand_as(grouped).reshape(x.shape)
        return self.weight * x * F.hardsigmoid(x) / torch.sqrt(variance + 1e-5) + self.bias


def norm_and_relu(norm, channels):
    if norm == "evonorm":
        return EvoNorm(channels), nn.Identity()
    return nn.GroupNorm(2, channels), nn.ReLU(inplace=True)


def shortcut(inputs, width, stride, norm):
    return nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), norm_and_relu(norm, width)[0])


class Block(nn.Module):
    def __init__(self, inputs, width, stride, norm):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1, self.relu = norm_and_relu(norm, width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2, _ = norm_and_relu(norm, width)
        self.downsample = shortcut(inputs, width, stride, norm) if stride > 1 or inputs != width else None

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    """ResNet-20 (blocks 3), or with an ImageNet stem; named as by the code that the paper builds on."""

    def __init__(self, num_classes=10, blocks=3, norm="groupnorm", widths=(16, 32, 64), stem=False):
        super().__init__()
        self.conv1 = (
            nn.Conv2d(3, widths[0], 7, 2, 3, bias=False)
            if stem
            else nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        )
        self.bn1, self.relu = norm_and_relu(norm, widths[0])
        self.maxpool = nn.MaxPool2d(3, 2, 1) if stem else nn.Identity()
        inputs = widths[0]
        for stage, width in enumerate(widths, start=1):
            layers = []
            for block in range(blocks):
                layers.append(Block(inputs, width, 2 if stage > 1 and block == 0 else 1, norm))
                inputs = width
            setattr(self, f"layer{stage}", nn.Sequential(*layers))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(widths[-1], num_classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in (1, 2, 3, 4):
            x = getattr(self, f"layer{stage}", nn.Identity())(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


def resnet8():
    return ResNet(blocks=1)


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, expansion, stride, norm):
        super().__init__()
        hidden = expansion * inputs
        self.conv1 = nn.Conv2d(inputs, hidden, 1, bias=False)
        self.bn1, self.relu = norm_and_relu(norm, hidden)
        self.conv2 = nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)
        self.bn2, _ = norm_and_relu(norm, hidden)
        self.conv3 = nn.Conv2d(hidden, outputs, 1, bias=False)
        self.bn3, _ = norm_and_relu(norm, outputs)
        self.stride, self.shortcut = stride, nn.Sequential()
        if stride == 1 and inputs != outputs:
            self.shortcut = shortcut(inputs, outputs, 1, norm)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        return y + self.shortcut(x) if self.stride == 1 else y


class MobileNetV2(nn.Module):
    def __init__(self, num_classes=10, norm="evonorm"):
        super().__init__()
        stages = [
            (1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
            (6, 320, 1, 1),
        ]  # fmt: skip
        self.conv1 = nn.Conv2d(3, 32, 3, 1, 1, bias=False)
        self.bn1, self.relu = norm_and_relu(norm, 32)
        layers, inputs = [], 32
        for expansion, outputs, count, stride in stages:
            for block in range(count):
                layers.append(InvertedResidual(inputs, outputs, expansion, stride if block == 0 else 1, norm))
                inputs = outputs
        self.layers = nn.Sequential(*layers)
        self.conv2 = nn.Conv2d(320, 1280, 1, bias=False)
        self.bn2, _ = norm_and_relu(norm, 1280)
        self.linear = nn.Linear(1280, num_classes)

    def forward(self, x):
        x = self.layers(self.relu(self.bn1(self.conv1(x))))
        return self.linear(self.relu(self.bn2(self.conv2(x))).mean((2, 3)))


class ViT(nn.Module):
    """A small vision transformer on nn.TransformerEncoder."""

    def __init__(self, size=16, patch=4, dim=16, heads=2, dropout=0.0):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.pos
        return self.head(self.encoder(x)[:, 0])


class GPT(nn.Module):
    """One causal layer with tied embeddings; `fused` uses scaled_dot_product_attention."""

    def __init__(self, vocabulary=65, dim=16, heads=2, length=16, fused=True):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.wte, self.wpe = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        mask = torch.tril(torch.ones(length, length, dtype=torch.bool))
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        b, t, c = x.shape
        q, k, v = (
            a.view(b, t, self.heads, -1).transpose(1, 2) for a in self.qkv(self.norm(x)).split(c, dim=2)
        )
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.heads)
            y = F.softmax(scores.masked_fill(~self.mask[:t, :t], float("-inf")), dim=-1) @ v
        return self.head(x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c)))


class LSTM(nn.Module):
    def __init__(self, vocabulary=65, dim=8):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(vocabulary, dim), nn.LSTM(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocabulary)

    def forward(self, tokens):
        return self.out(self.rnn(self.emb(tokens))[0])


class InPlace(nn.Module):
    """Operations in place of all sorts, a detached branch, and one without gradients."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 8), nn.Linear(8, 10)

    def forward(self, x):
        h = self.a(x.flatten(1)[:, :12]).relu_().clone()
        h[:, 0] = 2 * h[:, 1]
        h[:, 2:4] += 1.0
        h.masked_fill_(h > 3, 3.0).mul_(0.5)
        with torch.no_grad():
            scale = h.abs().mean() + 1
        return self.b(h / scale + 0.1 * h.detach() ** 2)


class Convolutions(nn.Module):
    """Convolutions that our kernels do not do, depthwise ones, pooling and scales that broadcast."""

    def __init__(self):
        super().__init__()
        self.grouped = nn.Conv2d(3, 6, 3, padding=1, groups=3)
        self.depthwise = nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6)
        self.dilated = nn.Conv2d(6, 6, 3, padding=2, dilation=2)
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        x = F.silu(self.grouped(x))
        x = self.up(F.gelu(self.dilated(self.depthwise(x))))
        return self.head(F.max_pool2d(self.scale * x, 2).mean((2, 3)))
