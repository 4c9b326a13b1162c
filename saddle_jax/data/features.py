"""Checks that a prepared dataset's features.json names only classes of tensorflow_datasets itself.

tfds imports any module that this file names, and a dataset may come from somebody else. So the file is read
here before tfds sees it.
"""

import json
import pathlib
import re
from typing import Any

from saddle_jax.data.dataset import DataError

# The keys whose text tfds takes for a class: in its older files, in its newer ones, and in protobuf's form.
_NAMES_A_CLASS = ("type", "pythonClassName", "python_class_name")
_OWN = re.compile(r"tensorflow_datasets\.core\.features(\.[A-Za-z_]\w*)+", re.ASCII)


def check_features(version: pathlib.Path) -> None:
    """Checks every class that features.json of a prepared version names.

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
    """Returns the content of a text that is JSON itself: tfds unpacks such texts and what they name."""
    try:
        content = json.loads(text)
    except RecursionError as error:
        raise DataError(f"{path} cannot be understood (RecursionError); prepare it again") from error
    except ValueError:
        return []
    return [content] if isinstance(content, dict | list | str) else []
