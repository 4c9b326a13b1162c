"""Datasets from a user's arrays, datasets of PyTorch, Hugging Face splits, .npz files and folders of images.

Samples are (inputs, targets), or any tree of arrays [N, ...] for a user's own loss; a list of these, one per
agent, is data that is partitioned already.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from saddle_jax.base.errors import short_line
from saddle_jax.base.types import Tree
from saddle_jax.data import torch_data
from saddle_jax.data.dataset import DataError, Dataset
from saddle_jax.data.recipes import measured_recipe

_PAIR = "(inputs, targets) or a tree of arrays [N, ...]"


def from_samples(
    train: Any,
    test: Any,
    *,
    name: str = "data",
    source: str = "given as objects",
    class_names: Sequence[str] | None = None,
    objective: str | None = None,
) -> Dataset:
    """Makes a dataset from samples, and checks them.

    Args:
      train: (inputs, targets), or a tree of arrays [N, ...]; a list of these, one per agent, is data that is
        partitioned already. Either may be a `torch.utils.data.Dataset`, which is read once. Instead of an
        array, a leaf may be a source of samples that do not fit into memory, see `Dataset`. uint8 inputs
        [N, H, W, C] or [N, H, W] are images: each channel is normalised by the mean and standard deviation of
        the training images.
      test: test samples with the same structure.
      name: the dataset's name.
      source: where the samples came from, for the record.
      class_names: the name of each class; by default the class numbers, if the targets are integers [N].
      objective: the default objective; None is classification if the targets are classes, else regression.
    """
    agent_samples = None
    if torch_data.is_torch_data(train):
        class_names = class_names or torch_data.classes_of(train)
    if isinstance(train, list):
        train, agent_samples = _joined(train)
    training, testing = _tree("train", train), _tree("test", test)
    _check_lengths("train", training)
    _check_lengths("test", testing)
    _check_alike(training, testing)
    _check_finite("train", training)
    _check_finite("test", testing)
    is_images = _is_images(training)
    if is_images:
        training, testing = _with_channels(training), _with_channels(testing)
    names = _class_names(training, testing, class_names) if objective != "regression" else ()
    return Dataset(
        name=name,
        train=training,
        test=testing,
        source=source,
        class_names=names,
        recipe=measured_recipe(training["inputs"]) if is_images else None,
        agent_samples=agent_samples,
        outputs=0 if names else outputs_of(training),
        objective=objective or ("classification" if names else "regression"),
        model="cnn" if is_images else "mlp",
    )


def from_huggingface(
    dataset: Any, *, inputs: str | None = None, targets: str = "label", test: str = "test"
) -> Dataset:
    """Makes a dataset from a Hugging Face DatasetDict with a training and a test split.

    Args:
      dataset: a dict of splits, such as `datasets.load_dataset("mnist")` returns.
      inputs: the column of the inputs; None looks for "image", "img", "inputs" or "x".
      targets: the column of the targets.
      test: the name of the test split.
    """
    for split in ("train", test):
        if split not in dataset:
            raise DataError(f"dataset must have the split {split!r}, got {', '.join(dataset)}")
    columns = dataset["train"].column_names
    column = inputs or next((each for each in ("image", "img", "inputs", "x") if each in columns), "inputs")
    for each in (column, targets):
        if each not in columns:
            raise DataError(f"dataset must have the column {each!r}, got {', '.join(columns)}")

    def arrays(split: Any) -> tuple[np.ndarray, np.ndarray]:
        rows = split.with_format("numpy")
        return np.stack([np.asarray(row) for row in rows[column]]), np.asarray(rows[targets])

    feature = dataset["train"].features.get(targets)
    names = tuple(getattr(feature, "names", None) or ()) or None
    info = getattr(dataset["train"], "info", None)
    name = getattr(info, "dataset_name", None) or "huggingface"
    return from_samples(
        arrays(dataset["train"]), arrays(dataset[test]), name=name, source="Hugging Face", class_names=names
    )


def is_huggingface(data: Any) -> bool:
    """Returns whether an object is a dict of Hugging Face splits, without importing their package."""
    return isinstance(data, Mapping) and all(hasattr(split, "column_names") for split in data.values())


def _joined(parts: Sequence[Any]) -> tuple[Tree, tuple[np.ndarray, ...]]:
    """Concatenates the agents' samples; returns them with each agent's sample numbers."""
    trees = [_tree(f"train[{agent}]", part) for agent, part in enumerate(parts)]
    if not trees:
        raise DataError("train must list the samples of at least one agent, got an empty list")
    for agent, tree in enumerate(trees):
        _check_lengths(f"train[{agent}]", tree)
        _check_alike(trees[0], tree, f"train[{agent}]")
    ends = np.cumsum([jax.tree.leaves(tree)[0].shape[0] for tree in trees])
    joined = jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *trees)
    return joined, tuple(np.split(np.arange(ends[-1]), ends[:-1]))


def _tree(what: str, samples: Any) -> Tree:
    """Converts samples to a tree whose leaves are arrays or sources of samples."""
    if torch_data.is_torch_data(samples):
        samples = torch_data.read(what, samples)
    if isinstance(samples, tuple) and len(samples) == 2:
        inputs, targets = (np.asarray(part) if isinstance(part, list) else part for part in samples)
        is_truth = getattr(getattr(targets, "dtype", None), "kind", "") == "b"  # the classes 0 and 1
        samples = {"inputs": inputs, "targets": np.asarray(targets, np.int32) if is_truth else targets}
    tree = jax.tree.map(lambda leaf: leaf if hasattr(leaf, "shape") else np.asarray(leaf), samples)
    leaves = jax.tree.leaves(tree)
    if not leaves or not all(len(leaf.shape) for leaf in leaves):
        raise DataError(f"{what} must be {_PAIR}, got {type(samples).__name__}")
    for path, leaf in jax.tree.leaves_with_path(tree):
        if np.dtype(leaf.dtype).kind not in "biufV":  # V: floats of ml_dtypes
            raise DataError(f"{what} must have numbers, got {leaf.dtype} in {_place(path)}")
    return jax.tree.map(lambda leaf: _narrow(what, leaf), tree)


def _place(path: Any) -> str:
    """Returns the name of a leaf in a tree of samples, such as "inputs"."""
    return jax.tree_util.keystr(path, simple=True, separator=".") or "its array"


def _narrow(what: str, leaf: Any) -> Any:
    """Converts 64-bit numbers to JAX's default types, float32 and int32."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "iuf" or leaf.dtype.itemsize < 8:
        return leaf
    if leaf.dtype.kind == "f":
        return leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))
    if leaf.size and (leaf.max() >= 2**31 or leaf.min() < -(2**31)):
        largest = max(int(leaf.max()), int(leaf.min()), key=abs)
        raise DataError(f"{what} must have whole numbers of 32 bits, got {largest}")
    return leaf.astype(np.int32)


