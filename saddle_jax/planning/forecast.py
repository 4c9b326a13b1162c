"""Forecasts of a run: its step compiled for some devices, present or not, to see whether it fits."""

import collections
import dataclasses
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from saddle_jax.core.comm_cost import readable
from saddle_jax.data import sources
from saddle_jax.data.dataset import Dataset
from saddle_jax.data.recipes import RECIPES
from saddle_jax.devices import lifting, policy
from saddle_jax.devices.placement import place, spread
from saddle_jax.methods import METHODS
from saddle_jax.models.precision import check_precision
from saddle_jax.planning import compiled_text
from saddle_jax.planning.compiled_text import Collective
from saddle_jax.planning.targets import Target
from saddle_jax.settings.settings import Settings, lacks, value_of
from saddle_jax.settings.sweep import in_settings
from saddle_jax.training import memory
from saddle_jax.training.build import Trial, of_settings
from saddle_jax.training.memory import Footprint
from saddle_jax.training.program import Inputs, Program, build

# ---- black images with the shapes of known datasets that are not prepared here ----


class _Shape(NamedTuple):
    """The numbers of training and test images, their stored size, and the number of classes."""

    train: int
    test: int
    size: int
    classes: int
    is_streamed: bool = False


_SHAPES = {
    "cifar10": _Shape(50_000, 10_000, 32, 10),
    "cifar100": _Shape(50_000, 10_000, 32, 100),
    "imagenette": _Shape(9_469, 3_925, 32, 10),
    "imagenet": _Shape(1_281_167, 50_000, 256, 1000, is_streamed=True),
}


class _Stream:
    """Black images with the interface of streamed ones."""

    dtype = np.dtype(np.uint8)

    def __init__(self, shape: tuple[int, ...]):
        """Makes images uint8 of this shape, [N, H, W, C]."""
        self.shape = shape

    def __getitem__(self, samples: Any) -> np.ndarray:
        """Returns black images [..., H, W, C] for sample numbers [...]."""
        return np.zeros((*np.shape(samples), *self.shape[1:]), self.dtype)

    def subset(self, samples: np.ndarray) -> "_Stream":
        """Returns as many images as there are sample numbers."""
        return _Stream((len(samples), *self.shape[1:]))


def stand_in(name: str) -> Dataset:
    """Returns black images with the shapes of a known dataset, in classes of equal size."""
    known = _SHAPES[name]

    def samples(count: int) -> dict[str, Any]:
        shape = (count, known.size, known.size, 3)
        images = _Stream(shape) if known.is_streamed else np.broadcast_to(np.uint8(0), shape)
        return {"inputs": images, "targets": (np.arange(count) % known.classes).astype(np.int32)}

    return Dataset(
        name=name,
        train=samples(known.train),
        test=samples(known.test),
        class_names=tuple(str(number) for number in range(known.classes)),
        recipe=RECIPES[name],
        source="none: black images stand in for it",
    )


# ---- changes that make a run fit: tried on the estimate, scaled by the compiler's actual need ----


_LAST = ("fewer agents, a smaller model or devices with more memory",)


def remedies(program: Program, working: int, room: int) -> tuple[str, ...]:
    """Returns one line for each change that would make the run fit.

    `working` is the working memory that the compiled step needs, `room` that of a device, in bytes.
    """
    excess = working / max(1, memory.estimate(program).working)

    def needed(changed: Program) -> int:
        estimate = memory.estimate(changed)
        return estimate.carried + estimate.data + int(excess * estimate.working)

    found = [remedy(program, needed, room) for remedy in (_group, _devices, _compressor)]
    lines = [line for line in found if line] or [_batch(program, needed, room)]
    return tuple(line for line in lines if line) or _LAST


_Needed = Callable[[Program], int]


def _group(program: Program, needed: _Needed, room: int) -> str:
    """Returns the largest agents_per_call that fits, as text."""
    at_a_time = program.agents_per_call * program.at_once
    while at_a_time > 1:
        at_a_time //= 2
        smaller = _with(program, agents_per_call=at_a_time)
        if (bytes_needed := needed(smaller)) <= room:
            text = readable(bytes_needed)
            return f"agents_per_call={at_a_time}: about {text}, with {at_a_time} agents at a time"
    return ""


