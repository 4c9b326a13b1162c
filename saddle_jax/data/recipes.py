"""How the images of a dataset are prepared, in training and in evaluation."""

import dataclasses
from typing import Literal

import jax

from saddle_jax.base import checks
from saddle_jax.base.types import Array, Batch, Key
from saddle_jax.core.trees import agent_keys
from saddle_jax.data.augment import centre_crop, flip_and_crop, flip_and_resized_crop, normalise
from saddle_jax.devices.lifting import on_shards

Augmentation = Literal["none", "flip_crop", "resized_crop"]
AUGMENTATIONS = ("none", "flip_crop", "resized_crop")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How stored uint8 images become what the model sees.

    Attributes:
      mean, std: per channel, for pixels in [0, 1].
      augmentation: "none"; "flip_crop", a mirror image and a 4-pixel shift (CIFAR); "resized_crop", a
        mirror image and a random window (Imagenette, ImageNet).
      size: the height and width that the model sees; None keeps the stored ones.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation = "none"
    size: int | None = None

    def __post_init__(self):
        checks.choice("augmentation", self.augmentation, AUGMENTATIONS)

    def for_training(self, key: Key, images: Array) -> Array:
        """Augments and normalises one agent's batch: uint8 [B, H, W, C] to float32. The key is consumed."""
        if self.augmentation == "resized_crop":
            images = flip_and_resized_crop(key, images, self.size or images.shape[1])
        else:
            images = self._middle(images)
        if self.augmentation == "flip_crop":
            images = flip_and_crop(key, images)
        return normalise(images, self.mean, self.std)

    def for_evaluation(self, images: Array) -> Array:
        """Normalises images, and cuts out their middle where the model sees less than is stored."""
        return normalise(self._middle(images), self.mean, self.std)

    def _middle(self, images: Array) -> Array:
        if self.size is None or self.size >= min(images.shape[-3:-1]):
            return images
        return centre_crop(images, self.size)

    def for_agents(self, key: Key, images: Array) -> Array:
        """Does `for_training` for all agents, uint8 [A, B, H, W, C], each with its own key."""
        return on_shards(jax.vmap(self.for_training))(agent_keys(key, images.shape[0]), images)


def prepared(recipe: Recipe | None, batch: Batch) -> Batch:
    """Prepares the inputs of a batch [B, ...] for evaluation; without a recipe they are as they are."""
    return batch if recipe is None else {**batch, "inputs": recipe.for_evaluation(batch["inputs"])}


_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

RECIPES = {
    "cifar10": Recipe((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), "flip_crop"),
    "cifar100": Recipe((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761), "flip_crop"),
    "imagenette": Recipe(_IMAGENET_MEAN, _IMAGENET_STD, "resized_crop", 32),
    "imagenet": Recipe(_IMAGENET_MEAN, _IMAGENET_STD, "resized_crop", 224),
}
