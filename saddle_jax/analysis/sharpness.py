"""Sharpness of runs' models at their checkpoints: which images it is measured on, and sharpness.json.

The images are a fixed random sample of the training data of all agents, not augmented; or, for agents with
data="own", of their own data.
"""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.analysis import hessian
from saddle_jax.analysis.hessian import ITERATIONS, Spectrum
from saddle_jax.base.checks import ArgumentError, is_integer_text
from saddle_jax.base.types import Array, Batch, LossFn, Params
from saddle_jax.data.dataset import Dataset
from saddle_jax.kernels.convolution import ConvImpl
from saddle_jax.models.precision import products
from saddle_jax.runs.run_folder import write_json
from saddle_jax.runs.schema import read_sharpness
from saddle_jax.settings.sweep import name_of as sweep_name
from saddle_jax.settings.sweep import settings_of
from saddle_jax.training import reopen
from saddle_jax.training.build import Trial
from saddle_jax.training.program import Program
from saddle_jax.training.progress import Screen

DATA = ("train", "own")
FILE = "sharpness.json"
_NUMBERS = ("lambda_max", "lambda_min", "residual", "trace", "trace_error")
# Images in one compiled call: with fewer the calls' overhead counts, with more a CPU's caches overflow.
_CHUNK = 128


def training_chunks(trial: Trial, samples: int, agent: int | None = None) -> list[tuple[float, Batch]]:
    """Returns at most `samples` training samples in batches, with weights that sum to one.

    They are drawn from all agents' data, or from one agent's. They are the same for every model of a run, and
    for every run with the same partition. Batches have one shape if the objective uses a mask; otherwise the
    last one is shorter.
    """
    dataset, partition, masked = trial.dataset, trial.partition, trial.objective.masked
    agents = range(partition.agents) if agent is None else [agent]
    own = np.unique(np.concatenate([partition.samples[i][: partition.sizes[i]] for i in agents]))
    chosen = np.sort(np.random.RandomState(0).permutation(own)[:samples])
    size = min(_CHUNK, len(chosen))
    chunks = []
    for start in range(0, len(chosen), size):
        members = chosen[start : start + size]
        # With a mask the last chunk is filled up with repeated samples, which are masked.
        filled = np.resize(members, size) if masked else members
        batch = dataset.prepared(_stored(dataset, filled))
        if masked:
            batch = {**batch, "mask": jnp.asarray(np.arange(size) < len(members), jnp.float32)}
        chunks.append((len(members) / len(chosen), batch))
    return chunks


def _stored(dataset: Dataset, samples: np.ndarray) -> Batch:
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf[samples])), dataset.train)


def loss_of(trial: Trial, conv_impl: ConvImpl) -> LossFn:
    """Returns (params, batch) -> loss; cached, so that runs of the same model share its compilation."""
    return _without_aux(trial.loss_of(conv_impl))


@functools.lru_cache(maxsize=16)
def _without_aux(loss: LossFn) -> LossFn:
    def value(params: Params, batch: Batch) -> Array:
        with products():
            result: Array = loss(params, batch)[0]
            return result

    return value


def measure(
    trial: Trial, params: Params, images: int, agent: int | None = None, **options: Any
) -> hessian.Spectrum:
    """Measures one model's Hessian on `training_chunks`; options are those of `hessian.spectrum`.

    The start vectors are the same for all models.
    """
    chunks = training_chunks(trial, images, agent)
    return hessian.spectrum(loss_of(trial, "plain"), params, chunks, jax.random.key(0), **options)


def metrics(trial: Trial, params: Params) -> dict[str, float]:
    """Returns the metrics of the consensus model's sharpness that training logs."""
    spectrum = measure(trial, params, trial.config.sharpness_images)
    return {name: getattr(spectrum, name) for name in ("lambda_max", "lambda_min", "trace")}


def stage(
    step: int, epoch: float, whose: str | int, spectrum: hessian.Spectrum, curve: bool
) -> dict[str, Any]:
    """Makes one entry of "stages" in sharpness.json; numbers that are not finite become null."""
    numbers = {
        name: value if math.isfinite(value) else None
        for name in _NUMBERS
        for value in [getattr(spectrum, name)]
    }
    density = None
    if curve and math.isfinite(spectrum.lambda_max):
        x, y = hessian.density(spectrum)
        density = {"x": x.tolist(), "y": y.tolist()}
    return {"step": step, "epoch": epoch, "whose": whose, **numbers, "density": density}