def _devices(program: Program, needed: _Needed, room: int) -> str:
    """Returns the smallest number of devices that fits, as text."""
    config, batch = program.config, program.trial.batches.size
    if policy.is_cpu():  # more devices add no memory
        return ""
    used = program.placement.devices * program.placement.batch_devices

    def on(count: int) -> Program:
        own = dataclasses.replace(config, agents_per_call=0, devices="auto")
        return Program(own, program.trials, spread(config.agents, batch, count))

    counts = [*range(used + 1, config.agents + 1), *(config.agents * n for n in range(2, batch + 1))]
    counts = [count for count in counts if count > used]
    low, high = 0, len(counts)
    while low < high:  # memory per device falls with their number
        middle = (low + high) // 2
        low, high = (low, middle) if needed(on(counts[middle])) <= room else (middle + 1, high)
    if low == len(counts):
        return ""
    enough = on(counts[low])
    also = " and agents_per_call=0" if config.agents_per_call else ""
    return f"{counts[low]} such devices{also} instead of {used}: about {readable(needed(enough))} on each"


def _compressor(program: Program, needed: _Needed, room: int) -> str:
    """Suggests no compression if that fits: methods then store no public copies of models."""
    name, config = "method.compressor", program.config
    if not METHODS.is_ours(config.method) or lacks(config, name) or value_of(config, name) is None:
        return ""
    plain = dataclasses.replace(config, **in_settings(vars(config), {name: None}))
    bytes_needed = needed(_made_again(program, plain))
    return f"{name}=none: about {readable(bytes_needed)}" if bytes_needed <= room else ""


def _batch(program: Program, needed: _Needed, room: int) -> str:
    """Returns the largest batch size that fits, as text: a last resort, since it changes the results."""
    size = program.config.batch_size
    while size > 1:
        size //= 2
        smaller = _made_again(program, dataclasses.replace(program.config, batch_size=size))
        if (bytes_needed := needed(smaller)) <= room:
            return f"batch_size={size}: about {readable(bytes_needed)}, but what is learned changes with it"
    return ""


def _with(program: Program, agents_per_call: int) -> Program:
    return Program(
        dataclasses.replace(program.config, agents_per_call=agents_per_call),
        program.trials,
        program.placement,
    )


def _made_again(program: Program, config: Settings) -> Program:
    trial = dataclasses.replace(program.trial, config=config)
    return Program(config, trial.each(), program.placement)


