"""How much memory a run takes, told from shapes before anything is compiled.

Of every device:

    held      the models and the method's state of its agents and all replicas, and the samples to train with
    working   of the replicas that are computed at once: gradients and updates, two numbers per parameter
              (with pairs K + 1), and one more where agents are computed in groups; and of the agents that
              are computed at a time, what their forward passes keep for the backward passes; on a CPU twice
              that, since as much again flows back; K times as much where one gradient is that of the mean
              of all neighbours' losses

The second half is an estimate: XLA shares some of that memory and needs some more of its own.
"""

import dataclasses
import pathlib

import jax

from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.ledger import readable
from saddle_jax.devices import policy
from saddle_jax.training import work
from saddle_jax.training.program import Program

_LIMIT = pathlib.Path("/sys/fs/cgroup/memory.max")


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Bytes on each device, and how many devices share the memory that is there.

    Attributes:
      carried: models and state.
      data: samples to train with.
      working: what a step needs beside.
      sharing: 1 on accelerators; on a CPU all devices of this process.
    """

    carried: int
    data: int
    working: int
    sharing: int = 1

    @property
    def least(self) -> int:
        """Without which no step is possible."""
        return self.carried * self.sharing

    @property
    def total(self) -> int:
        """Bytes of everything: models, state, data and working memory."""
        return (self.carried + self.data + self.working) * self.sharing


def estimate(program: Program) -> Footprint:
    """Returns what a run, or several in one program, will take; see above."""
    placement, shapes = program.placement, program.carry_shapes
    at_a_time = program.group * program.at_once
    is_grouped = program.group < placement.per_device
    one = program.shapes_of_one.params
    gradients = work.copies(program.method, one, is_grouped) * work.size_of(one) * program.at_once
    activations = at_a_time * work.kept(program.replica, program.method, one, placement)
    devices = placement.devices * placement.batch_devices
    return Footprint(
        carried=work.size_of(shapes) // placement.devices,
        data=work.stored(program.replicas, placement),
        working=gradients // placement.devices + activations,
        sharing=max(1, devices // jax.process_count()) if policy.devices_share_memory() else 1,
    )


def available() -> int | None:
    """Bytes that there are: of an accelerator's memory, or of this machine's; None where nobody tells."""
    if (found := policy.device_memory()) is not None:
        return found
    try:
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        known = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
        machine = known["MemAvailable"] + known["SwapFree"]
    except (OSError, ValueError, IndexError, KeyError):
        return None
    try:  # what a scheduler or a container allows
        return min(machine, int(_LIMIT.read_text()))
    except (OSError, ValueError):  # there is none, or it is "max"
        return machine


def fits(program: Program) -> bool:
    """Tells whether a run should find enough memory, with some to spare."""
    there = available()
    return there is None or estimate(program).total <= 0.7 * there


def check(program: Program) -> str | None:
    """Refuses a run whose models and state alone do not fit; a warning where a step may not, else None."""
    there, needed = available(), estimate(program)
    if there is None or needed.total <= there:
        return None
    config, count = program.config, len(program.replicas)
    what = f"{config.agents:,} agents" + (f" in {count} replicas" if count > 1 else "")
    fewer = f"fewer agents{' or replicas' if count > 1 else ''} or more devices"
    if needed.least > there:
        raise ArgumentError(
            f"memory does not suffice: models and state of {what} take {readable(needed.least)}, "
            f"there are {readable(there)}; use {fewer}"
        )
    return (
        f"memory may not suffice: {what} take about {readable(needed.total)}, there are {readable(there)}; "
        f"a smaller batch_size or group, {fewer} would help"
    )
