"""Checkpoints: written by orbax, sealed with a list of hashes, and renamed into place at the end.

    checkpoints/00000500/state/       orbax's files
    checkpoints/00000500/seal.json    size and SHA-256 of each file, the step, and the identity of the run

A checkpoint whose files do not match its seal, or that belongs to another run or step, is skipped with a
message.
"""

import contextlib
import copy
import functools
import hashlib
import io
import json
import logging
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import DamagedError, RunError, short_line
from saddle_jax.base.files import check_utf8
from saddle_jax.base.reading import read_object
from saddle_jax.base.types import Params
from saddle_jax.devices import hosts
from saddle_jax.runs import source_files
from saddle_jax.settings.settings import IRRELEVANT, Settings
from saddle_jax.version import RUN_FORMAT

# ---- the run that a checkpoint belongs to, by its seal and by config.json ----


class Identity(NamedTuple):
    """What identifies a run.

    Attributes:
      settings: a hash of all settings that affect the results, apart from the epochs.
      epochs: the number of epochs, preceded by earlier numbers if the run was continued for longer.
      partitions: the fingerprint of the partition of each trial.
    """

    settings: str
    epochs: list[int]
    partitions: list[str]

    def to_json(self) -> dict[str, Any]:
        """Returns the identity as a seal records it, with the current number of epochs."""
        return {**self._asdict(), "epochs": self.epochs[-1:]}

    def fault(self, sealed: Any) -> str:
        """Returns why a checkpoint with this seal belongs to another run; "" if it does not.

        Seals of earlier versions have no identity, and are accepted.
        """
        if sealed is None:
            return ""
        if not isinstance(sealed, dict) or sealed.get("settings") != self.settings:
            return "it is of a run with other settings"
        if sealed.get("partitions") != self.partitions:
            return "it is of a run whose data was partitioned otherwise"
        if sealed.get("epochs") not in [[number] for number in self.epochs]:
            return "it is of a run of other epochs"
        return ""


