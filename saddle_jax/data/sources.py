"""Datasets by name: embedded, prepared by tfds, read from files, or loaded by user code."""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.registry import Registry, is_code
from saddle_jax.base.user_code import UserCodeError
from saddle_jax.data import prepared, user_data
from saddle_jax.data.archives import ARCHIVES, prepare_archive
from saddle_jax.data.cache import cached
from saddle_jax.data.dataset import DataError, Dataset
from saddle_jax.data.prepared import StreamedImages
from saddle_jax.data.recipes import RECIPES, measured_recipe

# ---- without a download: the embedded digits, and synthetic clusters ----


_DIGITS = pathlib.Path(__file__).with_name("digits.npz")
_DIGITS_SPLIT_SEED = 0
_DIGITS_TEST = 360  # one in five, as scikit-learn's examples split them
_SYNTHETIC_SEED = 0


def load_digits() -> Dataset:
    """Loads 1,797 handwritten digits, 8x8 grey: the test set of UCI's "optical recognition" data.

    They are by E. Alpaydin and C. Kaynak, 1998, CC BY 4.0, as shipped with scikit-learn. A fixed permutation
    splits them into 1,437 training and 360 test images.
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
    """Generates ten Gaussian clusters of 8x8 grey images, from a fixed seed, for tests.

    Each class has a random mean image and a standard deviation of 40 grey levels.
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


# ---- from files and user code ----


def is_other(name: str) -> bool:
    """Returns whether a name has the form of a path, FILE.py:NAME or module:NAME."""
    return is_code(name) or user_data.is_path(name)


def place_of(name: str) -> str | None:
    """Returns the file or folder that a dataset's name leads to; None if there is none in it."""
    if user_data.is_path(name):
        return name
    spec = BUILTIN.parse(name) if is_builtin(name) else None
    return str(BUILTIN.given(spec)["path"]) if spec and spec.name == "leaf" else None


def at_place(name: str, place: str) -> str:
    """Returns the name of the same dataset at another place."""
    if user_data.is_path(name):
        return place
    return str(BUILTIN.with_options(BUILTIN.parse(name), {"path": place}))


def check_name(name: str) -> None:
    """Checks the options of a dataset; names without brackets are looked up when they are loaded."""
    if is_builtin(name):
        BUILTIN.check(name)
    elif "(" in name and not user_data.is_path(name):
        BUILTIN.parse(name)


def load_other(name: str) -> Dataset:
    """Loads a dataset from files, or by calling the user's function."""
    if not is_code(name):
        return user_data.from_path(name)
    spec = BUILTIN.parse(name)
    data = BUILTIN.load(spec)
    if callable(data) and not isinstance(data, Dataset):
        data = BUILTIN.call(spec, data)
    return dataset_of(data, spec.name)


def dataset_of(data: Any, name: str, **options: Any) -> Dataset:
    """Converts a user's data to a Dataset; options are those of `user_data.from_samples`.

    The data may be a Dataset; a dict with "train" and "test" or a pair (train, test) of samples; or a dict of
    Hugging Face splits.
    """
    if isinstance(data, Dataset):
        return data
    if user_data.is_huggingface(data):
        return user_data.from_huggingface(data)
    if isinstance(data, Mapping) and set(data) == {"train", "test"}:
        data = data["train"], data["test"]
    if not isinstance(data, tuple) or len(data) != 2:
        raise DataError(
            f"dataset {name} must be a data.Dataset, or samples to train and to test with, each (inputs, "
            f"targets) or a tree of arrays [N, ...], got a {type(data).__name__}"
        )
    return user_data.from_samples(*data, name=name, source=name, **options)


# Datasets that need no download. A new one is a file in this folder and a line here.
BUILTIN = Registry(
    "dataset",
    {
        "digits": "saddle_jax.data.sources:load_digits",
        "synthetic": "saddle_jax.data.sources:load_synthetic",
        "convex": "saddle_jax.data.convex:load_convex",
        "characters": "saddle_jax.data.characters:load_characters",
        "leaf": "saddle_jax.data.leaf:load_leaf",
    },
    group="saddle_jax.datasets",
)
# Datasets that have another name in tfds.
TFDS_NAMES = {"imagenette": "imagenette/160px-v2", "imagenet": "imagenet2012"}
KNOWN = (*BUILTIN, *RECIPES)

