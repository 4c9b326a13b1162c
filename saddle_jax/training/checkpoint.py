"""Checkpoints: written by orbax, sealed with a list of hashes, and moved into place at the end.

    checkpoints/00000500/state/       orbax's files
    checkpoints/00000500/seal.json    size and SHA-256 of each of them, and the step

A checkpoint whose files do not match its seal is reported and skipped.
"""

import hashlib
import json
import logging
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from saddle_jax.base.errors import RunError, short_line
from saddle_jax.devices import hosts
from saddle_jax.version import RUN_FORMAT


class Checkpoints:
    """The checkpoints of one run folder: the newest `keep`, and one every `keep_every` steps."""

    def __init__(self, workdir: pathlib.Path, keep: int, keep_every: int = 0, agent_axis: int = 0):
        self._agent_axis = agent_axis  # of every array that is not a scalar
        self._folder = workdir / "checkpoints"
        self._keep = keep
        self._keep_every = keep_every

    def save(self, step: int, tree: Any, notes: dict[str, Any] | None = None) -> None:
        """Writes a checkpoint, then removes those that are no longer needed.

        Raises:
          RunError: it could not be written; the others have not changed.
        """
        final = self._folder / f"{step:08d}"
        partial = self._folder / f".writing-{step:08d}"
        try:
            with hosts.agreement():
                if hosts.writes():
                    self._folder.mkdir(parents=True, exist_ok=True)
                    for leftover in self._folder.glob(".writing-*"):  # of a process that was killed
                        _remove(leftover)
            with hosts.agreement():
                _write(partial / "state", tree)
            with hosts.agreement():
                if hosts.writes():
                    files = _fingerprints(partial / "state")
                    about = {"format": RUN_FORMAT, "step": step, "agent_axis": self._agent_axis}
                    seal = {**about, "notes": notes or {}, "shapes": _shapes(tree), "files": files}
                    (partial / "seal.json").write_text(json.dumps(seal))
                    partial.rename(final)
        except Exception as error:  # orbax and tensorstore have errors of their own
            if hosts.is_lost(error):
                raise
            shutil.rmtree(partial, ignore_errors=True)
            newest = (
                f"the last complete one is from step {self.steps()[-1]}"
                if self.steps()
                else "there is none yet"
            )
            raise _run_error(
                f"checkpoint {final} could not be written ({short_line(error)}); {newest}",
                error,
            ) from error
        for old in self.steps()[: -self._keep] if hosts.writes() else ():
            if not (self._keep_every and old % self._keep_every == 0):
                shutil.rmtree(self._folder / f"{old:08d}", ignore_errors=True)

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, in ascending order."""
        names = [path.name for path in self._folder.glob("*")] if self._folder.is_dir() else []
        return sorted(int(name) for name in names if name.isdecimal() and name == f"{int(name):08d}")

    def restore_newest(
        self, like: Any, report: Callable[[str], None], *, set_aside: bool
    ) -> tuple[int, Any, dict[str, Any]] | None:
        """Restores step, tree and notes of the newest complete checkpoint; returns None if there is none.

        Args:
          like: a tree of the same shapes, dtypes and shardings.
          report: called with one line about each checkpoint that had to be skipped.
          set_aside: whether those are renamed to "damaged-...", so that they do not count any more.
        """
        for step in reversed(hosts.one_for_all(self.steps)):
            folder = self._folder / f"{step:08d}"
            try:
                with hosts.agreement():
                    return step, *_restore(folder, like, self._agent_axis)
            except Exception as error:  # orbax and tensorstore have errors of their own
                if hosts.is_lost(error):
                    raise
                if hosts.writes():
                    report(f"checkpoint {folder} cannot be used ({short_line(error)}); trying an earlier one")
            if set_aside and hosts.writes():
                aside = folder.with_name(f"damaged-{folder.name}")
                _remove(aside)
                folder.rename(aside)
        return None

    def restore(self, step: int, like: Any) -> Any:
        """Restores the tree of one step's checkpoint; `like` is as above.

        Raises:
          RunError: the checkpoint is missing or damaged.
        """
        folder = self._folder / f"{step:08d}"
        try:
            return _restore(folder, like, self._agent_axis)[0]
        except Exception as error:  # orbax and tensorstore have errors of their own
            raise RunError(f"checkpoint {folder} cannot be used ({short_line(error)})") from error


def _remove(path: pathlib.Path) -> None:
    """Removes a folder, or a link or file in its place, without following the link."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _restore(folder: pathlib.Path, like: Any, agent_axis: int) -> tuple[Any, dict[str, Any]]:
    notes = hosts.one_for_all(_check_seal, folder, _shapes(like), agent_axis)
    return _read(folder / "state", jax.tree.map(_abstract, like)), notes


def _write(folder: pathlib.Path, tree: Any) -> None:
    import orbax.checkpoint as ocp

    # An error in orbax's own threads is logged there with a traceback, and then raised here.
    levels = {logger: logger.level for logger in map(logging.getLogger, ("asyncio", "absl"))}
    for logger in levels:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder.absolute(), tree)
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def _read(folder: pathlib.Path, shapes: Any) -> Any:
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        # Not strict: there may be more or fewer rows of idle agents than these devices need.
        return checkpointer.restore(folder.absolute(), shapes, strict=False)


def _shapes(tree: Any) -> list[list[int]]:
    return [list(leaf.shape) for leaf in jax.tree.leaves(tree)]


def _differ_in_idle_rows_alone(stored: list[list[int]], expected: list[list[int]], axis: int) -> bool:
    """Returns whether two trees' shapes differ at most in the number of agents, the length of `axis`."""

    def without(shapes: list[list[int]]) -> list[list[int]]:
        return [shape[:axis] + shape[axis + 1 :] for shape in shapes]

    def agents(shapes: list[list[int]]) -> set[int]:
        return {shape[axis] for shape in shapes if len(shape) > axis}

    same = without(stored) == without(expected)
    return stored == expected or (same and len(agents(stored)) == len(agents(expected)) == 1)


def _check_seal(folder: pathlib.Path, shapes: list[list[int]], agent_axis: int) -> dict[str, Any]:
    """Checks a checkpoint's files against its seal, and its arrays' shapes; returns its notes."""
    try:
        seal = json.loads((folder / "seal.json").read_text())
        sealed, notes = dict(seal["files"]), dict(seal["notes"])
        stored, written = seal["shapes"], seal["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError("its seal is missing or unreadable") from error
    if written != RUN_FORMAT:
        raise ValueError(f"it is in format {written}, and this version reads format {RUN_FORMAT}")
    fingerprints = _fingerprints(folder / "state")
    for name, fingerprint in sealed.items():
        if fingerprints.get(name) != fingerprint:
            raise ValueError(f"{name} is missing or damaged")
    if not _differ_in_idle_rows_alone(stored, shapes, agent_axis):
        raise ValueError("its arrays have other shapes than this run's")
    return notes


def _run_error(message: str, error: Exception) -> RunError:
    """Returns an error of the run, which all processes have met if they have all met its cause."""
    return (hosts.AgreedError if isinstance(error, hosts.AgreedError) else RunError)(message)


def _abstract(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)


def _fingerprints(folder: pathlib.Path) -> dict[str, list]:
    return {
        str(path.relative_to(folder)): [path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()]
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def tree_sha256(tree: Any) -> str:
    """Returns one hash of all arrays of a tree, with their names, shapes and dtypes."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree.leaves_with_path(tree):
        array = np.ascontiguousarray(jax.device_get(leaf))
        digest.update(f"{jax.tree_util.keystr(path)} {array.shape} {array.dtype}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
