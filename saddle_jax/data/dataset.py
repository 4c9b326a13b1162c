"""What a dataset is, once it is loaded."""

import dataclasses
from typing import Any

import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.data.recipes import Recipe


class DataError(ArgumentError):
    """Data that is missing, unknown or damaged; the message says what to do about it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels, in memory or mapped from a file.

    Attributes:
      name: such as "cifar10".
      train_images: uint8 [N, H, W, C]; anything that takes an array of sample numbers as index and
        has a shape: `saddle_jax.data.streaming.StreamedImages` for those that do not fit.
      train_labels: int32 [N].
      test_images: uint8 [n, H, W, C], likewise.
      test_labels: int32 [n].
      class_names: one per class.
      recipe: how the images are augmented and normalised.
      source: where they came from, for the record.
    """

    name: str
    train_images: Any
    train_labels: np.ndarray
    test_images: Any
    test_labels: np.ndarray
    class_names: tuple[str, ...]
    recipe: Recipe
    source: str

    @property
    def num_classes(self) -> int:
        """How many classes."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels that a model sees."""
        height, width, channels = self.train_images.shape[1:]
        size = self.recipe.size
        return (size or height, size or width, channels)

    def subset(self, samples: int, seed: int) -> "Dataset":
        """The same dataset with a random subset of its training samples, as balanced as chance makes it."""
        if not 1 <= samples <= len(self.train_labels):
            raise ArgumentError(f"subset must be 1 to {len(self.train_labels)} samples, got {samples}")
        chosen = np.sort(np.random.RandomState(seed).permutation(len(self.train_labels))[:samples])
        streamed = hasattr(self.train_images, "subset")
        images = self.train_images.subset(chosen) if streamed else self.train_images[chosen]
        labels = self.train_labels[chosen]
        return dataclasses.replace(self, train_images=images, train_labels=labels)
