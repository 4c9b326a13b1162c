"""The folder of a run: its lock, its settings, its metrics and its result. Everything is JSON.

config.json     the settings, versions, devices, partition
metrics.jsonl   one object per logged step or evaluation; `settings.sweep` says how several runs share one
result.json     how the run ended
checkpoints/    see `checkpoints`
code/           copies of the user's own files that the run uses, see `source_files`
tensorboard/    the same metrics as event files; wandb/ likewise, and loggers.json, if they are asked for
curves.png      the same metrics as a picture
"""

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from saddle_jax.base.errors import RunError
from saddle_jax.base.files import atomic_write, check_no_link, check_utf8, naming, open_regular
from saddle_jax.base.reading import read_object, reading
from saddle_jax.runs import source_files
from saddle_jax.runs.loggers import LOGGERS, Logger, numbers_of
from saddle_jax.runs.metrics import read_metrics
from saddle_jax.runs.run_name import differences
from saddle_jax.runs.schema import ConfigFile, checked, finite, read_result
from saddle_jax.settings.settings import Settings, from_json
from saddle_jax.version import RUN_FORMAT

# ---- the lock: only one process trains in a folder, and notices if the folder is replaced ----


_PATIENCE = 1.0  # seconds to wait for a lock
# The subfolders in which a run writes or removes files.
FOLDERS = ("checkpoints", "tensorboard", "wandb", "trace", source_files.FOLDER)


class FolderLock:
    """This process's lock on a run's folder."""

    def __init__(self, workdir: pathlib.Path, descriptor: int | None):
        """Stores the descriptor of the locked file; None if the system has no file locks."""
        self._workdir, self._descriptor = workdir, descriptor

    def check(self) -> None:
        """Checks, before a write, that the folder is still the one that was locked.

        Raises:
          RunError: it was deleted, and perhaps created again by another run.
        """
        if self._descriptor is None:
            return
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            there = os.stat(self._workdir / ".lock", follow_symlinks=False)
            if os.path.samestat(there, os.fstat(self._descriptor)):
                return
        raise RunError(
            f"{self._workdir} was deleted or replaced while its run was going on: the run ends here, and "
            "writes nothing into what is there now"
        )


@contextlib.contextmanager
def locked(workdir: pathlib.Path) -> Iterator[FolderLock]:
    """Locks the folder for this process; the system releases the lock when the process ends."""
    check_utf8(workdir)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        for name in FOLDERS:
            check_no_link(workdir / name)
        check_no_link(workdir / ".lock")
        file = os.fdopen(open_regular(workdir / ".lock", os.O_RDWR | os.O_CREAT | os.O_APPEND), "a+")
    except OSError as error:
        raise RunError(
            f"workdir must be a folder that can be written to, got {workdir}: {error.strerror or error}"
        ) from error
    with file:
        try:
            import fcntl
        except ImportError:  # Windows has no such lock
            yield FolderLock(workdir, None)
            return
        try:
            _lock_patiently(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise RunError(
                f"{workdir} is in use by another run ({holder}): wait for it or choose another workdir"
            ) from error
        with naming(workdir / ".lock"):  # the disk may be full
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"process {os.getpid()}".encode())
        yield FolderLock(workdir, file.fileno())


