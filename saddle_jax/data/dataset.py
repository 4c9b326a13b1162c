"""The dataset that every source loads: images, labels and how to prepare them."""

import dataclasses
from typing import Any

import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.data.recipes import Recipe


class DataError(ArgumentError):
    """An error about data that is missing, unknown or damaged; the message says what to do about it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels, in memory or mapped from a file.

    Attributes:
      name: such as "cifar10".
      train_images: uint8 [N, H, W, C]; anything that has a shape and takes an array of sample numbers as an
        index, such as `saddle_jax.data.streaming.StreamedImages` for images that do not fit into memory.
      train_labels: int32 [N].
      test_images: uint8 [n, H, W, C], of the same kind.
      test_labels: int32 [n].
      class_names: one name per class.
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
        """The number of classes in the dataset."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The height, width and channels that a model sees."""
        height, width, channels = self.train_images.shape[1:]
        size = self.recipe.size
        return (size or height, size or width, channels)

    def subset(self, samples: int, seed: int) -> "Dataset":
        """Returns this dataset with a random subset of its training samples, not balanced by class."""
        if not 1 <= samples <= len(self.train_labels):
            raise ArgumentError(f"subset must be 1 to {len(self.train_labels)} samples, got {samples}")
        chosen = np.sort(np.random.RandomState(seed).permutation(len(self.train_labels))[:samples])
        streamed = hasattr(self.train_images, "subset")
        images = self.train_images.subset(chosen) if streamed else self.train_images[chosen]
        labels = self.train_labels[chosen]
        return dataclasses.replace(self, train_images=images, train_labels=labels)
