"""Which datasets there are, whether they are prepared, and how one is prepared."""

import os
import pathlib
import sys

from saddle_jax.data import prepared
from saddle_jax.data.dataset import DataError
from saddle_jax.data.sources import BUILTIN, KNOWN, TFDS_NAMES


def states(folder: pathlib.Path) -> dict[str, str]:
    """Returns the state of every known dataset, and of the others that are prepared in `folder`, by name."""
    folders = {TFDS_NAMES.get(name, name).partition("/")[0] for name in KNOWN}
    others = [path.name for path in sorted(folder.glob("*")) if path.is_dir() and path.name not in folders]
    return {name: _state(name, folder) for name in (*KNOWN, *others)}


def _state(name: str, folder: pathlib.Path) -> str:
    if name in BUILTIN:
        return "embedded, always there"
    try:
        version = prepared.find_version(TFDS_NAMES.get(name, name), folder)
        prepared.list_records(version)
    except DataError as error:
        return str(error) if "half" in str(error) else f"not prepared: saddle data prepare {name}"
    return f"prepared: {version}"


def prepare(name: str, data_dir: str | os.PathLike | None) -> pathlib.Path:
    """Downloads and prepares a dataset with tfds and TensorFlow; returns the folder that holds it."""
    try:
        import tensorflow  # noqa: F401  # tfds needs it to prepare, and says so less clearly
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise DataError(
            f"preparing {name} needs TensorFlow: {sys.executable} -m pip install 'saddle_jax[prepare]'"
        ) from error
    folder = prepared.data_dir_or_default(data_dir)
    try:
        builder = tfds.builder(TFDS_NAMES.get(name, name), data_dir=str(folder), file_format="array_record")
        builder.download_and_prepare()
    except Exception as error:  # tfds raises whatever its downloader and parsers do
        reason = " ".join(str(error).split())[:300]
        raise DataError(f"{name} could not be prepared in {folder}: {reason}") from error
    return folder
