"""Loads a dataset by name: from the package, from a folder that tfds prepared, or streamed."""

import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from saddle_jax.base import calls, checks, tables
from saddle_jax.base.checks import ArgumentError
from saddle_jax.data import builtin, others, prepared
from saddle_jax.data.cache import cached
from saddle_jax.data.dataset import DataError, Dataset
from saddle_jax.data.recipes import RECIPES
from saddle_jax.data.streaming import StreamedImages

# What needs no download. A new dataset is a file in this folder and a line here.
BUILTIN: tables.Table[Callable[..., Dataset]] = tables.load(
    {
        "digits": "saddle_jax.data.builtin:load_digits",
        "synthetic": "saddle_jax.data.builtin:load_synthetic",
        "convex": "saddle_jax.data.convex:load_convex",
        "characters": "saddle_jax.data.characters:load_characters",
    }
).and_installed("saddle_jax.datasets")
# Our names for datasets that have another name in tfds.
TFDS_NAMES = {"imagenette": "imagenette/160px-v2", "imagenet": "imagenet2012"}
KNOWN = (*BUILTIN, *RECIPES)

_STORED_SIZE = {"imagenette": 32, "imagenet": 256}  # of the middle square
_STREAMED = ("imagenet",)


def load(name: str, data_dir: str | os.PathLike | None = None) -> Dataset:
    """Loads a dataset: samples, their classes, and how they are prepared and learned.

    Args:
      name: "digits" (embedded, real), "synthetic"; "convex", or with options "convex(condition=100)";
        "characters" (embedded, real); "cifar10", "cifar100", "imagenette" (at 32x32),
        "imagenet" (streamed), or the tfds name of any other image classification dataset whose images
        have one size. Also a file .npz, a folder of images by class (./mine), and what a user's program
        loads, FILE.py:NAME or module:NAME.
      data_dir: the folder of datasets that tfds prepared; the default is TFDS_DATA_DIR, or
        ~/tensorflow_datasets.

    Raises:
      DataError: says in one line what is missing or damaged, where it was searched, and what to do.
    """
    checks.instance("dataset", name, str, "'digits' or 'cifar10'")
    if is_builtin(name):
        return _made(name)
    if others.is_other(name):
        return others.load_other(name)
    folder = prepared.data_dir_or_default(data_dir)
    tfds_name = TFDS_NAMES.get(name, name)
    leaves_the_folder = pathlib.PurePath(name).is_absolute() or ".." in pathlib.PurePath(name).parts
    if leaves_the_folder or (name not in RECIPES and not (folder / tfds_name).is_dir()):
        raise DataError(_unknown(name, folder))
    version = prepared.find_version(tfds_name, folder)
    records = prepared.list_records(version)
    test = next((split for split in ("test", "validation") if split in records), None)
    if "train" not in records or test is None:
        raise DataError(
            f"{version} must have the splits train and test or validation, got {', '.join(records)}"
        )

    read = _stream if name in _STREAMED else _read
    train = read(version, "train", records["train"], _STORED_SIZE.get(name))
    return Dataset(
        name=name,
        train=train,
        test=read(version, test, records[test], _STORED_SIZE.get(name)),
        class_names=prepared.class_names(version),
        recipe=RECIPES.get(name) or builtin.measured_recipe(train["inputs"]),
        source=str(version),
    )


def is_missing(name: str, data_dir: str | os.PathLike | None = None) -> bool:
    """Tells whether a dataset is one whose shapes are known, and is not prepared here."""
    if name not in RECIPES:
        return False
    try:
        prepared.find_version(TFDS_NAMES.get(name, name), prepared.data_dir_or_default(data_dir))
    except DataError:
        return True
    return False


def is_builtin(name: str) -> bool:
    """Tells whether a name, with or without options in brackets, is in the table of datasets."""
    return name.partition("(")[0].strip() in BUILTIN


def _made(spelling: str) -> Dataset:
    """Makes a dataset of the package, or of an installed one, with the options that its spelling has."""
    name, options = calls.parse("dataset", spelling)
    calls.check_options("dataset", name, options, list(tables.options(BUILTIN[name])))
    try:
        loaded = BUILTIN[name](**options)
    except ArgumentError as error:
        raise ArgumentError(f"dataset {name}: {error}") from error
    return dataclasses.replace(others.dataset_of(loaded, name), name=spelling)


def _read(version: pathlib.Path, split: str, records: list[pathlib.Path], size: int | None) -> dict[str, Any]:
    """Reads a split: images mapped from the cache, labels in memory."""

    def write(folder: pathlib.Path) -> None:
        resize = prepared.middle_square(size) if size else None
        prepared.write_images(folder, prepared.open_split(version, split), records[0].name, resize)

    # "cut": versions that rounded the longer side left folders without it
    folder = cached(version, records, f"{split}-{size}-cut" if size else split, write)
    images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
    return {"inputs": images, "targets": np.load(folder / "labels.npy", allow_pickle=False)}


def _stream(
    version: pathlib.Path, split: str, records: list[pathlib.Path], size: int | None
) -> dict[str, Any]:
    """Opens a split whose images are decoded on demand; its labels are in memory and in the cache."""
    assert size is not None, "streamed images have one size"
    what = records[0].name

    def write(folder: pathlib.Path) -> None:
        prepared.write_labels(folder, prepared.open_split(version, split, decode=False), what)

    folder = cached(version, records, f"{split}-labels", write)
    source = prepared.open_split(version, split)
    images = StreamedImages(source, what, prepared.middle_square(size), size)
    return {"inputs": images, "targets": np.load(folder / "labels.npy", allow_pickle=False)}


def _unknown(name: str, folder: pathlib.Path) -> str:
    return (
        f"{checks.did_you_mean(name, KNOWN)}dataset must be one of {', '.join(KNOWN)}, or a tfds dataset "
        f"prepared in {folder} ('saddle data prepare NAME'), got {name!r}"
    )
