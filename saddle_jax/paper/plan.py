"""Planning the runs of an experiment: what is missing, how much it sends, how long it will take."""

import dataclasses
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from saddle_jax.base.errors import RunError
from saddle_jax.core.ledger import passes_per_step
from saddle_jax.paper import readings
from saddle_jax.paper.experiments import Entry
from saddle_jax.paper.scales import Scale
from saddle_jax.training.checkpoint import Checkpoints
from saddle_jax.training.config import Config
from saddle_jax.training.ended import read_result
from saddle_jax.training.feeding import Feed
from saddle_jax.training.program import build
from saddle_jax.training.run_folder import check_same, write_json

_PROBE_STEPS = 3


@dataclasses.dataclass(frozen=True)
class Planned:
    """One run: an entry of the paper at a scale, with a seed, in a folder."""

    entry: Entry
    config: Config
    workdir: pathlib.Path

    @property
    def status(self) -> str:
        """Returns finished, diverged, interrupted, or missing."""
        result = read_result(self.workdir)
        if result is not None:
            return result["status"]
        return "interrupted" if self.steps_done else "missing"

    @property
    def steps_done(self) -> int:
        """Returns the step of its newest checkpoint, or 0."""
        return max(Checkpoints(self.workdir, 1).steps(), default=0)

    @property
    def is_missing(self) -> bool:
        """Tells whether something of it is left to be run."""
        return self.status not in ("finished", "diverged")

    def note_paper(self, table: str, scale: Scale) -> None:
        """Writes paper.json, which names the figure of the paper that this run reproduces.

        A run that two experiments share keeps what the first of them wrote.
        """
        if (self.workdir / "paper.json").exists():
            return
        figure = None if self.entry.printed is None else str(self.entry.printed)
        name = self.workdir.name.rpartition("-seed")[0]  # with what was read otherwise
        about = {"table": table, "row": name, "paper": figure}
        write_json(self.workdir / "paper.json", {**about, "scale": f"{scale.name}: {scale.meaning}"})


@dataclasses.dataclass(frozen=True)
class Size:
    """The work of one run of an entry."""

    steps: int
    passes: float  # forward and backward passes of an agent's batch per step
    evaluations: float  # the same unit, in the whole run
    bytes_sent: int  # by one agent, in the encodings' exact size
    probe: tuple  # runs that agree in this take equally long per pass


def plan(
    entries: Sequence[Entry],
    scale: Scale,
    seeds: int,
    folder: pathlib.Path,
    data_dir: str,
    otherwise: Mapping[str, Any] | None = None,
) -> list[Planned]:
    """Lists the runs behind some entries, seed by seed, so that a table fills evenly.

    `otherwise` are readings of what the paper leaves open, see `readings`; folders are named after them.

    Raises:
      RunError: a folder holds another run than the one that belongs there.
    """
    runs = []
    for seed in range(seeds):
        for entry in entries:
            default = dataclasses.replace(scale.apply(entry.config(seed)), data_dir=data_dir)
            config = readings.read_otherwise(default, otherwise or {})
            name = f"{entry.name}{readings.ending(config, default)}-seed{seed}"
            runs.append(Planned(entry, config, folder / scale.name / name))
    there = next(path for path in (folder / scale.name, *(folder / scale.name).parents) if path.exists())
    if not there.is_dir():
        raise RunError(f"workdir must be a folder that can be written to, got {folder}: {there} is a file")
    for run in runs:
        if (run.workdir / "config.json").exists():
            check_same(run.workdir, run.config)
    return runs


def ended_below(folder: pathlib.Path, scale: Scale, entry: Entry, ending: str = "") -> list[pathlib.Path]:
    """Lists the folders of an entry's runs that have ended, seed by seed; `ending` is as below."""
    found = (folder / scale.name).glob(f"{entry.name}{ending}-seed*")
    return sorted(path for path in found if (path / "result.json").exists())


def endings_below(folder: pathlib.Path, scale: Scale, entry: Entry) -> list[str]:
    """Lists how the names of an entry's runs end that read the paper otherwise, such as "-order=paper"."""
    found = (folder / scale.name).glob(f"{entry.name}-*=*-seed*")
    return sorted({path.name.removeprefix(entry.name).rpartition("-seed")[0] for path in found})


def measure(config: Config) -> Size:
    """Builds a run, which also shows that it can be built, and returns its size."""
    program = build(config)
    # An evaluation is a forward pass, a third of a gradient, over the test set.
    batches = program.replica.dataset.test_size / (config.agents * program.replica.batches.size)
    evaluations = max(1, config.epochs // config.eval_every_epochs)
    evaluations += config.agents if config.eval_agents == "end" else 0
    return Size(
        steps=program.replica.steps,
        passes=passes_per_step(program.method, program.shapes_of_one.params),
        evaluations=evaluations * batches / 3,
        bytes_sent=program.ledger.wire_bytes_per_agent(program.replica.steps),
        probe=(config.dataset, config.model, config.agents, config.batch_size),
    )


def seconds_per_pass(config: Config) -> float:
    """Measures a step of plain D-PSGD with this data, model and number of agents, in seconds."""
    program = build(dataclasses.replace(config, method="dpsgd", compressor="none", diagnostics=False))
    carry, feed = program.start(), Feed(program)
    times = []
    for step in range(min(_PROBE_STEPS + 1, program.replica.batches.steps_per_epoch)):
        inputs = feed.at(step)
        started = time.perf_counter()
        carry, _ = program.steps(carry, inputs, step)
        jax.block_until_ready(carry)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:] or times)  # the first one compiles


def estimate(
    runs: Sequence[Planned], sizes: dict[str, Size], report: Callable[[str], None]
) -> dict[str, float]:
    """Estimates the seconds of each entry's run, by its name, from a probe per model, data and graph size."""
    rates: dict[tuple, float] = {}
    seconds = {}
    for run in runs:
        size = sizes[run.entry.name]
        if size.probe not in rates:
            report(f"measuring a step of {', '.join(map(str, size.probe[:2]))}, {size.probe[2]} agents ...")
            rates[size.probe] = seconds_per_pass(run.config)
        seconds[run.entry.name] = rates[size.probe] * (size.steps * size.passes + size.evaluations)
    return seconds


class Remaining(NamedTuple):
    """What is left to run of one entry."""

    name: str
    runs: int
    size: Size  # of one run
    seconds: float  # of what is left of all runs, estimated


def remaining(missing: Sequence[Planned], report: Callable[[str], None]) -> list[Remaining]:
    """Estimates what is left of each entry; also shows that each can be built before any of them runs."""
    sizes = {run.entry.name: measure(run.config) for run in missing}
    seconds = estimate(missing, sizes, report)
    rows = []
    for name, size in sizes.items():
        runs = [run for run in missing if run.entry.name == name]
        share = sum(1 - run.steps_done / size.steps for run in runs)
        rows.append(Remaining(name, len(runs), size, share * seconds[name]))
    return rows
