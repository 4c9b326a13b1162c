"""Datasets prepared by tensorflow_datasets, read through its data sources without TensorFlow.

The folder is checked first, because the errors of tfds do not say that it is missing.
"""

import concurrent.futures
import contextlib
import json
import logging
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from saddle_jax.base.errors import short_line
from saddle_jax.data.dataset import DataError

# ---- features.json may only name classes of tensorflow_datasets itself ----
#
# tfds imports any module that this file names, and a dataset may come from an untrusted source. So the file
# is checked here before tfds reads it.


# The keys whose values tfds takes for classes: in its older files, its newer ones, and in protobuf's JSON.
_NAMES_A_CLASS = ("type", "pythonClassName", "python_class_name")
_OWN = re.compile(r"tensorflow_datasets\.core\.features(\.[A-Za-z_]\w*)+", re.ASCII)


def check_features(version: pathlib.Path) -> None:
    """Checks every class that features.json names.

    Raises:
      DataError: one of them is not tensorflow_datasets' own, or the file is not JSON.
    """
    path = version / "features.json"
    try:
        pending: list[Any] = [json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be understood ({type(error).__name__}); prepare it again") from error
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            for key in _NAMES_A_CLASS:
                name = value.get(key)
                if isinstance(name, str) and not _OWN.fullmatch(name):
                    raise DataError(
                        f"{path} is not opened: it names the class {name[:100]!r}, which is not one of "
                        "tensorflow_datasets.core.features and could execute anything"
                    )
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str):
            pending += _inside(value, path)


def _inside(text: str, path: pathlib.Path) -> list[Any]:
    """Parses a text that is JSON itself, since tfds follows such nested JSON, too."""
    try:
        content = json.loads(text)
    except RecursionError as error:
        raise DataError(f"{path} cannot be understood (RecursionError); prepare it again") from error
    except ValueError:
        return []
    return [content] if isinstance(content, dict | list | str) else []


_BULK = 1024  # records read at a time
Resize = Callable[[np.ndarray], np.ndarray]


def data_dir_or_default(data_dir: str | os.PathLike[str] | None) -> pathlib.Path:
    """Returns the folder of prepared datasets: `data_dir`, TFDS_DATA_DIR or ~/tensorflow_datasets."""
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
    """Lists the files of each split of a prepared version, or raises an error if one is missing."""
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
    """Returns the class names in the order of their labels."""
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
    except Exception as error:  # tfds passes on errors of its parsers
        raise DataError(f"{version} cannot be opened: {short_line(error)}; prepare it again") from error


def read_records(source: Any, what: str, samples: np.ndarray) -> list[dict[str, Any]]:
    """Reads records by number; the error for a damaged record names it."""
    try:
        with _without_advice():
            result: list[dict[str, Any]] = source.__getitems__([int(sample) for sample in samples])
            return result
    except Exception as error:  # image and record decoders have errors of their own
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
    """Yields all records in chunks, and shows a progress bar."""
    from tqdm import tqdm

    # disable=None: a bar in a terminal, nothing in a log file
    with tqdm(total=len(source), desc=f"{doing} {what}, once", unit=" images", disable=None) as bar:
        for start in range(0, len(source), _BULK):
            samples = np.arange(start, min(start + _BULK, len(source)))
            yield samples, read_records(source, what, samples)
            bar.update(len(samples))


def resize_and_crop(size: int) -> Resize:
    """Returns a function that resizes an image's shorter side to `size` (bilinear) and crops the centre.

    It rounds like torchvision: Resize truncates the longer side to an integer, and CenterCrop rounds the
    corner half to even.
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
    """Silences the advice of tfds to install OpenCV; Pillow decodes the same images."""
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


# ---- images that do not fit into memory: decoded on demand by several threads ----


_PER_TASK = 16  # records that one thread decodes at a time


class StreamedImages:
    """Images that behave like an array uint8 [N, size, size, 3]: indexing decodes them.

    `ahead` starts to decode a batch that is needed later.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, source: Any, what: str, resize: Resize, size: int, chosen: np.ndarray | None = None):
        """Uses the records `chosen` in that order; None uses all of them."""
        self._source, self._what, self._resize, self._size = source, what, resize, size
        self._chosen = np.arange(len(source)) if chosen is None else chosen
        self.shape = (len(self._chosen), size, size, 3)
        self._pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count(), "saddle-decode")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, samples: Any) -> np.ndarray:
        """Decodes uint8 [..., size, size, 3] for sample numbers of any shape [...], or for a slice."""
        if isinstance(samples, slice):
            samples = np.arange(len(self))[samples]
        return self.ahead(np.asarray(samples))()

    def subset(self, samples: np.ndarray) -> "StreamedImages":
        """Returns the images with these sample numbers, also streamed."""
        return StreamedImages(self._source, self._what, self._resize, self._size, self._chosen[samples])

    def ahead(self, samples: np.ndarray) -> Callable[[], np.ndarray]:
        """Starts decoding, and returns a function that waits for the images."""
        flat = samples.reshape(-1)
        tasks = [
            self._pool.submit(self._decode, flat[start : start + _PER_TASK])
            for start in range(0, len(flat), _PER_TASK)
        ]
        shape = (*samples.shape, *self.shape[1:])
        return lambda: np.concatenate([task.result() for task in tasks]).reshape(shape)

    def _decode(self, samples: np.ndarray) -> np.ndarray:
        records = read_records(self._source, self._what, self._chosen[samples])
        return np.stack([self._resize(record["image"]) for record in records])