# The TPU compiler refuses a program that does not fit with "Used 30.21G of 15.48G hbm".
_USED = re.compile(r"Used ([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Without the GPU the compiler cannot autotune kernels.
_OPTIONS: dict[str, dict[str, Any]] = {"gpu": {"xla_gpu_autotune_level": 0}}


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The compiler's report on a run's step on a target; bytes are per device.

    Attributes:
      target: the devices.
      placement: a description of how agents are placed on them.
      devices: the number of devices used.
      at_a_time: the number of agents that a device computes at a time, over all runs.
      has_data: whether the dataset is here; if not, black images of its shapes replace it.
      models: bytes of the agents' models; like the state, summed over the runs of the program.
      state: bytes of the method's state.
      data: bytes of the training samples and their order.
      working: bytes of working memory, from the compiler.
      donated: bytes of models and state that are donated, and reused for the results.
      estimate: the result of `memory.estimate`, before compilation.
      memory: bytes that are available; None if unknown.
      sharing: the number of devices that share that memory.
      collectives: the collectives of one step.
      kernels: the number of kernels of each kind.
      largest_window: the longest side of a convolution's window.
      steps: the number of steps per call.
      compile_seconds: the time of tracing, lowering and compiling.
      advice: changes that would make the run fit, if it does not.
    """

    target: Target
    placement: str
    devices: int
    at_a_time: int
    has_data: bool
    models: int
    state: int
    data: int
    working: int
    donated: int
    estimate: Footprint
    memory: int | None
    sharing: int
    collectives: tuple[Collective, ...]
    kernels: dict[str, int]
    largest_window: int
    steps: int
    compile_seconds: float
    advice: tuple[str, ...]

    @property
    def total(self) -> int:
        """Bytes of models, state, data and working memory on one device."""
        return self.models + self.state + self.data + self.working

    @property
    def fits(self) -> bool:
        """Whether it fits into the memory; True if the memory is unknown."""
        return self.memory is None or self.total * self.sharing <= self.memory

    def to_json(self) -> dict[str, Any]:
        """Returns the forecast as a JSON object."""
        return {
            "target": self.target.text,
            "devices": self.devices,
            "placement": self.placement,
            "agents_at_a_time": self.at_a_time,
            "has_data": self.has_data,
            "fits": self.fits,
            "memory": self.memory,
            "bytes_per_device": {
                "models": self.models,
                "state": self.state,
                "data": self.data,
                "working": self.working,
                "total": self.total,
            },
            "estimated_bytes_per_device": {
                "carried": self.estimate.carried,
                "data": self.estimate.data,
                "working": self.estimate.working,
                "total": self.estimate.total // self.estimate.sharing,
            },
            "donated_bytes": self.donated,
            "collectives": [one._asdict() for one in self.collectives],
            "kernels": self.kernels,
            "largest_window": self.largest_window,
            "steps_per_call": self.steps,
            "compile_seconds": self.compile_seconds,
            "advice": list(self.advice),
        }


def forecast(config: Settings, target: Target, trial: Trial | None = None) -> Forecast:
    """Compiles a run's step for a target and analyses the result.

    `trial` is the run, if it exists already; None makes it from the settings. For a known
    dataset that is not prepared here, the shapes suffice.
    """
    has_data = trial is not None or not sources.is_missing(config.dataset, config.data_dir or None)
    if trial is None:
        trial = of_settings(config, None if has_data else stand_in(config.dataset))
    with policy.targeting(target.kind, target.memory):
        check_precision(config.precision)
        program = program_on(config, target, trial)
        estimate = _before(program, target, has_data)
        started = time.perf_counter()
        try:
            compiled, steps = compile_step(program, _OPTIONS.get(target.kind))
        except jax.errors.JaxRuntimeError as error:
            used = _USED.search(str(error))
            if used is None:
                raise
            needed, there = int(float(used[1]) * _UNITS[used[2]]), int(float(used[3]) * _UNITS[used[4]])
            found = dataclasses.replace(estimate, working=max(0, needed - estimate.total), memory=there)
        else:
            found = _read(program, estimate, compiled, steps)
        found = dataclasses.replace(found, compile_seconds=time.perf_counter() - started)
        if found.fits or found.memory is None:
            return found
        advice = remedies(program, found.working, found.memory // found.sharing)
        return dataclasses.replace(found, advice=advice)


def program_on(config: Settings, target: Target, trial: Trial | None = None) -> Program:
    """Makes the program of a run with its agents on a target's devices."""
    program = build(dataclasses.replace(config, devices="auto"), trial)
    placement = place(config.agents, program.trial.batches.size, config.devices, target.devices)
    return Program(config, program.trials, placement)


def compile_step(program: Program, options: dict[str, Any] | None = None) -> tuple[Any, int]:
    """Compiles the steps of one call from shapes alone; returns the program and the number of steps."""
    steps = min(program.steps_per_dispatch, program.trial.steps)
    first = jax.ShapeDtypeStruct((), np.int32)
    # Computed before the mesh is entered, whose devices may not exist.
    arguments = program.part_like, input_shapes(program), first, first, steps, program.kind(0, steps)
    with program.placement.active():
        return program.compiled.lower(*arguments).compile(options), steps


def input_shapes(program: Program) -> Inputs:
    """Returns shapes and shardings of a step's inputs, see `training.batches`, without loading samples."""
    placement, batches, trials = program.placement, program.trial.batches, program.trials
    is_streamed = program.trial.dataset.is_streamed
    train = program.trial.dataset.train
    copies = len(trials) if program.has_subsets else 1
    rows = placement.size * len(trials) * batches.size if is_streamed else copies * program.trial.dataset.size
    axes = (lifting.AXIS,) if is_streamed else ()
    steps = 1 if is_streamed else batches.steps_per_epoch
    order = (len(trials), steps, placement.size, batches.size)

    def like(shape: tuple[int, ...], dtype: Any, *axes: str | None) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=placement.sharding(*axes))

    samples: Any = like(order, np.int32, None, None, lifting.AXIS)
    mask: Any = like((steps, batches.size), np.float32)
    data = jax.tree.map(lambda leaf: like((rows, *leaf.shape[1:]), leaf.dtype, *axes), train)
    return Inputs(data, samples, mask)


