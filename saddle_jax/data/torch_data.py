"""Datasets of PyTorch, read once into arrays; torch is not imported unless they come from it."""

import sys
from typing import Any

import numpy as np

from saddle_jax.base.errors import short_line
from saddle_jax.data.dataset import DataError

_TWICE = 16  # samples that are read twice, to see whether they change


def is_torch_data(samples: Any) -> bool:
    """Returns whether something is a Dataset or a DataLoader of torch."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(samples, data.Dataset | data.DataLoader)


def read(what: str, dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    """Reads all samples of a Dataset: inputs [N, ...], images [N, H, W, C], and targets [N, ...].

    Raises:
      DataError: it has no length, its samples are no pairs, or a transform draws random numbers.
    """
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        kind = type(dataset).__name__
        raise DataError(f"{what} must be a Dataset with a length, got a {kind}: give what it loads from")
    try:
        samples = [_pair(what, dataset[number]) for number in range(len(dataset))]
        again = [_pair(what, dataset[number]) for number in range(min(_TWICE, len(dataset)))]
    except DataError:
        raise
    except Exception as error:  # a user's own code
        raise DataError(f"{what} cannot be read: {short_line(error)}") from error
    if not samples:
        raise DataError(f"{what} must have samples, got none")
    if any(not np.array_equal(one[0], other[0]) for one, other in zip(samples, again, strict=False)):
        raise DataError(
            f"{what} must have the same samples whenever they are read, got a transform that draws random "
            "numbers: leave it out, and use augmentation=flip_crop, which draws them in every step"
        )
    sizes = {inputs.shape for inputs, _ in samples}
    if len(sizes) > 1:
        raise DataError(
            f"{what} must have inputs of one size, got {' and '.join(map(str, sorted(sizes)[:2]))}"
        )
    return np.stack([inputs for inputs, _ in samples]), np.stack([target for _, target in samples])


def classes_of(dataset: Any) -> list[str] | None:
    """Returns the names of the classes, which torchvision's datasets know, also those of a Subset."""
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    return [str(name) for name in names] if names else None


def _pair(what: str, sample: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        raise DataError(f"{what} must have pairs (inputs, target), got a {type(sample).__name__}")
    inputs, target = sample
    is_tensor = hasattr(inputs, "detach")
    array = np.asarray(inputs.detach().cpu().numpy() if is_tensor else inputs)
    if is_tensor and array.ndim == 3:  # images of torch are [C, H, W]
        array = array.transpose(1, 2, 0)
    return array, np.asarray(target.detach().cpu().numpy() if hasattr(target, "detach") else target)