def identity_of(workdir: pathlib.Path) -> Identity | None:
    """Returns the identity of the run in a folder, from its config.json; None if there is none.

    The hash leaves out settings at their defaults, so that it survives new settings in later versions.
    """
    content = read_object(workdir / "config.json")
    if content is None or not isinstance(content.get("config"), dict):
        return None
    fields, settings = Settings.__dataclass_fields__, content["config"]
    identity = {
        name: source_files.short(name, value)
        for name, value in settings.items()
        if name not in (*IRRELEVANT, "epochs") and name in fields and value != fields[name].default
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    before = [_get(entry, "from", "epochs") for entry in content.get("continued") or []]
    epochs = [*(number for number in before if number is not None), settings.get("epochs")]
    each = content.get("partitions") or [content.get("partition")]
    return Identity(digest, epochs, [str(_get(one, "fingerprint")) for one in each])


def _get(content: Any, *path: str) -> Any:
    for name in path:
        content = content.get(name) if isinstance(content, dict) else None
    return content


_FRESH = 600  # seconds; most runs save more often
_LOOKS = 20  # attempts to read a checkpoint of a running run


class Checkpoints:
    """The checkpoints of one run folder: the newest `keep`, and one every `keep_every` steps."""

    def __init__(
        self,
        workdir: pathlib.Path,
        keep: int,
        keep_every: int = 0,
        agent_axis: int = 0,
        check: Callable[[], None] = lambda: None,
    ):
        """Accesses no files; `check` is called before each write, and raises if writing is not allowed."""
        self._workdir, self._check = workdir, check
        self._agent_axis = agent_axis  # of all arrays but scalars
        self._folder = workdir / "checkpoints"
        self._keep = keep
        self._keep_every = keep_every

    @functools.cached_property
    def _identity(self) -> Identity | None:
        """The identity of the run; None without a config.json."""
        return identity_of(self._workdir)

    def save(self, step: int, tree: Any, notes: dict[str, Any] | None = None) -> None:
        """Writes a checkpoint, then removes old ones.

        Raises:
          RunError: it could not be written; the other checkpoints are unchanged.
        """
        final = self._folder / f"{step:08d}"
        partial = self._folder / f".writing-{step:08d}"
        try:
            with hosts.agreement():
                if hosts.writes():
                    self._check()
                    self._folder.mkdir(parents=True, exist_ok=True)
                    for leftover in self._folder.glob(".writing-*"):  # of a process that was killed
                        _remove(leftover)
            with hosts.agreement():
                _write(partial / "state", tree)
            with hosts.agreement():
                if hosts.writes():
                    seal = self._seal(step, tree, notes or {}, _fingerprints(partial / "state"))
                    (partial / "seal.json").write_text(json.dumps(seal))
                    self._check()
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

    def _seal(
        self, step: int, tree: Any, notes: dict[str, Any], files: dict[str, list[Any]]
    ) -> dict[str, Any]:
        whose = {"run": self._identity.to_json()} if self._identity else {}
        about = {"format": RUN_FORMAT, "step": step, "agent_axis": self._agent_axis, **whose}
        return {**about, "notes": notes, "shapes": _shapes(tree), "files": files}

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, in ascending order."""
        names = [path.name for path in self._folder.glob("*")] if self._folder.is_dir() else []
        return sorted(int(name) for name in names if name.isdecimal() and name == f"{int(name):08d}")

    def restore_newest(
        self, like: Any, report: Callable[[str], None], *, set_aside: bool
    ) -> tuple[int, Any, dict[str, Any]] | None:
        """Restores step, tree and notes from the newest intact checkpoint; returns None if there is none.

        Args:
          like: a tree of the same shapes, dtypes and shardings.
          report: called with one line about each checkpoint that was skipped.
          set_aside: whether to rename those to "damaged-...", so that they are not read again.
        """
        check_utf8(self._folder)
        for step in reversed(hosts.broadcast_result(self.steps)):
            folder = self._folder / f"{step:08d}"
            try:
                with hosts.agreement():
                    return step, *self._restore(step, folder, like)
            except Exception as error:  # orbax and tensorstore have errors of their own
                if hosts.is_lost(error):
                    raise
                if hosts.writes() and folder.exists():
                    report(f"checkpoint {folder} cannot be used ({short_line(error)}); trying an earlier one")
            if set_aside and hosts.writes():
                aside = folder.with_name(f"damaged-{folder.name}")
                _remove(aside)
                folder.rename(aside)
        return None

    def read_newest(self, like: Any, report: Callable[[str], None]) -> tuple[int, Any, dict[str, Any]] | None:
        """Restores the newest checkpoint of a run that may be running, and removing checkpoints meanwhile.

        Raises:
          RunError: every checkpoint was removed before it had been read.
        """
        # Removing files while tensorstore reads them may leave threads that call back too late, so the
        # checkpoints that may be removed are copied first. Then all are read in place, also the older ones.
        first = [True] if self._is_fresh() else []
        for look, is_copied in enumerate([*first, False, *[True] * _LOOKS]):
            steps, faults = self.steps(), list[str]()
            with _copied(self, steps[-1:]) if is_copied else contextlib.nullcontext(self) as still:
                found = still.restore_newest(like, faults.append, set_aside=False)
            if self.steps() == steps and (found or look >= len(first)):
                for fault in faults:
                    report(fault)
                return found
            if found:  # others were skipped because they were being removed
                return found
        raise RunError(
            f"{self._workdir} is being trained, and its checkpoints are replaced before they can be read: "
            "try again when it has ended, or train with --keep_checkpoints=2 or more"
        )

    def _is_fresh(self) -> bool:
        """Returns whether the newest checkpoint is so recent that the run may be running."""
        steps = self.steps()
        try:
            return bool(steps) and time.time() - (self._folder / f"{steps[-1]:08d}").stat().st_mtime < _FRESH
        except FileNotFoundError:  # it has just been removed
            return True

    def restore(self, step: int, like: Any) -> Any:
        """Restores the tree of one step's checkpoint; `like` has the same shapes, dtypes and shardings.

        Raises:
          DamagedError: the checkpoint is missing or damaged.
        """
        folder = self._folder / f"{step:08d}"
        check_utf8(folder)
        try:
            return self._restore(step, folder, like)[0]
        except Exception as error:  # orbax and tensorstore have errors of their own
            raise DamagedError(f"checkpoint {folder} cannot be used ({short_line(error)})") from error

    def _restore(self, step: int, folder: pathlib.Path, like: Any) -> tuple[Any, dict[str, Any]]:
        notes = hosts.broadcast_result(self._check_seal, step, folder, _shapes(like))
        return _read(folder / "state", jax.tree.map(_abstract, like)), notes

    def _check_seal(self, step: int, folder: pathlib.Path, shapes: list[list[int]]) -> dict[str, Any]:
        """Checks a checkpoint's files, run and shapes against its seal; returns the notes in the seal."""
        seal = _read_seal(folder / "seal.json")
        if seal["format"] != RUN_FORMAT:
            raise ValueError(f"it is in format {seal['format']}, and this version reads format {RUN_FORMAT}")
        if seal["step"] != step:
            raise ValueError(f"it is of step {seal['step']}")
        if self._identity and (fault := self._identity.fault(seal.get("run"))):
            raise ValueError(fault)
        found = _fingerprints(folder / "state")
        for name in sorted({*seal["files"], *found}):
            if found.get(name) != seal["files"].get(name):
                raise ValueError(f"{name} is missing or damaged")
        if not _differ_in_idle_rows_alone(seal["shapes"], shapes, self._agent_axis):
            raise ValueError("its arrays have other shapes than this run's")
        result: dict[str, Any] = seal["notes"]
        return result


@contextlib.contextmanager
def _copied(checkpoints: Checkpoints, steps: list[int]) -> Iterator[Checkpoints]:
    """Yields temporary copies of checkpoints, since copying is faster than restoring."""
    with tempfile.TemporaryDirectory(prefix="saddle-") as name:
        still = copy.copy(checkpoints)
        still._folder = pathlib.Path(name)
        for step in steps:
            with contextlib.suppress(OSError, shutil.Error):  # it was removed meanwhile
                shutil.copytree(checkpoints._folder / f"{step:08d}", still._folder / f"{step:08d}")
        yield still


def _remove(path: pathlib.Path) -> None:
    """Removes a folder, or a link or file in its place, without following the link."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


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
        # Not strict: the number of padding rows depends on the number of devices.
        return checkpointer.restore(folder.absolute(), shapes, strict=False)


def _shapes(tree: Any) -> list[list[int]]:
    return [list(leaf.shape) for leaf in jax.tree.leaves(tree)]


def _differ_in_idle_rows_alone(stored: list[list[int]], expected: list[list[int]], axis: int) -> bool:
    """Returns whether two trees' shapes differ at most in the length of the agent axis `axis`."""

    def without(shapes: list[list[int]]) -> list[list[int]]:
        return [shape[:axis] + shape[axis + 1 :] for shape in shapes]

    def agents(shapes: list[list[int]]) -> set[int]:
        return {shape[axis] for shape in shapes if len(shape) > axis}

    same = without(stored) == without(expected)
    return stored == expected or (same and len(agents(stored)) == len(agents(expected)) == 1)


def _read_seal(path: pathlib.Path) -> dict[str, Any]:
    """Reads a seal; an invalid one is a ValueError."""
    try:
        seal = read_object(path)
    except DamagedError:
        seal = None
    kinds = {"files": dict, "notes": dict, "shapes": list, "format": int, "step": int}
    if seal is None or not all(isinstance(seal.get(name), kind) for name, kind in kinds.items()):
        raise ValueError("its seal is missing or unreadable")
    if not seal["files"] or not all(type(value) in (int, float) for value in seal["notes"].values()):
        raise ValueError("its seal is missing or unreadable")
    return seal


def _run_error(message: str, error: Exception) -> RunError:
    """Makes a RunError that all processes share if they share its cause."""
    return (hosts.AgreedError if isinstance(error, hosts.AgreedError) else RunError)(message)


def _abstract(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)


def _fingerprints(folder: pathlib.Path) -> dict[str, list[Any]]:
    """Returns size and hash of every regular file by its path."""

    def digest(path: pathlib.Path) -> list[Any]:
        with path.open("rb") as file:
            return [path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]

    return {
        str(path.relative_to(folder)): digest(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }


def tree_sha256(tree: Any) -> str:
    """Returns one hash of all arrays of a tree, with their names, shapes and dtypes."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree.leaves_with_path(tree):
        array = np.ascontiguousarray(jax.device_get(leaf))
        digest.update(f"{jax.tree_util.keystr(path)} {array.shape} {array.dtype}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


# ---- a model as one file of named arrays, for other programs ----


FORMATS = ("safetensors", "msgpack", "torch")


def encode(model: Params, form: str, about: dict[str, str], layout: Any) -> bytes:
    """Encodes one model in one of FORMATS; safetensors also hold `about` as their metadata.

    The format torch is a state_dict in a file .pt; `layout` has its names, see `models.Functions`.
    """
    if form == "torch":
        try:
            import torch
        except ImportError as error:
            raise ArgumentError("format torch needs PyTorch: pip install 'saddle_jax[torch]'") from error
        tensors = {name: torch.from_numpy(np.array(a)) for name, a in layout.state_dict(model).items()}
        content = io.BytesIO()
        torch.save(tensors, content)
        return content.getvalue()
    if form == "msgpack":
        from flax.serialization import to_bytes

        return to_bytes(jax.tree.map(np.asarray, model))
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in layout.arrays(model).items()}
    return save(arrays, metadata=about)  # which takes the memory as it lies
