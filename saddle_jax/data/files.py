"""Datasets of files that are nobody's but the user's: an .npz of arrays, or a folder of images by class."""

import pathlib
from typing import Any

import numpy as np

from saddle_jax.base.errors import short_line
from saddle_jax.data.dataset import DataError, Dataset
from saddle_jax.data.given import from_samples

# The names of the four arrays in an .npz: ours, or those of Keras.
_ARRAYS = (
    ("train_inputs", "train_targets", "test_inputs", "test_targets"),
    ("x_train", "y_train", "x_test", "y_test"),
)
_TEST_FOLDERS = ("test", "val", "validation")
_GREY = ("L", "1", "LA")  # of Pillow's modes
_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm")


def is_path(text: str) -> bool:
    """Tells by its form alone whether a dataset is a file .npz or a folder, as ./mine, ~/mine or /mine."""
    return text.endswith(".npz") or text.startswith(("./", "../", "~", "/"))


def from_path(text: str) -> Dataset:
    """Reads the dataset of a file .npz, or of a folder with train/CLASS/IMAGE and test/CLASS/IMAGE."""
    path = pathlib.Path(text).expanduser()
    if path.suffix == ".npz":
        return _from_npz(path)
    if not path.is_dir():
        raise DataError(f"dataset must be a file .npz or a folder of images by class, got {text!r}")
    return _from_folder(path)


def _from_npz(path: pathlib.Path) -> Dataset:
    if not path.is_file():  # a pipe would be waited for
        raise DataError(f"dataset must be a file, got {str(path)!r}")
    try:
        with np.load(path, allow_pickle=False) as file:
            names = next((four for four in _ARRAYS if set(four) <= set(file)), None)
            if names is None:
                raise DataError(
                    f"{path} must have the arrays {', '.join(_ARRAYS[0])}, got {', '.join(file) or 'none'}"
                )
            arrays = [file[name] for name in names]
            classes = [str(name) for name in file["class_names"]] if "class_names" in file else None
    except DataError:
        raise
    except ValueError as error:  # NumPy advises to unpickle, which nobody should
        raise DataError(
            f"{path} cannot be read: it must hold arrays of numbers alone, as np.savez writes them"
        ) from error
    except Exception as error:  # zip and NumPy have errors of their own
        raise DataError(f"{path} cannot be read: {short_line(error)}") from error
    train, test = (arrays[0], arrays[1]), (arrays[2], arrays[3])
    return from_samples(train, test, name=path.stem, source=str(path), class_names=classes)


def _from_folder(path: pathlib.Path) -> Dataset:
    test = next((path / name for name in _TEST_FOLDERS if (path / name).is_dir()), None)
    if not (path / "train").is_dir() or test is None:
        raise DataError(
            f"{path} must have the folders train and test (or val, validation) with a folder for each class"
        )
    classes = sorted(each.name for each in (path / "train").iterdir() if each.is_dir())
    if len(classes) < 2:
        raise DataError(f"{path / 'train'} must have a folder for each of at least two classes")
    others = {each.name for each in test.iterdir() if each.is_dir()} - set(classes)
    if others:
        raise DataError(f"{test} must have classes of train alone, got {', '.join(sorted(others))}")
    return from_samples(
        _images(path / "train", classes),
        _images(test, classes),
        name=path.name or "images",
        source=str(path),
        class_names=classes,
    )


def _images(folder: pathlib.Path, classes: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Reads all images of a folder, uint8 [N, H, W, C], and their classes int32 [N]."""
    from PIL import Image
    from tqdm import tqdm

    files = [
        (path, label)
        for label, name in enumerate(classes)
        for path in (sorted((folder / name).iterdir()) if (folder / name).is_dir() else ())
        if path.suffix.lower() in _ENDINGS
    ]
    if not files:
        raise DataError(f"{folder} must have images ({', '.join(_ENDINGS)}) in the folders of its classes")
    stacked: Any = None
    grey = _is_grey(files[0][0])
    for number, (path, _) in enumerate(tqdm(files, desc=f"reading {folder}", unit=" images", disable=None)):
        try:
            with Image.open(path) as image:
                _check_mode(path, image.mode, grey)
                pixels = np.asarray(image.convert("L" if grey else "RGB"), np.uint8)
        except DataError:
            raise
        except Exception as error:  # Pillow raises whatever its decoders do
            raise DataError(f"{path} cannot be read: {short_line(error)}") from error
        pixels = pixels[..., None] if pixels.ndim == 2 else pixels
        if stacked is None:
            stacked = np.empty((len(files), *pixels.shape), np.uint8)
        if pixels.shape != stacked.shape[1:]:
            sizes = f"{list(stacked.shape[1:3])} and, in {path}, {list(pixels.shape[:2])}"
            raise DataError(f"{folder} must have images of one size, got {sizes}")
        stacked[number] = pixels
    return stacked, np.array([label for _, label in files], np.int32)


def _check_mode(path: pathlib.Path, mode: str, grey: bool) -> None:
    """Refuses what would lose something as 8 bits a channel, and folders of both kinds."""
    if mode.startswith(("I", "F")):
        raise DataError(f"{path} must have 8 bits a channel, got the mode {mode}")
    if (mode in _GREY) != grey:
        wanted = "grey, as the first image is" if grey else "in colour, as the first image is"
        raise DataError(f"{path} must be {wanted}, got the mode {mode}")


def _is_grey(path: pathlib.Path) -> bool:
    """Tells by the first image whether a folder's are grey; images in colour are RGB."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.mode in _GREY
    except Exception as error:  # Pillow raises whatever its decoders do
        raise DataError(f"{path} cannot be read: {short_line(error)}") from error
