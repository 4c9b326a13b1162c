"""The sharpness of runs at their checkpoints: which models are asked for, and measuring what is missing."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from saddle_jax.analysis import sharpness
from saddle_jax.analysis.hessian import ITERATIONS, Spectrum
from saddle_jax.base.checks import ArgumentError, spells_whole
from saddle_jax.base.types import Params
from saddle_jax.training import reopen
from saddle_jax.training.build import Replica
from saddle_jax.training.progress import Screen

CONSENSUS = "consensus"
Whose = str | int  # CONSENSUS, or the number of an agent


class Target(NamedTuple):
    """One model whose Hessian is asked for: the consensus model or an agent's own, at a checkpoint."""

    workdir: pathlib.Path
    step: int
    whose: Whose


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The settings with which Hessians are measured.

    Attributes:
      data: whether agents' own models are measured on all training data ("train") or each on its "own".
      images: how many training images are used at most.
      iterations: how many steps Lanczos takes for each probe.
      probes: how many random start vectors there are.
      density: whether the spectral density is kept too.
    """

    data: str = "train"
    images: int = 1024
    iterations: int = ITERATIONS
    probes: int = 1
    density: bool = False


def name_of(whose: Whose) -> str:
    """Names the owner of a model as tables do."""
    return CONSENSUS if whose == CONSENSUS else f"agent {whose}"


def targets_of(
    runs: Mapping[pathlib.Path, Replica], epochs: Sequence[str], agents: Sequence[str]
) -> list[Target]:
    """Lists the models that a user asks for: ["all"] or some epochs, ["none"], ["all"] or some agents."""
    return [
        Target(workdir, step, whose)
        for workdir, replica in runs.items()
        for owners in [_owners(agents, replica.config.agents)]
        for step in reopen.steps_at(epochs, workdir, replica)
        for whose in owners
    ]


def _owners(agents: Sequence[str], count: int) -> list[Whose]:
    """Returns whose models are asked for: always the consensus model, then these agents."""
    if agents in (["none"], ["all"]):
        return [CONSENSUS, *(range(count) if agents == ["all"] else ())]
    if not agents or not all(spells_whole(agent) and int(agent) < count for agent in agents):
        raise ArgumentError(f"agents must be none, all, or of 0 to {count - 1}, got {','.join(agents)}")
    return [CONSENSUS, *dict.fromkeys(map(int, agents))]


class _Record:
    """One run's sharpness.json, to which measurements are added one by one.

    Attributes:
      settings: how its entries are measured, as the file states it.
      is_replaced: whether the file holds measurements with other settings, which the first new one replaces.
    """

    def __init__(self, workdir: pathlib.Path, replica: Replica, how: Measurement):
        self.workdir, self._replica, self._how = workdir, replica, how
        samples = int(replica.partition.sizes.sum())
        self.settings = {
            "data": how.data,
            "images": min(how.images, samples),
            "iterations": how.iterations,
            "probes": how.probes,
        }
        self._entries = sharpness.read_stages(workdir, self.settings)
        self.is_replaced = not self._entries and bool(sharpness.read_stages(workdir))

    def lacks(self, target: Target) -> bool:
        """Tells whether a model is still to be measured, or measured again with its density."""
        return not any(
            (entry["step"], entry["whose"]) == (target.step, target.whose)
            and (entry["density"] or not self._how.density)
            for entry in self._entries
        )

    def epoch(self, target: Target) -> float:
        """Returns the epoch of a model's checkpoint."""
        return target.step / self._replica.batches.steps_per_epoch

    def open_models(self, step: int) -> Params:
        """Opens all agents' models [A, ...] at the checkpoint of one step."""
        return reopen.open_stage(self.workdir, self._replica, step)

    def measure(self, target: Target, params: Params, progress: Callable[[], None]) -> Spectrum:
        """Measures one of the models `params` [A, ...] and writes it down."""
        agent = None if target.whose == CONSENSUS else int(target.whose)
        spectrum = sharpness.measure(
            self._replica,
            reopen.choose(params, agent),
            self._how.images,
            agent if self._how.data == "own" else None,
            iterations=self._how.iterations,
            probes=self._how.probes,
            progress=progress,
        )
        entry = sharpness.stage(target.step, self.epoch(target), target.whose, spectrum, self._how.density)
        place = (target.step, target.whose)
        self._entries = [e for e in self._entries if (e["step"], e["whose"]) != place] + [entry]
        sharpness.write_stages(self.workdir, self.settings, self._entries)
        return spectrum


def measure_missing(
    runs: Mapping[pathlib.Path, Replica], targets: Sequence[Target], how: Measurement, screen: Screen
) -> None:
    """Adds to every run's sharpness.json the models that it lacks, checkpoint by checkpoint."""
    records = {workdir: _Record(workdir, replica, how) for workdir, replica in runs.items()}
    for record in records.values():
        if record.is_replaced:
            screen.line(f"{record.workdir / sharpness.FILE} was measured with other settings: it is replaced")
    missing = [target for target in targets if records[target.workdir].lacks(target)]
    if not missing:
        return
    source = "each agent's own data" if how.data == "own" else "the agents' training data together"
    for record in records.values():
        screen.line(f"{record.workdir}: {record.settings['images']:,} samples of {source}, not augmented")
    screen.start(len(missing) * how.iterations * how.probes, 0)
    checkpoint, params = None, None
    for number, target in enumerate(missing, 1):
        record = records[target.workdir]
        if checkpoint != (target.workdir, target.step):
            checkpoint, params = (target.workdir, target.step), record.open_models(target.step)
        spectrum = record.measure(target, params, lambda: screen.advance(1))
        screen.line(
            f"[{number} of {len(missing)}] {target.workdir.name} epoch {record.epoch(target):g}, "
            f"{name_of(target.whose)}: lambda_max {spectrum.lambda_max:.4g}"
        )
    screen.stop()


def measured_stages(
    workdirs: Sequence[pathlib.Path], targets: Sequence[Target]
) -> dict[pathlib.Path, list[dict[str, Any]]]:
    """Reads the entries of sharpness.json that were asked for, by run."""
    return {
        workdir: [
            entry
            for entry in sharpness.read_stages(workdir)
            if Target(workdir, entry["step"], entry["whose"]) in targets
        ]
        for workdir in workdirs
    }