def _check_lengths(what: str, tree: Tree) -> None:
    lengths = {int(leaf.shape[0]) for leaf in jax.tree.leaves(tree)}
    if len(lengths) > 1 or not min(lengths):
        raise DataError(
            f"{what} must have arrays of equal length above 0, got {', '.join(map(str, sorted(lengths)))}"
        )


def _check_alike(one: Tree, other: Tree, what: str = "test") -> None:
    """Checks that two trees of samples differ only in the number of samples."""
    structure: Any = jax.tree.structure(other)
    if structure != jax.tree.structure(one):
        raise DataError(f"{what} must be a tree like train, got {structure}")
    for (path, first), second in zip(jax.tree.leaves_with_path(one), jax.tree.leaves(other), strict=True):
        if first.shape[1:] != second.shape[1:] or first.dtype != second.dtype:
            place = _place(path)
            raise DataError(
                f"{what} must be like train, whose {place} are {first.dtype} {list(first.shape[1:])}, got "
                f"{second.dtype} {list(second.shape[1:])}"
            )


def _check_finite(what: str, tree: Tree) -> None:
    for path, leaf in jax.tree.leaves_with_path(tree):
        is_float = isinstance(leaf, np.ndarray | jax.Array) and np.issubdtype(leaf.dtype, np.floating)
        if is_float and not np.isfinite(leaf).all():
            place = _place(path)
            sample = int(np.argwhere(~np.isfinite(leaf))[0][0])
            raise DataError(f"{what} must have finite numbers, got another in {place} of sample {sample}")


