"""Where a run's metrics go beside metrics.jsonl: TensorBoard, Weights & Biases, MLflow.

Each logger takes a step's numbers by name. Nothing is imported unless it is asked for, and servers, projects
and modes are those of the packages' own environment variables: WANDB_MODE=offline, WANDB_PROJECT,
MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME. The file loggers.json of a run remembers what its run is called
there, so that a run that goes on, or is exported again, is the same run.
"""

import contextlib
import importlib
import json
import os
import pathlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import DamagedError, RunError, short_line
from saddle_jax.base.files import atomic_write
from saddle_jax.base.reading import read_object
from saddle_jax.runs.metrics import Events, read_metrics

FILE = "loggers.json"
_PROJECT = "saddle_jax"


class Logger(Protocol):
    """Takes the metrics of one run."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Appends the numbers of a step."""

    def flush(self) -> None:
        """Writes what is buffered."""

    def close(self) -> None:
        """Ends the session; the run may go on in another."""


class WandB:
    """A run of Weights & Biases, whose data lie in the run's folder until they are sent."""

    def __init__(self, workdir: pathlib.Path, purge_step: int):
        """Begins or resumes the run; wandb itself passes over steps that it has."""
        wandb = _imported("wandb", "wandb")
        about = _about(workdir)
        known = _known(workdir).get("wandb") or secrets.token_hex(4)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            id=known,
            resume="allow",
            name=workdir.resolve().name,
            dir=str(workdir),
            config=about,
            tags=list(_tags(about).values()),
            settings=wandb.Settings(silent=True),
        )
        _remember(workdir, "wandb", known)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Appends the numbers of a step."""
        self._run.log(dict(numbers), step=step)

    def flush(self) -> None:
        """Does nothing: wandb writes by itself."""

    def close(self) -> None:
        """Ends the session."""
        self._run.finish()


@contextlib.contextmanager
def _server() -> Iterator[None]:
    """Tells in one line what MLflow's server or its package does not do."""
    try:
        yield
    except ArgumentError:
        raise
    except Exception as error:  # of HTTP, of a database, and MLflow's own
        raise RunError(f"the logger mlflow failed: {short_line(error)}") from error


class MLflow:
    """A run of MLflow, whose metrics are sent in batches."""

    _MOST = 1000  # metrics that a request may have

    def __init__(self, workdir: pathlib.Path, purge_step: int):
        """Begins or resumes the run; a step that it has already is written again."""
        mlflow = _imported("mlflow", "mlflow-skinny")
        self._metric = mlflow.entities.Metric
        self._waiting: list[Any] = []
        with _server():
            self._client = mlflow.MlflowClient()
            known = _known(workdir).get("mlflow")
            self._id = known or self._begin(_about(workdir), workdir.resolve().name)
            self._client.update_run(self._id, status="RUNNING")
        _remember(workdir, "mlflow", self._id)

    def _begin(self, about: Mapping[str, Any], run_name: str) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        run: str = self._client.create_run(number, tags=_tags(about), run_name=run_name).info.run_id
        for key, value in about.items():
            self._client.log_param(run, key, value)
        return run

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Appends the numbers of a step."""
        now = int(1000 * time.time())
        self._waiting += [self._metric(name, value, now, step) for name, value in numbers.items()]
        if len(self._waiting) >= self._MOST:
            self.flush()

    def flush(self) -> None:
        """Sends what is waiting."""
        while self._waiting:
            batch, self._waiting = self._waiting[: self._MOST], self._waiting[self._MOST :]
            with _server():
                self._client.log_batch(self._id, metrics=batch)

    def close(self) -> None:
        """Sends what is waiting and ends the session."""
        self.flush()
        with _server():
            self._client.set_terminated(self._id)


LOGGERS: dict[str, Callable[[pathlib.Path, int], Logger]] = {
    "tensorboard": lambda workdir, purge_step: Events(workdir / "tensorboard", purge_step),
    "wandb": WandB,
    "mlflow": MLflow,
}


def replay(workdir: pathlib.Path, name: str) -> int:
    """Gives all of a run's metrics to a logger, and returns the number of lines."""
    records = read_metrics(workdir)
    logger = LOGGERS[name](workdir, 0)
    try:
        for record in records:
            logger.write(record["step"], numbers_of(record))
    finally:
        logger.close()
    return len(records)


def numbers_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of a line of metrics.jsonl; lists, of layers or trials, are left out."""
    return {
        name: value for name, value in record.items() if name != "step" and isinstance(value, int | float)
    }


def _imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ArgumentError(f"the logger {module} needs its package: pip install {package}") from error


def _about(workdir: pathlib.Path) -> dict[str, Any]:
    """Returns the settings of a run, from its config.json; long and nested values as text."""
    config = (read_object(workdir / "config.json") or {}).get("config", {})
    return {
        name: value if isinstance(value, int | float | str) else json.dumps(value)
        for name, value in config.items()
        if value not in ("", None)
    }


def _tags(about: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(about[name]) for name in ("method", "dataset", "model") if name in about}


def _known(workdir: pathlib.Path) -> dict[str, str]:
    try:
        found = read_object(workdir / FILE) or {}
    except DamagedError:
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _remember(workdir: pathlib.Path, name: str, value: str) -> None:
    with atomic_write(workdir / FILE) as partial:
        partial.write_text(json.dumps({**_known(workdir), name: value}, indent=2) + "\n")
