"""Choices that depend on the hardware.

No other module asks JAX for its backend. Each function is one choice, for the hardware in use or, inside
`targeting`, for a target that programs are compiled for without having it.
"""

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import jax

from saddle_jax.base import checks

Kind = Literal["cpu", "gpu", "tpu"]
KINDS = ("cpu", "gpu", "tpu")

# On accelerators, where the overhead of a call is visible with small models. It divides the default of
# log_every_steps, so that no call ends between two logged steps.
_STEPS_PER_DISPATCH = 5
# How many points of a landscape an accelerator evaluates at a time.
_LANDSCAPE_POINTS = 16
# Operations that keep a GPU busy for about ten times as long as the launch of a kernel: 50 microseconds at
# the 37e12 float32 operations per second of an A40. Smaller kernels are worth batching.
_FILLING = 2e9


class _Target(NamedTuple):
    kind: Kind
    memory: int | None


_target: contextvars.ContextVar[_Target | None] = contextvars.ContextVar("target", default=None)


class Work(NamedTuple):
    """The work and memory of one agent's gradient, and the free memory of a device.

    Attributes:
      operations: floating-point operations of one of its convolutions or matrix products, on average.
      memory: bytes that its forward pass stores for the backward pass.
      room: free bytes of a device; None if not known.
    """

    operations: float
    memory: int
    room: int | None


@contextlib.contextmanager
def targeting(kind: Kind, memory: int | None = None) -> Iterator[None]:
    """Within this context, all choices are those for one kind of hardware: "cpu", "gpu" or "tpu".

    `memory` is the memory of each device in bytes.
    """
    checks.choice("kind", kind, KINDS)
    token = _target.set(_Target(kind, memory))
    try:
        yield
    finally:
        _target.reset(token)


def is_cpu() -> bool:
    """Returns whether programs are for CPUs.

    Devices of a CPU are its cores: they share one memory and one pool of threads. Products of float32 numbers
    are float32 there, and lower by default elsewhere; there is no fast convolution of bfloat16 or of several
    agents at once. Whoever asks says which of these matters.
    """
    return _kind() == "cpu"


def group_size(agents: int, agents_per_call: int = 0, work: Callable[[], Work] | None = None) -> int:
    """Returns how many of a device's agents are computed at a time: as given, or for 0 a choice by hardware.

    On a core of a CPU it is one: its data stays in the caches, and its convolutions are those of one model,
    which XLA:CPU runs best. On an accelerator it is as many as fill it and fit into memory, or all without
    `work`. Small kernels of several agents are batched, since each launch takes time. An agent whose kernels
    fill a device is computed by itself: a batch would be no faster, and would take the memory of all.
    docs/devices.md has what is compiled for each choice.
    """
    checks.whole("agents_per_call", agents_per_call, at_least=0)
    if agents_per_call or is_cpu():
        return min(agents, agents_per_call or 1)
    if work is None:
        return agents
    one = work()
    most = math.ceil(_FILLING / max(one.operations, 1.0))
    if one.room is not None:
        most = min(most, one.room // max(one.memory, 1))
    return _even(agents, max(1, min(agents, most)))


def _even(agents: int, most: int) -> int:
    """Returns the largest divisor of `agents` up to `most` if it is above half of `most`, else `most`."""
    return max((n for n in range(most // 2 + 1, most + 1) if agents % n == 0), default=most)


def trials_at_once(count: int) -> int:
    """Returns the most of `count` runs that one call of the compiled step computes.

    On an accelerator it is all. On a CPU it is one: more would not be faster, and the convolutions, one for
    each agent there, would take longer to compile in proportion.
    """
    return 1 if is_cpu() else count


def steps_per_dispatch() -> int:
    """Returns the number of steps per call: one on a CPU, where calls cost little."""
    return 1 if is_cpu() else _STEPS_PER_DISPATCH


def devices_per_batch(devices: int, agents: int) -> int:
    """Returns over how many devices each agent's batch is sharded, if there are more devices than agents.

    It is one on a CPU, whose cores share every operation anyway.
    """
    return 1 if is_cpu() else devices // agents


def joins_neighbours() -> bool:
    """Returns whether the mean of cross-gradients is computed on one large batch of all neighbours.

    On a CPU, where one agent is computed at a time, a large batch is faster. On an accelerator there would be
    one gradient of the convolution kernels per batch, of images copied into another layout, and all batches
    would be in memory: there agents are batched, and neighbours are computed one by one.
    """
    return is_cpu()


def has_tf32() -> bool:
    """Returns whether products can be TF32: on NVIDIA's GPUs from Ampere on, as all named targets are."""
    if _kind() != "gpu":
        return False
    capability = str(getattr(jax.devices()[0], "compute_capability", ""))
    major = capability.partition(".")[0]
    return _target.get() is not None or (major.isdigit() and int(major) >= 8)


def activations_held() -> int:
    """Returns how many copies of the size of the stored activations are in memory at once.

    An accelerator's program overwrites activations in the backward pass; XLA:CPU holds both.
    """
    return 2 if is_cpu() else 1


def device_memory() -> int | None:
    """Returns the memory of an accelerator in bytes; None if not known, and on CPUs, which share theirs."""
    target = _target.get()
    if target is not None:
        return target.memory
    stats = jax.local_devices()[0].memory_stats()
    return int(stats["bytes_limit"]) if stats and "bytes_limit" in stats else None


def landscape_points() -> int:
    """Returns the number of points of a loss landscape that are evaluated at a time."""
    return 1 if is_cpu() else _LANDSCAPE_POINTS


def _kind() -> str:
    target = _target.get()
    return jax.default_backend() if target is None else target.kind
