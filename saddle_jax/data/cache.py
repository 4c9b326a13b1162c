"""A cache of decoded data on disk: complete or absent, and verified by size and hash when opened.

It is in a folder "decoded" next to the records, or in the user's cache folder if the former is not writable.
SADDLE_CACHE_DIR overrides both.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from saddle_jax.base import files
from saddle_jax.data.dataset import DataError

_CHUNK = 1 << 24


def cached(
    version: pathlib.Path,
    records: Iterable[pathlib.Path],
    form: str,
    write: Callable[[pathlib.Path], None],
) -> pathlib.Path:
    """Returns the folder that `write` has filled, in this call or an earlier one.

    Args:
      version: the prepared dataset's folder.
      records: the files to decode; the data is decoded again when one of them changes.
      form: the folder's name, which says what is decoded and how, such as "train-32".
      write: fills an empty folder.
    """
    source = {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in records}
    for place in _places(version):
        if _is_valid(place / form, source):
            return place / form
    for place in _places(version):
        if _is_writable(place):
            _fill(place / form, source, write)
            return place / form
    places = " and ".join(str(place) for place in _places(version))
    raise DataError(f"decoded data cannot be stored: {places} may not be written to; set SADDLE_CACHE_DIR")


def _places(version: pathlib.Path) -> list[pathlib.Path]:
    unique = hashlib.sha256(str(version.resolve()).encode()).hexdigest()[:12]
    label = "-".join([*version.parts[-3:], unique])
    beside = [] if os.environ.get("SADDLE_CACHE_DIR") else [version / "decoded"]
    return [*beside, files.cache_folder() / label]


def _is_writable(folder: pathlib.Path) -> bool:
    """Returns whether the folder, or its nearest parent that exists, is writable.

    A folder without any write permission counts as read-only, even for root.
    """
    while not folder.exists():
        folder = folder.parent
    write_bits = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
    return os.access(folder, os.W_OK) and bool(folder.stat().st_mode & write_bits)


def _is_valid(folder: pathlib.Path, source: dict[str, Any]) -> bool:
    with contextlib.suppress(OSError, ValueError, KeyError):
        record = json.loads((folder / "record.json").read_text())
        return record["source"] == source and all(
            (folder / name).stat().st_size == entry["size"] and _sha256(folder / name) == entry["sha256"]
            for name, entry in record["files"].items()
        )
    return False


def _fill(folder: pathlib.Path, source: dict[str, Any], write: Callable[[pathlib.Path], None]) -> None:
    """Fills a temporary folder next to the final one, then renames it."""
    partial = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        write(partial)
        files = {
            path.name: {"size": path.stat().st_size, "sha256": _sha256(path)}
            for path in sorted(partial.iterdir())
        }
        (partial / "record.json").write_text(json.dumps({"source": source, "files": files}, indent=1))
        shutil.rmtree(folder, ignore_errors=True)  # damaged or outdated
        partial.chmod(0o755)
        partial.rename(folder)
    except OSError as error:
        if not _is_valid(folder, source):  # unless another process was faster
            reason = error.strerror or error
            raise DataError(
                f"decoded data cannot be stored in {folder}: {reason}; set SADDLE_CACHE_DIR"
            ) from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)


def _sha256(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
