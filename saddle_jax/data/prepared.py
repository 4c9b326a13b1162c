"""Datasets prepared by tensorflow_datasets, read through its data sources: without TensorFlow.

The folder is checked before it is opened, because the errors of tfds do not say that it is missing.
"""

import contextlib
import json
import logging
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from saddle_jax.base.errors import short_line
from saddle_jax.data.dataset import DataError
from saddle_jax.data.features import check_features

_BULK = 1024  # records read at a time
Resize = Callable[[np.ndarray], np.ndarray]


def data_dir_or_default(data_dir: str | os.PathLike | None) -> pathlib.Path:
    """Returns the folder of prepared datasets: the given one, TFDS_DATA_DIR or ~/tensorflow_datasets."""
    chosen = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return pathlib.Path(chosen).expanduser()


def find_version(name: str, data_dir: pathlib.Path) -> pathlib.Path:
    """Finds the newest prepared version of `name` ("cifar10", "imagenette/160px-v2") below `data_dir`."""
    folder = data_dir / name
    versions = {_version(path): path for path in folder.glob("*") if _version(path)}
    if not versions:
        raise DataError(
            f"dataset {name!r} is not prepared: looked in {folder}; "
            f"run 'saddle data prepare {name.partition('/')[0]}' where there is internet, "
            "or set data_dir or TFDS_DATA_DIR"
        )
    return versions[max(versions)]


def list_records(version: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Lists the files of each split of a prepared version, and raises an error if one is missing."""
    for needed in ("dataset_info.json", "features.json", "label.labels.txt"):
        if not (version / needed).is_file():
            raise DataError(f"{version} is only half prepared: {needed} is missing; prepare it again")
    try:
        info = json.loads((version / "dataset_info.json").read_text())
        form = info.get("fileFormat", "array_record")
        counts = {split["name"]: len(split["shardLengths"]) for split in info["splits"]}
        stem = info["name"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{version / 'dataset_info.json'} cannot be understood: {error!r}") from error
    if form != "array_record":
        raise DataError(f"{version} holds {form} files; prepare it again with file_format='array_record'")
    splits = {
        split: [version / f"{stem}-{split}.{form}-{shard:05d}-of-{count:05d}" for shard in range(count)]
        for split, count in counts.items()
    }
    for file in (file for files in splits.values() for file in files):
        if not file.is_file():
            raise DataError(f"{version} is only half prepared: {file.name} is missing; prepare it again")
    return splits


def class_names(version: pathlib.Path) -> tuple[str, ...]:
    """Returns the names of the classes, in the order of their numbers."""
    return tuple((version / "label.labels.txt").read_text().rstrip("\n").split("\n"))


def open_split(version: pathlib.Path, split: str, *, decode: bool = True) -> Any:
    """Opens a tfds data source: a sequence of {"image": uint8 [H, W, C], "label": int, ...}.

    With decode=False the images stay encoded, as bytes.
    """
    check_features(version)
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise DataError(
            "prepared datasets need tensorflow-datasets: pip install 'saddle_jax[data]'"
        ) from error
    decoders = None if decode else {"image": tfds.decode.SkipDecoding()}
    try:
        return tfds.builder_from_directory(str(version)).as_data_source(split=split, decoders=decoders)
    except Exception as error:  # tfds raises whatever its parsers raise
        raise DataError(f"{version} cannot be opened: {short_line(error)}; prepare it again") from error


def read_records(source: Any, what: str, samples: np.ndarray) -> list[dict[str, Any]]:
    """Reads records by their numbers; the error over a damaged one names it."""
    try:
        with _without_advice():
            return source.__getitems__([int(sample) for sample in samples])
    except Exception as error:  # the decoders of images and records have errors of their own
        for sample in map(int, samples):
            try:
                source[sample]
            except Exception as one:
                reason = f"record {sample} of {what} cannot be read: {short_line(one)}"
                raise DataError(f"{reason}; prepare it again") from one
        raise DataError(f"{what} cannot be read: {short_line(error)}; prepare it again") from error


def write_images(folder: pathlib.Path, source: Any, what: str, resize: Resize | None) -> None:
    """Decodes a whole split into images.npy uint8 [N, H, W, C] and labels.npy int32 [N]."""
    stored, labels = None, np.empty(len(source), np.int32)
    for samples, records in _chunks(source, what, "decoding"):
        images = [record["image"] if resize is None else resize(record["image"]) for record in records]
        if stored is None:
            shape = (len(source), *images[0].shape)
            stored = np.lib.format.open_memmap(folder / "images.npy", mode="w+", dtype=np.uint8, shape=shape)
        for sample, image in zip(samples, images, strict=True):
            if image.shape != stored.shape[1:]:
                sizes = f"{stored.shape[1:]} and, at record {sample}, {image.shape}"
                raise DataError(f"{what} must have images of one size, got {sizes}")
        stored[samples] = images
        labels[samples] = [record["label"] for record in records]
    np.save(folder / "labels.npy", labels)


def write_labels(folder: pathlib.Path, source: Any, what: str) -> None:
    """Reads the labels of a whole split into labels.npy int32 [N]; `source` need not decode images."""
    labels = np.empty(len(source), np.int32)
    for samples, records in _chunks(source, what, "reading the labels of"):
        labels[samples] = [record["label"] for record in records]
    np.save(folder / "labels.npy", labels)


def _chunks(source: Any, what: str, doing: str) -> Iterator[tuple[np.ndarray, list[dict[str, Any]]]]:
    """Yields all records, some at a time, and shows the progress in a bar."""
    from tqdm import tqdm

    # disable=None: a bar in a terminal, nothing in a log file
    with tqdm(total=len(source), desc=f"{doing} {what}, once", unit=" images", disable=None) as bar:
        for start in range(0, len(source), _BULK):
            samples = np.arange(start, min(start + _BULK, len(source)))
            yield samples, read_records(source, what, samples)
            bar.update(len(samples))


def middle_square(size: int) -> Resize:
    """Returns a function that makes an image's shorter side `size` (bilinear) and cuts the middle square.

    The sizes are those of torchvision's Resize, which cuts the longer side off to a whole number, and of its
    CenterCrop, which rounds the corner to the even one of two.
    """
    from PIL import Image

    def resize(image: np.ndarray) -> np.ndarray:
        short = min(image.shape[:2])
        height, width = (int(size * side / short) for side in image.shape[:2])
        if image.shape[:2] != (height, width):
            image = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
        top, left = round((height - size) / 2), round((width - size) / 2)
        return image[top : top + size, left : left + size]

    return resize


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Silences tfds, which recommends OpenCV whenever it decodes with Pillow; the images are the same."""
    logger = logging.getLogger("absl")
    logger.addFilter(_no_opencv)
    try:
        yield
    finally:
        logger.removeFilter(_no_opencv)


def _no_opencv(record: logging.LogRecord) -> bool:
    return "OpenCV" not in record.getMessage()


def _version(path: pathlib.Path) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in path.name.split("."))
    except ValueError:
        return ()
