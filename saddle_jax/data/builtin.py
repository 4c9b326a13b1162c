"""Datasets that need no download: the embedded digits, and synthetic clusters."""

import math
import pathlib

import numpy as np

from saddle_jax.data.dataset import Dataset
from saddle_jax.data.recipes import Recipe

_DIGITS = pathlib.Path(__file__).with_name("digits.npz")
_DIGITS_SPLIT_SEED = 0
_DIGITS_TEST = 360  # one in five, as scikit-learn's examples split them
_SYNTHETIC_SEED = 0


def load_digits() -> Dataset:
    """Loads 1,797 real handwritten digits, 8x8 grey: the test set of UCI's "optical recognition" data.

    They are by E. Alpaydin and C. Kaynak, 1998, CC BY 4.0, as scikit-learn ships them. A fixed permutation
    splits them into 1,437 for training and 360 for testing.
    """
    with np.load(_DIGITS, allow_pickle=False) as file:
        images, labels = file["images"], file["labels"].astype(np.int32)
    images = np.round(images[..., None] * (255 / 16)).astype(np.uint8)  # stored as 0 to 16
    order = np.random.RandomState(_DIGITS_SPLIT_SEED).permutation(len(labels))
    train, test = order[_DIGITS_TEST:], order[:_DIGITS_TEST]
    return Dataset(
        name="digits",
        train={"inputs": images[train], "targets": labels[train]},
        test={"inputs": images[test], "targets": labels[test]},
        class_names=tuple("0123456789"),
        recipe=measured_recipe(images[train]),
        source="embedded in saddle_jax",
    )


def load_synthetic() -> Dataset:
    """Makes ten Gaussian clusters in the pixels of 8x8 grey images, from a fixed seed, for tests.

    Each class has a random mean image; its samples scatter around it with a deviation of 40 grey levels.
    """
    random = np.random.RandomState(_SYNTHETIC_SEED)
    means = random.uniform(64, 192, size=(10, 8, 8, 1))

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = random.permutation(np.arange(count) % 10).astype(np.int32)
        noise = random.normal(scale=40, size=(count, 8, 8, 1))
        return np.clip(np.round(means[labels] + noise), 0, 255).astype(np.uint8), labels

    train_images, train_labels = draw(2000)
    test_images, test_labels = draw(500)
    return Dataset(
        name="synthetic",
        train={"inputs": train_images, "targets": train_labels},
        test={"inputs": test_images, "targets": test_labels},
        class_names=tuple(f"cluster {c}" for c in range(10)),
        recipe=measured_recipe(train_images),
        source="made from a fixed seed",
    )


def measured_recipe(images: np.ndarray) -> Recipe:
    """Makes a recipe that normalises by the images' own mean and deviation, without augmentation."""
    total = np.zeros(images.shape[-1])
    squares = np.zeros(images.shape[-1])
    for start in range(0, len(images), 1024):  # all of it may be larger than memory
        pixels = np.asarray(images[start : start + 1024], np.float64).reshape(-1, images.shape[-1]) / 255
        total += pixels.sum(axis=0)
        squares += np.square(pixels).sum(axis=0)
    count = math.prod(images.shape[:-1])
    mean = total / count
    std = np.maximum(np.sqrt(np.maximum(squares / count - mean**2, 0)), 1e-3)
    return Recipe(tuple(mean.round(4).tolist()), tuple(std.round(4).tolist()))