_STORED_SIZE = {"imagenette": 32, "imagenet": 256}  # side of the centre crop
_STREAMED = ("imagenet",)


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Loads a dataset by name.

    Args:
      name: "digits" (embedded, real), "synthetic"; "convex", or with options "convex(condition=100)";
        "characters" (embedded, real); "leaf('FOLDER')" (written by LEAF's scripts); "cifar10", "cifar100",
        "imagenette" (at 32x32), "imagenet" (streamed), or the tfds name of any other image classification
        dataset whose images have one size. Also an .npz file, a folder of images by class (./mine), or a
        user's function, FILE.py:NAME or module:NAME.
      data_dir: the folder of datasets prepared by tfds; the default is TFDS_DATA_DIR, or
        ~/tensorflow_datasets.

    Raises:
      DataError: the data is missing or damaged; the message says where it was searched, and what to do.
    """
    checks.instance("dataset", name, str, "'digits' or 'cifar10'")
    if is_builtin(name):
        return _made(name)
    if is_other(name):
        return load_other(name)
    folder = prepared.data_dir_or_default(data_dir)
    if from_archive := _from_archive(name, folder):
        return dataclasses.replace(user_data.from_npz(from_archive), name=name, recipe=RECIPES[name])
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
        recipe=RECIPES.get(name) or measured_recipe(train["inputs"]),
        source=str(version),
    )


def is_missing(name: str, data_dir: str | os.PathLike[str] | None = None) -> bool:
    """Returns whether a dataset with known shapes is not prepared on this machine."""
    folder = prepared.data_dir_or_default(data_dir)
    if name not in RECIPES or _from_archive(name, folder):
        return False
    try:
        prepared.find_version(TFDS_NAMES.get(name, name), folder)
    except DataError:
        return True
    return False


def _from_archive(name: str, folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the file that `archives.prepare_archive` made of a dataset; None if there is none."""
    path = folder / f"{name}.npz"
    return path if name in ARCHIVES and path.is_file() else None


def is_builtin(name: str) -> bool:
    """Returns whether a name, with or without options, is a registered dataset."""
    return name.partition("(")[0].strip() in BUILTIN


def _made(text: str) -> Dataset:
    """Makes a registered dataset with the options in its name."""
    spec = BUILTIN.check(text)
    try:
        loaded = BUILTIN.make(spec)
    except UserCodeError:
        raise
    except ArgumentError as error:
        raise ArgumentError(f"dataset {spec.name}: {error}") from error
    return dataclasses.replace(dataset_of(loaded, spec.name), name=text)


def _read(version: pathlib.Path, split: str, records: list[pathlib.Path], size: int | None) -> dict[str, Any]:
    """Reads a split: images memory-mapped from the cache, labels in memory."""

    def write(folder: pathlib.Path) -> None:
        resize = prepared.resize_and_crop(size) if size else None
        prepared.write_images(folder, prepared.open_split(version, split), records[0].name, resize)

    # "cut": earlier versions, which rounded the longer side, left folders without this suffix
    folder = cached(version, records, f"{split}-{size}-cut" if size else split, write)
    images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
    return {"inputs": images, "targets": np.load(folder / "labels.npy", allow_pickle=False)}


def _stream(
    version: pathlib.Path, split: str, records: list[pathlib.Path], size: int | None
) -> dict[str, Any]:
    """Opens a split whose images are decoded on demand; its labels are cached and in memory."""
    assert size is not None, "streamed images have one size"
    what = records[0].name

    def write(folder: pathlib.Path) -> None:
        prepared.write_labels(folder, prepared.open_split(version, split, decode=False), what)

    folder = cached(version, records, f"{split}-labels", write)
    source = prepared.open_split(version, split)
    images = StreamedImages(source, what, prepared.resize_and_crop(size), size)
    return {"inputs": images, "targets": np.load(folder / "labels.npy", allow_pickle=False)}


def _unknown(name: str, folder: pathlib.Path) -> str:
    return (
        f"{checks.suggestion(name, KNOWN)}dataset must be one of {', '.join(KNOWN)}, or a tfds dataset "
        f"prepared in {folder} ('saddle data prepare NAME'), got {name!r}"
    )


# ---- listing and preparing datasets ----


def states(folder: pathlib.Path) -> dict[str, str]:
    """Returns the state of every known dataset and of all others prepared in `folder`, by name."""
    folders = {TFDS_NAMES.get(name, name).partition("/")[0] for name in KNOWN}
    others = [path.name for path in sorted(folder.glob("*")) if path.is_dir() and path.name not in folders]
    return {name: _state(name, folder) for name in (*KNOWN, *others)}


def _state(name: str, folder: pathlib.Path) -> str:
    if name in BUILTIN:
        return "from files of yours" if name == "leaf" else "embedded, always there"
    if from_archive := _from_archive(name, folder):
        return f"prepared: {from_archive}"
    try:
        version = prepared.find_version(TFDS_NAMES.get(name, name), folder)
        prepared.list_records(version)
    except DataError as error:
        return str(error) if "half" in str(error) else f"not prepared: saddle data prepare {name}"
    return f"prepared: {version}"


def prepare(name: str, data_dir: str | os.PathLike[str] | None, archive: str | None = None) -> pathlib.Path:
    """Prepares a dataset and returns where it is: from its authors' archive, or by tfds with TensorFlow."""
    if archive:
        return prepare_archive(name, archive, prepared.data_dir_or_default(data_dir))
    try:
        import tensorflow  # noqa: F401  # required by tfds, whose own error is less clear
        import tensorflow_datasets as tfds
    except ImportError as error:
        install = f"{sys.executable} -m pip install 'saddle_jax[prepare]'"
        without = "; without it give its authors' archive, --from=FILE" if name in ARCHIVES else ""
        raise DataError(f"preparing {name} needs TensorFlow: {install}{without}") from error
    folder = prepared.data_dir_or_default(data_dir)
    try:
        builder = tfds.builder(TFDS_NAMES.get(name, name), data_dir=str(folder), file_format="array_record")
        builder.download_and_prepare()
    except Exception as error:  # tfds passes on errors of its downloader and parsers
        reason = " ".join(str(error).split())[:300]
        raise DataError(f"{name} could not be prepared in {folder}: {reason}") from error
    return folder
