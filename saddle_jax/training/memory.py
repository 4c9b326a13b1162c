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
import math
import pathlib
from typing import Any

import jax
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.ledger import readable
from saddle_jax.devices import policy
from saddle_jax.training.build import Replica
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
    width = program.method.topology.graphs[0].neighbours.shape[1]
    asked = program.method.asked(program.shapes_of_one.params)
    pairs = max((width if kind == "pairs" else 1 for kind in asked), default=1)
    together = placement.per_device * program.at_once
    at_a_time = policy.group_size(together, program.config.group)
    copies = pairs + 1 + (at_a_time < together)
    gradients = copies * size_of(shapes.params) * program.at_once // len(program.replicas)
    batches = width if "mean" in asked and program.method.ascent.is_linear else 1
    kept = batches * at_a_time * _kept(program.replica)
    activations = policy.activations_held() * kept // placement.batch_devices
    held = {id(leaf): _bytes(leaf) for one in program.replicas for leaf in jax.tree.leaves(one.dataset.train)}
    devices = placement.devices * placement.batch_devices
    return Footprint(
        carried=size_of(shapes) // placement.devices,
        data=0 if program.replica.dataset.is_streamed else sum(held.values()),
        working=gradients // placement.devices + activations,
        sharing=max(1, devices // jax.process_count()) if policy.devices_share_memory() else 1,
    )


def _bytes(leaf: Any) -> int:
    return math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize


def _kept(replica: Replica) -> int:
    """Returns what one agent's forward pass on one batch keeps for the backward pass."""

    def forward(params: Any, batch: Any) -> Any:
        return jax.vjp(lambda x: replica.loss_fn(x, batch)[0], params)[1]

    return size_of(jax.eval_shape(forward, jax.eval_shape(replica.first_model), replica.batch_shapes()))


def size_of(shapes: Any) -> int:
    """Returns the bytes of all arrays of a tree, of which only the shapes are looked at."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def available() -> int | None:
    """Bytes that there are: of an accelerator's memory, or of this machine's; None where nobody tells."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
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
