"""CIFAR-10 and CIFAR-100 from the archives of their authors, without TensorFlow.

They are at https://www.cs.toronto.edu/~kriz/cifar.html: "python version" or "binary version", as a file
.tar.gz or unpacked, which is also what torchvision keeps. The python version has pickles: only arrays, bytes,
lists and dicts are read from them.
"""

import io
import os
import pathlib
import pickle
import tarfile
from typing import Any, NamedTuple

import numpy as np

from saddle_jax.base.errors import short_line
from saddle_jax.base.files import atomic_write
from saddle_jax.data.dataset import DataError

_IMAGE = (3, 32, 32)
_LARGEST = 2**28  # bytes of a file in an archive; the largest is that of CIFAR-100, 155 MB


class Archive(NamedTuple):
    """How the files of one dataset are called, by kind: pickled or binary."""

    train: dict[str, tuple[str, ...]]
    test: dict[str, str]
    names: dict[str, str]
    labels: str  # of the pickles' dicts
    names_key: str
    before: int  # bytes of a binary record before its label


ARCHIVES = {
    "cifar10": Archive(
        {
            "pickled": tuple(f"data_batch_{number}" for number in range(1, 6)),
            "binary": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        },
        {"pickled": "test_batch", "binary": "test_batch.bin"},
        {"pickled": "batches.meta", "binary": "batches.meta.txt"},
        "labels",
        "label_names",
        0,
    ),
    "cifar100": Archive(
        {"pickled": ("train",), "binary": ("train.bin",)},
        {"pickled": "test", "binary": "test.bin"},
        {"pickled": "meta", "binary": "fine_label_names.txt"},
        "fine_labels",
        "fine_label_names",
        1,
    ),
}


def prepare_archive(name: str, source: str, folder: pathlib.Path) -> pathlib.Path:
    """Reads a dataset from its authors' archive, or a folder with its files, into folder/NAME.npz."""
    if name not in ARCHIVES:
        raise DataError(f"from must be given for {' or '.join(ARCHIVES)} alone, got {name!r}")
    files, archive = _files(pathlib.Path(source).expanduser()), ARCHIVES[name]
    kind = next(
        (kind for kind in ("binary", "pickled") if {*archive.train[kind], archive.test[kind]} <= set(files)),
        "",
    )
    if not kind:
        raise DataError(
            f"{source} must have the files {', '.join(archive.train['pickled'])} and "
            f"{archive.test['pickled']}, or the same with .bin, got {', '.join(sorted(files)[:5]) or 'none'}"
        )
    train = [_samples(archive, files[each], each) for each in archive.train[kind]]
    test_images, test_labels = _samples(archive, files[archive.test[kind]], archive.test[kind])
    arrays: dict[str, Any] = {
        "x_train": np.concatenate([images for images, _ in train]),
        "y_train": np.concatenate([labels for _, labels in train]),
        "x_test": test_images,
        "y_test": test_labels,
    }
    if archive.names[kind] in files:
        arrays["class_names"] = np.array(_names(archive, files[archive.names[kind]], archive.names[kind]))
    path = folder / f"{name}.npz"
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)
    return path


def _files(source: pathlib.Path) -> dict[str, bytes]:
    """Reads the files of an archive, or of a folder or the one in it, by their bare names."""
    wanted = {
        name
        for archive in ARCHIVES.values()
        for kind in archive.test
        for name in (*archive.train[kind], archive.test[kind], archive.names[kind])
    }
    if source.is_dir():
        places = [*source.iterdir(), *source.glob("cifar-*/*")]
        return {
            path.name: path.read_bytes() for path in sorted(places) if path.name in wanted and path.is_file()
        }
    if not source.is_file():
        raise DataError(f"from must be an archive .tar.gz or a folder, got {os.fspath(source)!r}")
    found = {}
    try:
        with tarfile.open(source) as archive:  # members are read one by one: nothing is unpacked to disk
            for member in archive:
                name = pathlib.PurePath(member.name).name
                content = archive.extractfile(member) if member.isfile() and name in wanted else None
                if content is not None and member.size <= _LARGEST:
                    found[name] = content.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"{source} cannot be read: {short_line(error)}") from error
    return found


def _samples(archive: Archive, content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns images uint8 [N, 32, 32, 3] and labels int32 [N]."""
    size = int(np.prod(_IMAGE))
    if name.endswith(".bin"):
        rows = np.frombuffer(content, np.uint8)
        if not rows.size or rows.size % (archive.before + 1 + size):
            raise DataError(f"{name} must have records of {archive.before + 1 + size} bytes, got {rows.size}")
        rows = rows.reshape(-1, archive.before + 1 + size)
        pixels, labels = rows[:, archive.before + 1 :], rows[:, archive.before]
    else:
        found = _unpickled(content, name)
        pixels, labels = np.asarray(found.get("data")), np.asarray(found.get(archive.labels))
    if pixels.dtype != np.uint8 or pixels.shape != (*labels.shape, size):
        raise DataError(f"{name} must have images of 32x32 with a label each, got {list(pixels.shape)}")
    images = pixels.reshape(-1, *_IMAGE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels.astype(np.int32)


def _names(archive: Archive, content: bytes, name: str) -> list[str]:
    if name.endswith(".txt"):
        return content.decode().split()
    names = _unpickled(content, name)[archive.names_key]
    return [text.decode() if isinstance(text, bytes) else str(text) for text in names]


# What pickled arrays and bytes name.
_OF_ARRAYS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Unpickler(pickle.Unpickler):
    """Reads arrays; anything else that a pickle names is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _OF_ARRAYS:
            raise pickle.UnpicklingError(f"{module}.{name} is no array")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def _unpickled(content: bytes, name: str) -> dict[str, Any]:
    try:
        found = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in found.items()}
    except Exception as error:  # a damaged pickle raises anything
        raise DataError(f"{name} cannot be read as arrays alone: {short_line(error)}") from error
