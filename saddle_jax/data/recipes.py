"""Augmentation and normalisation of images: pure functions of a key, on the device."""

import dataclasses
import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.types import Array, Batch, Key
from saddle_jax.core.trees import agent_keys
from saddle_jax.devices.lifting import on_shards

# The settings of torchvision's RandomResizedCrop.
_SCALE = (0.08, 1.0)
_RATIO = (3 / 4, 4 / 3)
_TRIES = 10


def normalise(images: Array, mean: tuple[float, ...], std: tuple[float, ...]) -> Array:
    """Normalises uint8 [..., C] to float32: (x / 255 - mean) / std per channel."""
    shape = (1,) * (images.ndim - 1) + (-1,)
    scale = 1 / (255 * jnp.asarray(std, jnp.float32))
    offset = jnp.asarray(mean, jnp.float32) / jnp.asarray(std, jnp.float32)
    return images.astype(jnp.float32) * scale.reshape(shape) - offset.reshape(shape)


def flip_and_crop(key: Key, images: Array, padding: int = 4) -> Array:
    """Flips images at random, then takes a random crop of the same size from each zero-padded image.

    Images are padded before normalisation, so the padding is black and not the mean.
    """
    batch, height, width, _ = images.shape
    flip_key, row_key, column_key = jax.random.split(key, 3)
    flip = jax.random.bernoulli(flip_key, shape=(batch, 1))
    rows = jnp.arange(height)[None] + jax.random.randint(row_key, (batch, 1), -padding, padding + 1)
    columns = jnp.arange(width)[None] + jax.random.randint(column_key, (batch, 1), -padding, padding + 1)
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]
    # Flip and crop are one gather: the crop of the flipped image is read from the original.
    columns = jnp.where(flip, width - 1 - columns, columns)

    def crop(image: Array, rows: Array, columns: Array) -> Array:
        return image.at[rows[:, None], columns[None]].get(mode="clip")

    cropped = jax.vmap(crop)(images, rows, columns)
    return jnp.where(inside[..., None], cropped, 0).astype(images.dtype)


def flip_and_resized_crop(key: Key, images: Array, size: int) -> Array:
    """Takes random crops (8 to 100 % of the area, aspect 3/4 to 4/3), resizes them to `size`, and flips them.

    This follows torchvision's RandomResizedCrop with antialiased bilinear interpolation.
    """
    batch = images.shape[0]

    def one(key: Key, image: Array) -> Array:
        box_key, flip_key = jax.random.split(key)
        top, left, height, width = _random_box(box_key, image.shape[0], image.shape[1])
        scale = jnp.stack([size / height, size / width])
        resized = jax.image.scale_and_translate(
            image.astype(jnp.float32),
            (size, size, image.shape[2]),
            (0, 1),
            scale,
            -jnp.stack([top, left]) * scale,
            method="linear",
        )
        mirrored = jnp.where(jax.random.bernoulli(flip_key), resized[:, ::-1], resized)
        return jnp.clip(jnp.round(mirrored), 0, 255).astype(image.dtype)

    return jax.vmap(one)(jax.random.split(key, batch), images)


def _random_box(key: Key, height: int, width: int) -> tuple[Array, Array, Array, Array]:
    """Draws a crop (top, left, height, width): the first of ten tries that fits, otherwise the largest."""
    area_key, ratio_key, top_key, left_key = jax.random.split(key, 4)
    area = height * width * jax.random.uniform(area_key, (_TRIES,), minval=_SCALE[0], maxval=_SCALE[1])
    low, high = (math.log(ratio) for ratio in _RATIO)
    ratio = jnp.exp(jax.random.uniform(ratio_key, (_TRIES,), minval=low, maxval=high))
    box_width, box_height = jnp.round(jnp.sqrt(area * ratio)), jnp.round(jnp.sqrt(area / ratio))
    fits = (box_width >= 1) & (box_width <= width) & (box_height >= 1) & (box_height <= height)
    first = jnp.argmax(fits)
    # As in torchvision, otherwise the largest centre crop with an allowed aspect.
    whole_width = min(width, round(height * _RATIO[1]))
    whole_height = min(height, round(width / _RATIO[0]))
    box_width = jnp.where(fits.any(), box_width[first], whole_width)
    box_height = jnp.where(fits.any(), box_height[first], whole_height)
    top = jnp.floor(jax.random.uniform(top_key) * (height - box_height + 1))
    left = jnp.floor(jax.random.uniform(left_key) * (width - box_width + 1))
    middle = (height - box_height) // 2, (width - box_width) // 2
    return (
        jnp.where(fits.any(), top, middle[0]),
        jnp.where(fits.any(), left, middle[1]),
        box_height,
        box_width,
    )