def _before(program: Program, target: Target, has_data: bool) -> Forecast:
    """Returns the forecast before compilation: what a device stores, and its memory."""
    placement, estimate = program.placement, memory.estimate(program)
    models = memory.size_of(program.carry_shapes.params) // placement.devices
    return Forecast(
        target=target,
        placement=str(placement),
        devices=placement.devices * placement.batch_devices,
        at_a_time=program.agents_per_call * program.at_once,
        has_data=has_data,
        models=models,
        state=estimate.carried - models,
        data=estimate.data,
        working=0,
        donated=0,
        estimate=estimate,
        memory=memory.available() if target.memory is None else target.memory,
        sharing=estimate.sharing,
        collectives=(),
        kernels={},
        largest_window=0,
        steps=0,
        compile_seconds=0.0,
        advice=(),
    )


def _read(program: Program, estimate: Forecast, compiled: Any, steps: int) -> Forecast:
    """Completes a forecast from the compiled program of `steps` steps."""
    carried = memory.size_of(program.shapes_of_one) * program.at_once // program.placement.devices
    found, text = compiled.memory_analysis(), compiled.as_text()
    # The carry is donated: it counts as an argument and takes no memory as a result.
    beside = found.output_size_in_bytes - found.alias_size_in_bytes
    return dataclasses.replace(
        estimate,
        data=found.argument_size_in_bytes - carried,
        working=found.temp_size_in_bytes + beside,
        donated=found.alias_size_in_bytes,
        collectives=tuple(compiled_text.collectives(text)),
        kernels=compiled_text.kernels(text),
        largest_window=compiled_text.largest_window(text),
        steps=steps,
    )


# ---- text ----


def forecast_lines(found: Forecast) -> tuple[list[str], list[str]]:
    """Returns the lines above and below the table of memory: the verdict, and all other findings."""
    above = [
        f"target      {found.target.text}: {found.placement}, {found.at_a_time} at a time",
        f"fits        {_verdict(found)}",
        *([] if found.has_data else ["data        not here: black images of its shapes stand in for it"]),
    ]
    advice = [f"to change   {line}" for line in found.advice]
    if not found.kernels:
        return above, [*advice, "compiled    not at all: the compiler refuses what does not fit"]
    below = [
        f"exchanges   {_exchanges(found)}",
        f"kernels     {', '.join(f'{count:,} x {kind}' for kind, count in found.kernels.items())}",
        f"window      {_window(found)}",
        f"compiled    {found.steps:,} {'step' if found.steps == 1 else 'steps'} a call, "
        f"in {found.compile_seconds:.1f} s",
    ]
    return above, advice + below


def _verdict(found: Forecast) -> str:
    shared = f" on {found.sharing} devices that share one memory" if found.sharing > 1 else ""
    taken = f"{readable(found.total * found.sharing)}{shared}"
    if found.memory is None:
        return f"nobody tells how much memory there is: it takes {taken}"
    return f"{'yes' if found.fits else 'NO'}: {taken} of {readable(found.memory)}"


def forecast_rows(found: Forecast) -> list[list[str]]:
    """Returns the table of a device's memory: the compiler's numbers beside our own estimate."""
    estimate = found.estimate
    rows = [
        ("models and state", found.models + found.state, estimate.carried),
        ("  models", found.models, None),
        ("  state", found.state, None),
        ("data", found.data, estimate.data),
        ("working", found.working, estimate.working),
        ("all", found.total, estimate.total // estimate.sharing),
    ]
    header = ["bytes of a device", "compiled", "estimated"]
    return [header, *([name, readable(a), "" if b is None else readable(b)] for name, a, b in rows)]


def _exchanges(found: Forecast) -> str:
    if not found.collectives:
        return "none between devices"
    counted = collections.Counter(found.collectives)
    each = [f"{count} x {one.kind} of {one.shape}" for one, count in counted.items()]
    total = sum(one.bytes for one in found.collectives)
    return f"{', '.join(each)}: {readable(total)} to each device in a step"


def _window(found: Forecast) -> str:
    if not found.largest_window:
        return "no convolutions"
    return f"at most {found.largest_window} long in a convolution"