def file_of(workdir: pathlib.Path, trial: int | None = None) -> pathlib.Path:
    """Returns the path of a run's measurements; each trial of a folder has its own file."""
    return workdir / (FILE if trial is None else f"sharpness-{trial}.json")


def read_stages(path: pathlib.Path, settings: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Reads the stages of sharpness.json if they were measured with these settings; None accepts any."""
    content = read_sharpness(path) or {"stages": []}
    if settings is not None and any(content.get(name) != value for name, value in settings.items()):
        return []
    stages: list[dict[str, Any]] = content["stages"]
    return stages


def write_stages(path: pathlib.Path, settings: dict[str, Any], stages: list[dict[str, Any]]) -> None:
    """Writes sharpness.json: stages in order, the consensus model before the agents."""

    def order(entry: dict[str, Any]) -> tuple[int, int]:
        return entry["step"], -1 if entry["whose"] == "consensus" else entry["whose"]

    write_json(path, {**settings, "stages": sorted(stages, key=order)})


# ---- the models that a user asks for, and measuring those that are missing ----


CONSENSUS = "consensus"
Whose = str | int  # CONSENSUS, or the number of an agent


class Opened(NamedTuple):
    """One run: a folder, or one of several trials in it."""

    workdir: pathlib.Path
    whole: Program
    number: int = 0

    @property
    def trial(self) -> Trial:
        """The trial of the run."""
        return self.whole.trials[self.number]

    @property
    def file(self) -> pathlib.Path:
        """The path of its measurements."""
        return file_of(self.workdir, self.number if self.whole.config.has_trials else None)

    @property
    def setting(self) -> dict[str, Any]:
        """The settings that differ among the folder's runs, such as {"seed": 1}; empty for a single run."""
        config = self.whole.config
        return settings_of(config.seeds, config.sweep)[self.number] if config.has_trials else {}

    def name(self, folder: str) -> str:
        """Returns the run's name, such as "folder (seed 1)", given that of its folder."""
        return f"{folder} ({sweep_name(self.setting)})" if self.setting else folder


class Target(NamedTuple):
    """A model to measure: the consensus model or that of an agent, at a checkpoint."""

    run: Opened
    step: int
    whose: Whose

    @property
    def key(self) -> tuple[pathlib.Path, int, Whose]:
        """The key that identifies it: file, step and agent."""
        return self.run.file, self.step, self.whose


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The settings of the measurement of Hessians.

    Attributes:
      data: whether agents' models are measured on all training data ("train") or each on its "own".
      images: the most training images that are used.
      iterations: the steps of Lanczos for each probe.
      probes: the number of random start vectors.
      density: whether the spectral density is stored too.
    """

    data: str = "train"
    images: int = 1024
    iterations: int = ITERATIONS
    probes: int = 1
    density: bool = False


def name_of(whose: Whose) -> str:
    """Returns the name of a model's owner for tables."""
    return CONSENSUS if whose == CONSENSUS else f"agent {whose}"


def open_runs(
    workdirs: Sequence[pathlib.Path],
    trial: int | None = None,
    data_dir: str | None = None,
    code: Sequence[str] = (),
) -> list[Opened]:
    """Opens the runs of folders: all trials of each, or the given one."""
    runs = []
    for workdir in workdirs:
        whole = reopen.open_whole(workdir, data_dir, trial, code)
        numbers = range(len(whole.trials)) if trial is None else [trial]
        runs += [Opened(workdir, whole, number) for number in numbers]
    return runs


def targets_of(runs: Sequence[Opened], epochs: Sequence[str], agents: Sequence[str]) -> list[Target]:
    """Lists the models to measure; epochs are ["all"] or some, agents are ["none"], ["all"] or some."""
    return [
        Target(run, step, whose)
        for run in runs
        for owners in [_owners(agents, run.trial.config.agents)]
        for step in reopen.steps_at(epochs, run.workdir, run.trial)
        for whose in owners
    ]


def _owners(agents: Sequence[str], count: int) -> list[Whose]:
    """Returns the owners of the models to measure: the consensus model, then these agents."""
    if agents in (["none"], ["all"]):
        return [CONSENSUS, *(range(count) if agents == ["all"] else ())]
    if not agents or not all(is_integer_text(agent) and int(agent) < count for agent in agents):
        raise ArgumentError(f"agents must be none, all, or of 0 to {count - 1}, got {','.join(agents)}")
    return [CONSENSUS, *dict.fromkeys(map(int, agents))]


class _Record:
    """One run's sharpness.json, to which measurements are added one by one.

    Attributes:
      settings: the settings of its measurements, as stored in the file.
      is_replaced: whether the file holds measurements with other settings, which the first new one replaces.
    """

    def __init__(self, run: Opened, how: Measurement):
        self.run, self._how = run, how
        samples = int(run.trial.partition.sizes.sum())
        self.settings = {
            "data": how.data,
            "images": min(how.images, samples),
            "iterations": how.iterations,
            "probes": how.probes,
        }
        self._entries = read_stages(run.file, self.settings)
        self.is_replaced = not self._entries and bool(read_stages(run.file))

    def lacks(self, target: Target) -> bool:
        """Returns whether a model has no measurement yet, or one without the density that is asked for."""
        return not any(
            (entry["step"], entry["whose"]) == (target.step, target.whose)
            and (entry["density"] or not self._how.density)
            for entry in self._entries
        )

    def epoch(self, target: Target) -> float:
        """Returns the epoch of a model's checkpoint."""
        return target.step / self.run.trial.batches.steps_per_epoch

    def measure(self, target: Target, params: Params, progress: Callable[[], None]) -> Spectrum:
        """Measures one of the models `params` [A, ...] and adds it to the file."""
        agent = None if target.whose == CONSENSUS else int(target.whose)
        spectrum = measure(
            self.run.trial,
            reopen.choose(params, agent),
            self._how.images,
            agent if self._how.data == "own" else None,
            iterations=self._how.iterations,
            probes=self._how.probes,
            progress=progress,
        )
        entry = stage(target.step, self.epoch(target), target.whose, spectrum, self._how.density)
        place = (target.step, target.whose)
        self._entries = [e for e in self._entries if (e["step"], e["whose"]) != place] + [entry]
        write_stages(self.run.file, self.settings, self._entries)
        return spectrum


def measure_missing(
    runs: Sequence[Opened], targets: Sequence[Target], how: Measurement, screen: Screen
) -> None:
    """Measures the models that are missing in each run's sharpness.json, checkpoint by checkpoint."""
    records = {run.file: _Record(run, how) for run in runs}
    for file, record in records.items():
        if record.is_replaced:
            screen.line(f"{file} was measured with other settings: it is replaced")
    missing = [target for target in targets if records[target.run.file].lacks(target)]
    if not missing:
        return
    source = "each agent's own data" if how.data == "own" else "the agents' training data together"
    for workdir, record in {record.run.workdir: record for record in records.values()}.items():
        screen.line(f"{workdir}: {record.settings['images']:,} samples of {source}, not augmented")
    screen.start(len(missing) * how.iterations * how.probes, 0)
    opened, params = None, None
    for number, target in enumerate(missing, 1):
        record = records[target.run.file]
        if opened != target.key[:2]:
            opened = target.key[:2]
            params = reopen.open_models(target.run.workdir, target.run.whole, target.step, target.run.number)
        spectrum = record.measure(target, params, lambda: screen.advance(1))
        screen.line(
            f"[{number} of {len(missing)}] {target.run.name(target.run.workdir.name)} epoch "
            f"{record.epoch(target):g}, {name_of(target.whose)}: lambda_max {spectrum.lambda_max:.4g}"
        )
    screen.stop()


def measured_stages(runs: Sequence[Opened], targets: Sequence[Target]) -> list[list[dict[str, Any]]]:
    """Reads the entries of the targets from each run's sharpness.json."""
    wanted = {target.key for target in targets}
    return [
        [entry for entry in read_stages(run.file) if (run.file, entry["step"], entry["whose"]) in wanted]
        for run in runs
    ]
