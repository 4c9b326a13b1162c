"""Convolution and EvoNorm written out in NumPy, to compare the layers with."""

import numpy as np


def convolve_by_hand(x, kernel, stride, padding, groups):
    """Computes a convolution in a loop over the pixels of the result."""
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    height, width, inputs, outputs = kernel.shape
    rows, columns = ((x.shape[axis] - size) // stride + 1 for axis, size in ((1, height), (2, width)))
    y = np.zeros((x.shape[0], rows, columns, outputs))
    for i in range(rows):
        for j in range(columns):
            window = x[:, i * stride : i * stride + height, j * stride : j * stride + width]
            for d in range(outputs):
                first = d // (outputs // groups) * inputs
                y[:, i, j, d] = (window[..., first : first + inputs] * kernel[..., d]).sum(axis=(1, 2, 3))
    return y


def groupnorm_by_hand(x, scale, bias):
    """Computes GroupNorm of two groups sample by sample, with torch's floor under the variance."""
    y = np.empty_like(x)
    width = x.shape[3] // 2
    for sample in range(len(x)):
        for group in range(2):
            part = (sample, slice(None), slice(None), slice(group * width, (group + 1) * width))
            y[part] = (x[part] - np.mean(x[part])) / np.sqrt(np.var(x[part]) + 1e-5)
    return y * scale + bias


def evonorm_by_hand(x, scale, bias, gate):
    """Computes EvoNorm-S0 sample by sample and group by group."""
    y = np.empty_like(x)
    width = x.shape[3] // 8
    h = 1 / (1 + np.exp(-x)) if gate == "sigmoid" else np.clip(x / 6 + 0.5, 0, 1)
    for sample in range(len(x)):
        for group in range(8):
            part = (sample, slice(None), slice(None), slice(group * width, (group + 1) * width))
            y[part] = x[part] * h[part] / np.sqrt(np.var(x[part]) + 1e-5)
    return y * scale + bias
