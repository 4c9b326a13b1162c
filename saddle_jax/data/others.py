"""Datasets that are not ours by name: those of files, and those that a user's program loads."""

from collections.abc import Mapping
from typing import Any

from saddle_jax.base import brought
from saddle_jax.data import files, given
from saddle_jax.data.dataset import DataError, Dataset


def is_other(name: str) -> bool:
    """Tells by its form alone whether a dataset is of a file, or brought as FILE.py:NAME or module:NAME."""
    return brought.is_brought(name) or files.is_path(name)


def load_other(name: str) -> Dataset:
    """Loads a dataset of files, or calls the function that a text spells and takes what it returns."""
    if not brought.is_brought(name):
        return files.from_path(name)
    spelt = brought.parse("dataset", name)
    data = brought.load("dataset", name)
    if callable(data) and not isinstance(data, Dataset):
        data = brought.call("dataset", spelt.head, data, spelt.options, object)
    return dataset_of(data, spelt.head)


def dataset_of(data: Any, name: str, **options: Any) -> Dataset:
    """Returns what a user has as a dataset; options are those of `given.from_samples`.

    It may be a Dataset; a dict with "train" and "test" or a pair (train, test), each of them samples; or a
    dict of Hugging Face splits.
    """
    if isinstance(data, Dataset):
        return data
    if given.is_huggingface(data):
        return given.from_huggingface(data)
    if isinstance(data, Mapping) and set(data) == {"train", "test"}:
        data = data["train"], data["test"]
    if not isinstance(data, tuple) or len(data) != 2:
        raise DataError(
            f"dataset {name} must be a data.Dataset, or samples to train and to test with, each (inputs, "
            f"targets) or a tree of arrays [N, ...], got a {type(data).__name__}"
        )
    return given.from_samples(*data, name=name, source=name, **options)
