"""What this hardware does best: the one home of every "on a CPU ...".

No other module asks JAX for its backend. Each function answers one question for the hardware at hand, or for
a named target inside `targeting`, where programs are compiled for devices that are not there.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Literal

import jax

from saddle_jax.base import checks

Kind = Literal["cpu", "gpu", "tpu"]
KINDS = ("cpu", "gpu", "tpu")

# On accelerators, where the time between two calls would otherwise show with small models. It divides the
# default of log_every_steps, between whose steps nothing else is to be done.
_STEPS_PER_DISPATCH = 5
# How many points of a landscape an accelerator takes at a time.
_LANDSCAPE_POINTS = 16

_target: contextvars.ContextVar[Kind | None] = contextvars.ContextVar("target", default=None)


@contextlib.contextmanager
def targeting(kind: Kind) -> Iterator[None]:
    """Makes all answers, while entered, those for one kind of hardware: "cpu", "gpu" or "tpu"."""
    checks.choice("kind", kind, KINDS)
    token = _target.set(kind)
    try:
        yield
    finally:
        _target.reset(token)


def is_cpu() -> bool:
    """Tells whether programs are for CPUs, whose cores share one memory and every operation."""
    return _kind() == "cpu"


def group_size(agents: int, group: int = 0) -> int:
    """Returns how many of a device's agents are computed at a time: `group`; for 0 a choice by hardware.

    An accelerator takes all of them: its operations want to be wide. A core of a CPU takes one: what that one
    needs stays in its caches, and its convolutions are those of one model, which XLA:CPU runs best.
    """
    checks.whole("group", group, at_least=0)
    return min(agents, group or (1 if is_cpu() else agents))


def replicas_at_once(count: int) -> int:
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


def landscape_points() -> int:
    """Returns how many points of a loss landscape are evaluated at a time."""
    return 1 if is_cpu() else _LANDSCAPE_POINTS


def _kind() -> str:
    return _target.get() or jax.default_backend()
