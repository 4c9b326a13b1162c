"""What this hardware does best: the one home of every "on a CPU ...".

No other module asks JAX for its backend. Each function answers one question for the hardware at hand, or for
a named target inside `targeting`, where programs are compiled for devices that are not there.
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

# On accelerators, where the time between two calls would otherwise show with small models. It divides the
# default of log_every_steps, between whose steps nothing else is to be done.
_STEPS_PER_DISPATCH = 5
# How many points of a landscape an accelerator takes at a time.
_LANDSCAPE_POINTS = 16
# Operations that keep a GPU busy for about ten times as long as the start of a kernel takes: 50 microseconds
# of the 37e12 float32 operations a second that an A40 has. Kernels that do less are worth joining.
_FILLING = 2e9


class _Target(NamedTuple):
    kind: Kind
    memory: int | None


_target: contextvars.ContextVar[_Target | None] = contextvars.ContextVar("target", default=None)


class Work(NamedTuple):
    """What the gradient of one agent takes, and what a device has left for it.

    Attributes:
      operations: floating-point operations of one of its convolutions or matrix products, on average.
      memory: bytes that its forward pass keeps for the backward pass.
      room: bytes that a device has for that, beside what it holds anyway; None where nobody tells.
    """

    operations: float
    memory: int
    room: int | None


@contextlib.contextmanager
def targeting(kind: Kind, memory: int | None = None) -> Iterator[None]:
    """Makes all answers, while entered, those for one kind of hardware: "cpu", "gpu" or "tpu".

    `memory` is what each device has, in bytes.
    """
    checks.choice("kind", kind, KINDS)
    token = _target.set(_Target(kind, memory))
    try:
        yield
    finally:
        _target.reset(token)


def is_cpu() -> bool:
    """Tells whether programs are for CPUs, whose cores share one memory and every operation."""
    return _kind() == "cpu"


def group_size(agents: int, agents_per_call: int = 0, work: Callable[[], Work] | None = None) -> int:
    """Returns how many of a device's agents are computed at a time: as given, or for 0 a choice by hardware.

    A core of a CPU takes one: what that one needs stays in its caches, and its convolutions are those of one
    model, which XLA:CPU runs best. An accelerator takes as many as fill it and find room, all if nobody tells
    their `work`. Small kernels of several agents are joined, since each takes time to start. An agent
    whose kernels fill a device is computed by itself: joined ones would be no faster, and would take the
    memory of all. docs/gpu.md has what is compiled for each choice.
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
    """Returns the largest number up to `most` that divides the agents, if it is more than half of that."""
    return max((n for n in range(most // 2 + 1, most + 1) if agents % n == 0), default=most)


def trials_at_once(count: int) -> int:
    """Returns how many of `count` runs one call of the compiled step computes, at the most.

    An accelerator takes all. A CPU takes one after the other: nothing is gained by more, and convolutions, of
    which each agent has its own there, would take as many times as long to compile.
    """
    return 1 if is_cpu() else count


def steps_per_dispatch() -> int:
    """Returns how many steps one call takes: on a CPU, where calls cost little, one."""
    return 1 if is_cpu() else _STEPS_PER_DISPATCH


def devices_per_batch(devices: int, agents: int) -> int:
    """Tells over how many devices each agent's batch may be cut, where there are more devices than agents.

    The cores of one machine share every operation anyway.
    """
    return 1 if is_cpu() else devices // agents


def batches_convolutions() -> bool:
    """Tells whether the convolutions of several agents become one: XLA:CPU runs that slowly."""
    return not is_cpu()


def joins_neighbours() -> bool:
    """Tells whether the batches of all neighbours are one large batch, where a method asks for their mean.

    A core of a CPU computes one agent at a time and likes that one large. On an accelerator the gradients of
    convolution kernels would be one for each batch, of images copied into another layout, and all batches
    would be in memory: there, agents are what is computed together, and neighbours come one by one.
    """
    return is_cpu()


def takes_library_convolutions() -> bool:
    """Tells whether convolutions are written in the forms that XLA:CPU gives to its library."""
    return is_cpu()


def takes_native_convolutions() -> bool:
    """Tells whether convolutions may be kernels of our own, which are written for one core of a CPU."""
    return is_cpu()


def multiplies_in_float32() -> bool:
    """Tells whether products of float32 numbers are that exact by themselves; accelerators must be told."""
    return is_cpu()


def has_tf32() -> bool:
    """Tells whether products can be TF32: on NVIDIA's GPUs from Ampere on, as all named targets are."""
    if _kind() != "gpu":
        return False
    capability = str(getattr(jax.devices()[0], "compute_capability", ""))
    major = capability.partition(".")[0]
    return _target.get() is not None or (major.isdigit() and int(major) >= 8)


def widens_bfloat16() -> bool:
    """Tells whether convolutions of bfloat16 are computed in float32: a CPU has fast kernels for no other."""
    return is_cpu()


def recomputes_cheap_expressions() -> bool:
    """Tells whether the compiler copies a cheap expression into every fusion that reads it."""
    return is_cpu()


def programs_take_turns() -> bool:
    """Tells whether programs on several devices must run one at a time, see `dispatch`."""
    return is_cpu()


def activations_held() -> int:
    """Returns how many times that which forward passes keep is held in memory at once.

    An accelerator's program overwrites it with what flows back; XLA:CPU holds both.
    """
    return 2 if is_cpu() else 1


def devices_share_memory() -> bool:
    """Tells whether the devices of a process share one memory."""
    return is_cpu()


def device_memory() -> int | None:
    """Returns the bytes that an accelerator has; None where nobody tells, and on CPUs, which share theirs."""
    target = _target.get()
    if target is not None:
        return target.memory
    stats = jax.local_devices()[0].memory_stats()
    return int(stats["bytes_limit"]) if stats and "bytes_limit" in stats else None


def landscape_points() -> int:
    """Returns how many points of a loss landscape are evaluated at a time."""
    return 1 if is_cpu() else _LANDSCAPE_POINTS


def _kind() -> str:
    target = _target.get()
    return jax.default_backend() if target is None else target.kind
