"""Our parameters and images in PyTorch's layout: one flat vector per agent, images [..., C, H, W]."""

import math
from collections.abc import Sequence

import jax
import numpy as np
import torch

from benchmarks.baselines.pytorch.models import Layout, Tensor
from saddle_jax.base.types import Params


def flatten(params: Params, image_shape: Sequence[int]) -> tuple[Layout, Tensor]:
    """Returns our stacked parameters [A, ...] as one matrix [A, P], with its layout.

    Args:
      params: a tree of flax parameters with a leading axis A.
      image_shape: (height, width, channels) of the images that the model sees.
    """
    names, shapes, columns = [], [], []
    for path, leaf in jax.tree.leaves_with_path(params):
        name = "/".join(key.key for key in path)
        array = _kernel(np.asarray(leaf), name, image_shape)
        names.append(name)
        shapes.append(array.shape[1:])
        columns.append(array.reshape(len(array), -1))
    matrix = np.ascontiguousarray(np.concatenate(columns, axis=1))
    return Layout(tuple(names), tuple(shapes)), torch.from_numpy(matrix)


def images_of(images: np.ndarray, channels_last: bool) -> Tensor:
    """Converts images [A, B, H, W, C] to [A, B, C, H, W], channels last in memory or not."""
    channels_first = torch.from_numpy(images).permute(0, 1, 4, 2, 3)
    return channels_first if channels_last else channels_first.contiguous()


def labels_of(labels: np.ndarray) -> Tensor:
    """Converts labels to the integers that PyTorch's losses take."""
    return torch.from_numpy(labels).long()


def _kernel(leaf: np.ndarray, name: str, image_shape: Sequence[int]) -> np.ndarray:
    """Converts [A, h, w, C, D] to [A, D, C, h, w] and [A, C, D] to [A, D, C]; leaves vectors alone."""
    if leaf.ndim == 5:
        return leaf.transpose(0, 4, 3, 1, 2)
    if leaf.ndim == 3:
        if name == "hidden1/kernel":  # it sees flattened images: [H, W, C] ours, [C, H, W] theirs
            leaf = leaf.reshape(len(leaf), *image_shape, -1).transpose(0, 3, 1, 2, 4)
            leaf = leaf.reshape(len(leaf), math.prod(image_shape), -1)
        return leaf.transpose(0, 2, 1)
    return leaf