def _is_images(tree: Tree) -> bool:
    inputs = tree.get("inputs") if isinstance(tree, dict) else None
    return inputs is not None and inputs.dtype == np.uint8 and len(inputs.shape) in (3, 4)


def _with_channels(tree: dict[str, Any]) -> dict[str, Any]:
    inputs = tree["inputs"]
    return {**tree, "inputs": inputs[..., None] if len(inputs.shape) == 3 else inputs}


def _class_names(train: Tree, test: Tree, given: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the class names, by default the class numbers, and checks the targets against them."""
    targets = train.get("targets") if isinstance(train, dict) else None
    if targets is None or targets.ndim != 1 or not np.issubdtype(targets.dtype, np.integer):
        if given:
            raise DataError("class_names must come with whole-number targets [N], got others")
        return ()
    count = len(given) if given else int(np.max(targets)) + 1
    if not given and count > len(targets):
        raise DataError(
            f"train must have classes 0, 1, ... as targets, at most as many as samples, {len(targets):,}, "
            f"got {count - 1:,}; class_names can name more"
        )
    for what, tree in (("train", train), ("test", test)):
        labels = np.asarray(tree["targets"])
        if labels.min() < 0 or labels.max() >= count:
            wrong = labels.min() if labels.min() < 0 else labels.max()
            raise DataError(f"{what} must have targets of the {count} classes, 0 to {count - 1}, got {wrong}")
    return tuple(map(str, given)) if given else tuple(map(str, range(count)))


def outputs_of(train: Tree) -> int:
    """Returns the size of a prediction of one sample's targets; 1 if there are no targets."""
    targets = train.get("targets") if isinstance(train, dict) else None
    return int(np.prod(targets.shape[1:], dtype=int)) if targets is not None else 1


# ---- an .npz file of arrays, or a folder of images by class ----


# The names of the four arrays in an .npz file: ours, or those of Keras.
_ARRAYS = (
    ("train_inputs", "train_targets", "test_inputs", "test_targets"),
    ("x_train", "y_train", "x_test", "y_test"),
)
_TEST_FOLDERS = ("test", "val", "validation")
_GREY = ("L", "1", "LA")  # Pillow's modes
_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm")


def is_path(text: str) -> bool:
    """Returns whether a name has the form of an .npz file or a folder, such as ./mine, ~/mine or /mine."""
    return text.endswith(".npz") or text.startswith(("./", "../", "~", "/"))


def from_path(text: str) -> Dataset:
    """Reads a dataset from an .npz file, or from a folder with train/CLASS/IMAGE and test/CLASS/IMAGE."""
    path = pathlib.Path(text).expanduser()
    if path.suffix == ".npz":
        return from_npz(path)
    if not path.is_dir():
        raise DataError(f"dataset must be a file .npz or a folder of images by class, got {text!r}")
    return _from_folder(path)


def from_npz(path: pathlib.Path) -> Dataset:
    """Reads a dataset from an .npz file."""
    if not path.is_file():  # reading a pipe could block
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
    except ValueError as error:  # NumPy suggests unpickling, which is unsafe
        raise DataError(
            f"{path} cannot be read: it must hold arrays of numbers alone, as np.savez writes them"
        ) from error
    except Exception as error:  # zipfile and NumPy have errors of their own
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
    grey: bool | None = None  # as the first image is
    for number, (path, _) in enumerate(tqdm(files, desc=f"reading {folder}", unit=" images", disable=None)):
        try:
            with Image.open(path) as image:
                grey = image.mode in _GREY if grey is None else grey
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
    """Refuses images with transparency or over 8 bits a channel, and folders that mix grey and colour."""
    if mode.startswith(("I", "F")):
        raise DataError(f"{path} must have 8 bits a channel, got the mode {mode}")
    if (mode in _GREY) != grey:
        wanted = "grey, as the first image is" if grey else "in colour, as the first image is"
        raise DataError(f"{path} must be {wanted}, got the mode {mode}")