def centre_crop(images: Array, size: int) -> Array:
    """Crops the centre [..., size, size, C] of images [..., H, W, C]."""
    top, left = (images.shape[-3] - size) // 2, (images.shape[-2] - size) // 2
    return images[..., top : top + size, left : left + size, :]


Augmentation = Literal["none", "flip_crop", "resized_crop"]
AUGMENTATIONS = ("none", "flip_crop", "resized_crop")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The preprocessing of stored uint8 images.

    Attributes:
      mean, std: per channel, for pixels in [0, 1].
      augmentation: "none"; "flip_crop", a random flip and a shift by up to 4 pixels (CIFAR); "resized_crop",
        a random flip and a random resized crop (Imagenette, ImageNet).
      size: height and width of the model's input; None keeps those of the stored images.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation = "none"
    size: int | None = None

    def __post_init__(self) -> None:
        checks.choice("augmentation", self.augmentation, AUGMENTATIONS)

    def for_training(self, key: Key, images: Array) -> Array:
        """Augments and normalises one agent's batch: uint8 [B, H, W, C] to float32."""
        if self.augmentation == "resized_crop":
            images = flip_and_resized_crop(key, images, self.size or images.shape[1])
        else:
            images = self._middle(images)
        if self.augmentation == "flip_crop":
            images = flip_and_crop(key, images)
        return normalise(images, self.mean, self.std)

    def for_evaluation(self, images: Array) -> Array:
        """Normalises images, cropped to their centre if the model's input is smaller."""
        return normalise(self._middle(images), self.mean, self.std)

    def _middle(self, images: Array) -> Array:
        if self.size is None or self.size >= min(images.shape[-3:-1]):
            return images
        return centre_crop(images, self.size)

    def for_agents(self, key: Key, images: Array) -> Array:
        """Applies `for_training` to all agents' batches, uint8 [A, B, H, W, C], each with its own key."""
        result: Array = on_shards(jax.vmap(self.for_training))(agent_keys(key, images.shape[0]), images)
        return result


def prepared(recipe: Recipe | None, batch: Batch) -> Batch:
    """Preprocesses the inputs of a batch [B, ...] for evaluation; None leaves them unchanged."""
    return batch if recipe is None else {**batch, "inputs": recipe.for_evaluation(batch["inputs"])}


def measured_recipe(images: np.ndarray) -> Recipe:
    """Makes a recipe that normalises by the images' mean and standard deviation, without augmentation."""
    total = np.zeros(images.shape[-1])
    squares = np.zeros(images.shape[-1])
    for start in range(0, len(images), 1024):  # in chunks: the images may not fit into memory
        pixels = np.asarray(images[start : start + 1024], np.float64).reshape(-1, images.shape[-1]) / 255
        total += pixels.sum(axis=0)
        squares += np.square(pixels).sum(axis=0)
    count = math.prod(images.shape[:-1])
    mean = total / count
    std = np.maximum(np.sqrt(np.maximum(squares / count - mean**2, 0)), 1e-3)
    return Recipe(tuple(mean.round(4).tolist()), tuple(std.round(4).tolist()))


_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

RECIPES = {
    "cifar10": Recipe((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), "flip_crop"),
    "cifar100": Recipe((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761), "flip_crop"),
    "imagenette": Recipe(_IMAGENET_MEAN, _IMAGENET_STD, "resized_crop", 32),
    "imagenet": Recipe(_IMAGENET_MEAN, _IMAGENET_STD, "resized_crop", 224),
}
