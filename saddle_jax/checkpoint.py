"""Checkpoints: written by orbax, sealed with a list of hashes, moved into place in one go.

    checkpoints/00000500/state/       orbax's files
    checkpoints/00000500/seal.json    size and SHA-256 of each of them, and the step

A checkpoint whose files do not match its seal is reported and passed over.
"""

import hashlib
import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


class Checkpoints:
    """The checkpoints of one run folder."""

    def __init__(self, workdir: pathlib.Path, keep: int):
        self._folder = workdir / "checkpoints"
        self._keep = keep

    def save(self, step: int, tree: Any, notes: dict[str, Any] | None = None) -> None:
        """Writes a checkpoint, then removes those beyond the newest `keep`. An error leaves the others."""
        import orbax.checkpoint as ocp

        final = self._folder / f"{step:08d}"
        partial = self._folder / f".writing-{step:08d}"
        shutil.rmtree(partial, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            with ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(partial.absolute() / "state", tree)
            seal = {"step": step, "notes": notes or {}, "files": _fingerprints(partial / "state")}
            (partial / "seal.json").write_text(json.dumps(seal))
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        for old in self.steps()[: -self._keep]:
            shutil.rmtree(self._folder / f"{old:08d}", ignore_errors=True)

    def steps(self) -> list[int]:
        """Steps of which there is a checkpoint, whole or not, in ascending order."""
        names = [path.name for path in self._folder.glob("*")] if self._folder.is_dir() else []
        return sorted(int(name) for name in names if name.isdecimal())

    def restore_newest(
        self, like: Any, report: Callable[[str], None]
    ) -> tuple[int, Any, dict[str, Any]] | None:
        """Step, tree and notes of the newest checkpoint that is whole; None if there is none.

        Args:
          like: a tree of the same shapes, dtypes and places.
          report: is told of each one that had to be passed over.
        """
        import orbax.checkpoint as ocp

        shapes = jax.tree.map(_abstract, like)
        for step in reversed(self.steps()):
            folder = self._folder / f"{step:08d}"
            problem = self._problem(folder)
            if problem is None:
                try:
                    with ocp.StandardCheckpointer() as checkpointer:
                        tree = checkpointer.restore(folder.absolute() / "state", shapes)
                    return step, tree, json.loads((folder / "seal.json").read_text())["notes"]
                except Exception as error:  # orbax and tensorstore raise of their own
                    problem = " ".join(str(error).split())[:200]
            report(f"checkpoint {folder} cannot be used ({problem}); trying the one before it")
        return None

    def _problem(self, folder: pathlib.Path) -> str | None:
        try:
            seal = json.loads((folder / "seal.json").read_text())
            found = _fingerprints(folder / "state")
        except (OSError, ValueError) as error:
            return f"its seal is missing or unreadable: {error}"
        for name, known in seal["files"].items():
            if found.get(name) != known:
                return f"{name} is missing or damaged"
        return None


def _abstract(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)


def _fingerprints(folder: pathlib.Path) -> dict[str, list]:
    return {
        str(path.relative_to(folder)): [path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()]
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def tree_sha256(tree: Any) -> str:
    """One hash of all arrays of a tree, with their names, shapes and dtypes."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree.leaves_with_path(tree):
        array = np.ascontiguousarray(jax.device_get(leaf))
        digest.update(f"{jax.tree_util.keystr(path)} {array.shape} {array.dtype}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
