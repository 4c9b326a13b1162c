"""The runs of entries: which are missing, and how much work they are.

The work of a run is estimated from its settings: no data is loaded and no step is compiled.
"""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax

from saddle_jax.base.errors import RunError
from saddle_jax.core.comm_cost import CommCost, comm_cost, passes_per_step, readable
from saddle_jax.data import load, prepared
from saddle_jax.data.dataset import Dataset
from saddle_jax.data.sources import TFDS_NAMES, is_builtin
from saddle_jax.models import initialise, make_model
from saddle_jax.models.functions import Functions
from saddle_jax.models.layers import Norm
from saddle_jax.papers.tables import SCALES, Entry, Paper, Scale, interpretation_suffix, interpreted_as
from saddle_jax.planning.forecast import stand_in
from saddle_jax.runs.checkpoints import Checkpoints
from saddle_jax.runs.run_folder import check_same, write_json
from saddle_jax.runs.schema import read_result
from saddle_jax.settings.settings import Settings, build_topology
from saddle_jax.training import build

# ---- the work of a run ----

# The fraction of a matrix product's speed that a step reaches: ResNets about 0.7, small networks 0.25
# (docs/performance.md).
_SHARE = 0.5
_PRODUCT, _SECONDS = 1024, 0.1  # size of the matrices that are multiplied, and for how long
# Settings that affect neither the computation nor the communication of a step.
_LIKE: dict[str, Any] = {
    "dataset": "digits", "data_dir": "", "subset": 0, "partition": "iid", "seed": 0, "epochs": 1,
    "warmup_epochs": 0, "learning_rate": 0.1, "schedule": "constant", "batch_size": 32,
    "eval_every_epochs": 1, "keep_every_epochs": 0, "log_every_steps": 1,
}  # fmt: skip
HOW = (
    "estimated, not measured: from the operations of the model and the speed of a matrix product here; "
    "expect a factor of two either way"
)


@dataclasses.dataclass(frozen=True)
class Size:
    """The work of one run of an entry."""

    steps: int
    passes: float  # forward and backward passes of an agent's batch per step
    evaluations: float  # the same unit, in the whole run
    bytes_sent: int  # by one agent, in exact encoded size
    operations: float  # of one forward and backward pass of all agents' batches


def check_data(config: Settings) -> None:
    """Checks that the dataset of a run is prepared, without reading it; a DataError says what to do."""
    if not is_builtin(config.dataset):
        folder = prepared.data_dir_or_default(config.data_dir or None)
        prepared.list_records(prepared.find_version(TFDS_NAMES.get(config.dataset, config.dataset), folder))


