"""LEAF's FEMNIST and Shakespeare (Caldas et al., 2018): data of many clients, divided as they were written.

LEAF's scripts write folders train/ and test/ of JSON files: users, num_samples, and user_data with x and y of
each user. https://github.com/TalwalkarLab/leaf has them.
"""

import json
import pathlib
from typing import Any

import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.errors import short_line
from saddle_jax.data.dataset import DataError, Dataset

# LEAF's own: letters that do not occur here are its last, "}".
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
_CLASSES = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # of FEMNIST
_SIDE = 28


def load_leaf(path: str, agents: int = 0) -> Dataset:
    """Reads a folder that LEAF's scripts wrote: leaf('femnist/data', agents=16).

    Args:
      path: the folder with train/ and test/, FEMNIST's images or Shakespeare's lines.
      agents: how many there are; neighbouring clients of the list are one agent. 0: each client is one.
    """
    folder = pathlib.Path(path).expanduser()
    checks.whole("agents", agents, at_least=0)
    train, test = _users(folder / "train"), _users(folder / "test")
    agents = agents or len(train)
    if agents > len(train):
        raise DataError(
            f"agents must be at most {len(train)}, the number of clients in {folder}, got {agents}"
        )
    is_text = isinstance(next(iter(train.values()))["x"][0], str)
    read = _text if is_text else _images
    parts = [read(folder, user, train[user]) for user in train]
    ends = np.cumsum([len(targets) for _, targets in parts])
    shares = np.split(np.arange(ends[-1]), ends[:-1])
    held = [read(folder, user, test[user]) for user in test]
    groups = np.array_split(np.arange(len(train)), agents)
    return Dataset(
        name="leaf",
        train=_joined(parts),
        test=_joined(held),
        source=f"{folder}, {len(train)} clients",
        class_names=() if is_text else tuple(_CLASSES),
        agent_samples=tuple(np.concatenate([shares[client] for client in group]) for group in groups),
        outputs=len(LETTERS) if is_text else 0,
        objective="language" if is_text else "classification",
        model="causal_mlp" if is_text else "cnn",
    )


def _users(folder: pathlib.Path) -> dict[str, Any]:
    """Reads the data of all users with samples, in the order of the files."""
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not files:
        raise DataError(f"{folder} must have JSON files, as LEAF's scripts write them")
    found: dict[str, Any] = {}
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            found |= {user: content["user_data"][user] for user in content["users"]}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{file} must be as LEAF writes it: {short_line(error)}") from error
    found = {user: data for user, data in found.items() if _count(folder, user, data)}
    if not found:
        raise DataError(f"{folder} must have users with samples, got none")
    return found


def _count(folder: pathlib.Path, user: str, data: Any) -> int:
    try:
        if len(data["x"]) == len(data["y"]):
            return len(data["x"])
    except (KeyError, TypeError):
        pass
    raise DataError(f"{folder} must have as many x as y of each user, got others of {user!r}")


def _images(folder: pathlib.Path, user: str, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns images float32 [N, 28, 28, 1], 0 to 1, and their classes int32 [N]."""
    try:
        images = np.asarray(data["x"], np.float32).reshape(-1, _SIDE, _SIDE, 1)
        labels = np.asarray(data["y"], np.int32)
        if len(images) != len(labels) or labels.min() < 0 or labels.max() >= len(_CLASSES):
            raise ValueError(f"classes must be 0 to {len(_CLASSES) - 1}")
    except (ValueError, TypeError) as error:
        raise DataError(f"{folder} must have images of 28x28 of {user!r}: {short_line(error)}") from error
    return images, labels


def _text(folder: pathlib.Path, user: str, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns lines uint8 [N, T], and the next letter of each place; LEAF itself asks for the last alone."""
    places = {letter: number for number, letter in enumerate(LETTERS)}
    try:
        lines = [x + y for x, y in zip(data["x"], data["y"], strict=True)]
        codes = np.array(
            [[places.get(letter, len(LETTERS) - 1) for letter in line] for line in lines], np.uint8
        )
        if codes.ndim != 2:
            raise ValueError("their lengths differ")
    except (ValueError, TypeError) as error:
        raise DataError(f"{folder} must have lines of one length of {user!r}: {short_line(error)}") from error
    return codes[:, :-1], codes[:, 1:]


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    inputs, targets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return {"inputs": inputs, "targets": targets}