def _lock_patiently(lock: Callable[[], None]) -> None:
    """Retries for a second, since `is_locked` of another process holds the lock for a moment."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return lock()
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def is_locked(workdir: pathlib.Path) -> bool:
    """Returns whether a running process has locked the folder. Nothing is created or written."""
    try:
        import fcntl

        with os.fdopen(open_regular(workdir / ".lock", os.O_RDONLY)) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False


def write_json(path: pathlib.Path, content: Any) -> None:
    """Writes a JSON file atomically."""
    with atomic_write(path) as partial, partial.open("w") as file:
        file.write(json.dumps(content, indent=1, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_config(workdir: pathlib.Path) -> Settings:
    """Reads the settings of the run in a folder.

    Raises:
      RunError: there is no run, it has another format, or config.json is damaged.
    """
    settings = read_about(workdir)["config"]
    with reading(workdir / "config.json"):
        return from_json(settings)


def read_about(workdir: pathlib.Path) -> dict[str, Any]:
    """Reads config.json: the settings and the environment of the run, see `schema.ConfigFile`.

    Raises:
      RunError: as `read_config`.
    """
    path = workdir / "config.json"
    content = read_object(path)
    if content is None:
        raise RunError(f"{workdir} holds no run: {path.name} is missing")
    if (written := content.get("format", 1)) != RUN_FORMAT:
        raise RunError(
            f"{workdir} holds a run in format {str(written)[:20]}, and this version reads format "
            f"{RUN_FORMAT}: train it again in another folder, or use the version that wrote it"
        )
    with reading(path):
        return checked(content, ConfigFile)


def folders_below(folder: pathlib.Path) -> list[pathlib.Path]:
    """Lists the folders of all runs below a folder, sorted by path.

    It skips the subfolders of runs, whose files come and go during training.
    """
    found = []
    for path, folders, files in os.walk(folder):
        if "config.json" in (*files, *folders):
            found.append(pathlib.Path(path))
            folders[:] = [name for name in folders if name not in FOLDERS and not name.startswith(".")]
    return sorted(found)


def same_problem(workdirs: Sequence[pathlib.Path]) -> None:
    """Checks that runs have the same model and dataset, which makes their losses comparable."""
    configs = [read_config(workdir) for workdir in workdirs]
    for name in ("model", "norm", "dataset", "objective"):
        first = getattr(configs[0], name)
        for workdir, config in zip(workdirs, configs, strict=True):
            if getattr(config, name) != first:
                raise RunError(
                    f"runs must have the same {name}, got {first} in {workdirs[0]} "
                    f"and {getattr(config, name)} in {workdir}"
                )


def all_ended(workdirs: Sequence[pathlib.Path]) -> None:
    """Checks that runs have ended, which makes their last models comparable."""
    for workdir in workdirs:
        read_config(workdir)
        result = read_result(workdir)
        if result is None or result["status"] == "interrupted":
            raise RunError(f"{workdir} is unfinished: `saddle train` with the same settings continues it")


def check_same(workdir: pathlib.Path, config: Settings) -> None:
    """Checks that the run in a folder has these settings, apart from those that cannot change its results."""
    differing = differences(read_config(workdir), config)
    if differing:
        _refuse(workdir, differing)


def _refuse(workdir: pathlib.Path, differing: Sequence[str]) -> None:
    raise RunError(
        f"{workdir} holds a run with other settings: {', '.join(differing)}; choose another workdir"
    )


def claim(
    workdir: pathlib.Path,
    config: Settings,
    record: dict[str, Any],
    kept: Sequence[source_files.SavedSource] = (),
    continued: dict[str, Any] | None = None,
) -> None:
    """Writes config.json and copies of user files, or checks that existing ones belong to this run.

    With `continued`, which records the progress so far, the run changes to these settings.
    """
    path = workdir / "config.json"
    if not path.exists():
        source_files.write_copies(workdir, kept)
        content = {"format": RUN_FORMAT, "config": config.to_json(), **record}
        listed = {"code": [each.to_json() for each in kept]} if kept else {}
        write_json(path, content | listed)
        return
    if not continued:
        check_same(workdir, config)
    source_files.check_unchanged(workdir, kept)
    before = read_about(workdir)
    stored = before.get("partition", {}).get("fingerprint")
    fingerprint = record["partition"]["fingerprint"]
    if stored != fingerprint:
        _refuse(workdir, [f"the partition's fingerprint {stored} -> {fingerprint}"])
    _check_unchanged(workdir, before, record)
    if continued:
        history = [*before.get("continued", []), continued]
        after = {**before, "config": config.to_json(), "steps": record["steps"], "continued": history}
        write_json(path, after)


def _check_unchanged(workdir: pathlib.Path, stored: dict[str, Any], record: dict[str, Any]) -> None:
    """Refuses to resume a run whose samples, step or graph have changed."""

    def links(about: dict[str, Any]) -> list[Any] | None:  # without the weights, whose rounding may differ
        graphs = about.get("topology", {}).get("graphs")
        return [graph[:2] for graph in graphs] if isinstance(graphs, list) else None

    both = (stored, record)
    samples = [about.get("dataset", {}).get("samples") for about in both]
    traced_by = [
        (about.get("versions"), about.get("devices", [])[:1]) for about in both
    ]  # they depend on JAX's version
    others = {
        "on other samples: choose another workdir, or bring the data back": samples[0] != samples[1]
        and "dataset" in stored,
        "whose method, model, loss or graph computed something else: choose another workdir, or undo the "
        "change to go on with it": stored.get("computes") != record.get("computes")
        and traced_by[0] == traced_by[1],
        "on another graph of this name: a graph that is random must take a seed": links(stored)
        != links(record)
        or "topology" not in stored,
    }
    for difference, is_other in others.items():
        if is_other:
            raise RunError(f"{workdir} holds a run {difference}")


class Metrics:
    """A writer of metrics.jsonl, and of what other loggers take of it."""

    def __init__(
        self,
        workdir: pathlib.Path,
        resume_at: int,
        last_step: int,
        check: Callable[[], None] = lambda: None,
        loggers: Sequence[str] = ("tensorboard",),
    ):
        """Opens the files, and removes what an interrupted run wrote after the step from which it resumes.

        The evaluation and sharpness of the last step follow its checkpoint, so they are measured again.
        `check` is called before each write, and raises if writing is not allowed.
        """
        path = workdir / "metrics.jsonl"
        measured_again = {"test_loss", "lambda_max"}
        records = [
            record
            for record in read_metrics(workdir)
            if record["step"] <= resume_at
            and not (record["step"] == last_step and measured_again & set(record))
        ]
        with atomic_write(path) as partial:
            partial.write_text("".join(json.dumps(record) + "\n" for record in records))
        self._check, self._path = check, path
        self._loggers: dict[pathlib.Path, Logger] = {}  # by the place where each writes
        for name in loggers:
            with naming(workdir / name):
                self._loggers[workdir / name] = LOGGERS[name](workdir, resume_at + 1)
        self._file = path.open("a")

    def write(self, record: dict[str, Any]) -> None:
        """Appends a record of numbers and lists, with `step`; infinite, NaN and huge numbers become null."""
        self._check()
        line = {name: finite(value) for name, value in record.items()}
        with naming(self._path):
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        numbers = numbers_of(line)
        for place, logger in self._loggers.items():
            with naming(place):
                logger.write(record["step"], numbers)

    def flush(self) -> None:
        """Lets loggers write what they hold back, so that nothing is lost if the process is killed."""
        for place, logger in self._loggers.items():
            with naming(place):
                logger.flush()

    def close(self) -> None:
        """Closes metrics.jsonl and the loggers."""
        with contextlib.ExitStack() as stack:
            for place, logger in self._loggers.items():
                stack.enter_context(naming(place))
                stack.callback(logger.close)
            with naming(self._path):
                self._file.close()


class NoMetrics(Metrics):
    """The metrics of a process other than process 0, which alone writes."""

    def __init__(self) -> None:
        pass

    def write(self, record: dict[str, Any] | None = None) -> None:
        """Does nothing: process 0 writes."""

    flush = close = write