def size_of(config: Settings) -> Size:
    """Returns the size of a run on an embedded dataset, or one with known shapes."""
    data = _data(config.dataset)
    share = (config.subset or data.size) // config.agents
    steps = config.epochs * -(-share // config.batch_size)
    model = _model(config.model, data.num_outputs, config.norm)
    passes, cost = _step(_like(config), model, data.inputs_of_one)
    evaluations = max(1, config.epochs // config.eval_every_epochs)
    evaluations += config.agents if config.eval_agents == "end" else 0
    return Size(
        steps=steps,
        passes=passes,
        # An evaluation is a forward pass over the test set, a third of the work of a gradient.
        evaluations=evaluations * data.test_size / (config.agents * config.batch_size) / 3,
        bytes_sent=cost.wire_bytes_per_agent(steps),
        operations=3 * _forward(model, data.inputs_of_one) * config.agents * config.batch_size,
    )


def _like(config: Settings) -> Settings:
    """Returns small settings with the same work and communication per agent and step."""
    shorter: dict[str, Any] = {"agents": 3} if config.topology == "ring" and config.agents > 3 else {}
    return dataclasses.replace(config, **_LIKE, **shorter)


@functools.cache
def _step(config: Settings, model: Functions, inputs: Any) -> tuple[float, CommCost]:
    """Traces a step, and returns its passes and communication cost."""
    one = _shapes(model, inputs)
    stacked = jax.tree.map(lambda x: jax.ShapeDtypeStruct((config.agents, *x.shape), x.dtype), one)
    rate = optax.constant_schedule(config.learning_rate)
    method = build.build_method(config, build_topology(config), rate)
    return passes_per_step(method, stacked), comm_cost(method, stacked)


def seconds_of(size: Size) -> float:
    """Estimates how long a run of this size takes on this machine."""
    work = size.operations * (size.steps * size.passes + size.evaluations)
    return work / (_SHARE * operations_per_second())


@functools.cache
def operations_per_second() -> float:
    """Measures, for a tenth of a second, how fast this machine multiplies matrices."""
    product = jax.jit(lambda x: x @ x)
    x = jax.block_until_ready(jnp.full((_PRODUCT, _PRODUCT), 1e-3))
    product(x).block_until_ready()
    times, began = 0, time.perf_counter()
    while time.perf_counter() - began < _SECONDS:
        product(x).block_until_ready()
        times += 1
    return 2 * _PRODUCT**3 * times / (time.perf_counter() - began)


@functools.cache
def _data(name: str) -> Dataset:
    return load(name) if is_builtin(name) else stand_in(name)


@functools.cache
def _model(name: str, classes: int, norm: str) -> Functions:
    return make_model(name, classes, cast(Norm, norm), "plain")  # whose operations XLA can count


@functools.cache
def _shapes(model: Functions, inputs: Any) -> Any:
    return jax.eval_shape(lambda: initialise(model, inputs, jax.random.key(0)))


@functools.cache
def _forward(model: Functions, inputs: Any) -> float:
    """Returns the floating-point operations of one forward pass of one sample, as XLA counts them."""
    analysis = jax.jit(model.apply).lower(_shapes(model, inputs), inputs).cost_analysis()
    return float((analysis or {})["flops"])


# ---- existing and missing runs ----


@dataclasses.dataclass(frozen=True)
class Planned:
    """One run: an entry of the paper at a scale, with a seed and a folder."""

    entry: Entry
    config: Settings
    workdir: pathlib.Path

    @property
    def status(self) -> str:
        """The status: finished, diverged, interrupted, or missing."""
        result = read_result(self.workdir)
        if result is not None:
            return str(result["status"])
        return "interrupted" if self.steps_done else "missing"

    @property
    def steps_done(self) -> int:
        """The step of its newest checkpoint, or 0."""
        return max(Checkpoints(self.workdir, 1).steps(), default=0)

    @property
    def is_missing(self) -> bool:
        """Whether something of it is left to be run."""
        return self.status not in ("finished", "diverged")

    def note_paper(self, table: str, scale: Scale) -> None:
        """Writes paper.json, which names the result of the paper that this run reproduces.

        A run that two experiments share keeps the file of the first.
        """
        if (self.workdir / "paper.json").exists():
            return
        figure = None if self.entry.printed is None else str(self.entry.printed)
        name = self.workdir.name.rpartition("-seed")[0]  # with the suffix of its interpretation
        about = {"table": table, "row": name, "paper": figure}
        write_json(self.workdir / "paper.json", {**about, "scale": f"{scale.name}: {scale.meaning}"})


def plan(
    entries: Sequence[Entry],
    scale: Scale,
    seeds: int,
    folder: pathlib.Path,
    data_dir: str,
    otherwise: Mapping[str, Any] | None = None,
) -> list[Planned]:
    """Lists the runs of some entries, seed by seed, so that a table fills evenly.

    `otherwise` are interpretations other than the default, which become part of the folders' names.

    Raises:
      RunError: a folder contains a run with other settings.
    """
    runs = []
    for seed in range(seeds):
        for entry in entries:
            default = dataclasses.replace(scale.apply(entry.config(seed), entry.times), data_dir=data_dir)
            config = interpreted_as(default, otherwise or {})
            name = f"{entry.name}{interpretation_suffix(config, default)}-seed{seed}"
            runs.append(Planned(entry, config, folder / scale.name / name))
    there = next(path for path in (folder / scale.name, *(folder / scale.name).parents) if path.exists())
    if not there.is_dir():
        raise RunError(f"workdir must be a folder that can be written to, got {folder}: {there} is a file")
    for run in runs:
        if (run.workdir / "config.json").exists():
            check_same(run.workdir, run.config)
    return runs


def ended_below(folder: pathlib.Path, scale: Scale, entry: Entry, ending: str = "") -> list[pathlib.Path]:
    """Lists the folders of an entry's finished runs by seed; `ending` is one of `suffixes_below`."""
    folders = (folder / scale.name).glob(f"{entry.name}{ending}-seed*")
    return sorted(path for path in folders if (path / "result.json").exists())


def suffixes_below(folder: pathlib.Path, scale: Scale, entry: Entry) -> list[str]:
    """Lists the suffixes of an entry's runs under other interpretations, such as "-order=paper"."""
    folders = (folder / scale.name).glob(f"{entry.name}-*=*-seed*")
    endings = {path.name.removeprefix(entry.name).rpartition("-seed")[0] for path in folders}
    # Others, such as "-every5-order=paper", belong to entries with longer names.
    return sorted(ending for ending in endings if all("=" in part for part in ending[1:].split("-")))


class Remaining(NamedTuple):
    """The remaining runs of one entry."""

    name: str
    runs: int
    size: Size  # of one run
    seconds: float  # estimated time of all remaining runs


def remaining(missing: Sequence[Planned], *, at_once: bool) -> list[Remaining]:
    """Estimates the remaining work of each entry; with `at_once` its data must be prepared."""
    rows: dict[str, Remaining] = {}
    for run in missing:
        name = run.entry.name
        if name not in rows:
            if at_once:
                check_data(run.config)
            rows[name] = Remaining(name, 0, size_of(run.config), 0.0)
        row = rows[name]
        left = 1 - run.steps_done / row.size.steps
        rows[name] = row._replace(runs=row.runs + 1, seconds=row.seconds + left * seconds_of(row.size))
    return list(rows.values())


def table_rows(paper: Paper) -> list[list[str]]:
    """Returns the list of all tables, each with its number in the paper."""
    numbers = {name: number for number, name in paper.numbers.items()}
    rows = [["table", "number", "entries", "what"]]
    for name, table in paper.tables.items():
        number = numbers.get(name, name if name.isdecimal() else "-")
        rows.append([name, number, str(len(table.entries)), table.title])
    return rows


def scale_rows() -> list[list[str]]:
    """Returns the list of scales."""
    return [["scale", "what it means"], *([scale.name, scale.meaning] for scale in SCALES.values())]


def plan_rows(remaining: Sequence[Remaining]) -> list[list[str]]:
    """Returns the table of what will run, with estimated times."""
    rows = [["row", "seeds to run", "steps", "sends per agent", "about"]]
    for name, runs, size, seconds in remaining:
        sends = readable(size.bytes_sent)
        rows.append([name, str(runs), f"{size.steps:,}", sends, duration(seconds)])
    return rows


def duration(seconds: float) -> str:
    """Formats an approximate duration."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
