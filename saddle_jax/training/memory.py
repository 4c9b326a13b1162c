"""How much memory a run takes, estimated from shapes before anything is compiled.

Of every device:

    held      the models and the method's state of its agents and all trials, and the samples to train with
    working   of the trials that are computed at once: gradients and updates, two numbers per parameter
              (with pairs K + 1), and one more where agents are computed in groups; and of the agents that
              are computed at a time, what their forward passes keep for the backward passes; on a CPU twice
              that, since as much again flows back; K times as much where one gradient is that of the mean
              of all neighbours' losses

The second half is an estimate: XLA shares some of that memory and needs some more of its own.
"""

import dataclasses
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.extend
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Params
from saddle_jax.core.comm_cost import readable
from saddle_jax.core.method import Method
from saddle_jax.devices import policy
from saddle_jax.devices.placement import Placement
from saddle_jax.models.precision import check_precision
from saddle_jax.training.build import Trial

if TYPE_CHECKING:  # a program asks this module how many agents it computes at a time
    from saddle_jax.training.program import Carry, Program

# ---- one agent's step: the operations of its kernels, and its memory ----


# Of a device's memory; libraries of kernels want some for themselves, which no estimate knows.
_USED = 0.8


def of_agent(
    trials: Sequence[Trial], method: Method, carry: "Carry", placement: Placement, at_once: int
) -> policy.Work:
    """Returns the work of one agent, and the room for it on a device that computes `at_once` runs.

    `carry` has the shapes that one run carries from step to step.
    """
    trial, memory = trials[0], policy.device_memory()
    if memory is not None:
        gradients = copies(method, carry.params, is_grouped=True) * size_of(carry.params) * at_once
        carried = size_of(carry) * len(trials)
        held = (gradients + carried) // placement.devices + stored(trials, placement)
        memory = max(0, int(_USED * memory) - held)
    return policy.Work(
        operations=_mean_operations(trial) / placement.batch_devices,
        memory=kept(trial, method, carry.params, placement),
        room=memory,
    )


def copies(method: Method, params: Params, is_grouped: bool) -> int:
    """Returns how many numbers a step needs for each parameter: gradients, updates, groups' results."""
    pairs = max((_width(method) if kind == "pairs" else 1 for kind in method.calls(params)), default=1)
    return pairs + 1 + is_grouped


def kept(trial: Trial, method: Method, params: Params, placement: Placement) -> int:
    """Returns the bytes that one agent's gradient needs between its forward and its backward pass."""
    is_one = method.gradient.is_linear and policy.joins_neighbours()
    batches = _width(method) if is_one and "mean" in method.calls(params) else 1
    return policy.activations_held() * batches * kept_of_batch(trial) // placement.batch_devices


def kept_of_batch(trial: Trial) -> int:
    """Returns the bytes that a forward pass on one batch keeps for the backward pass."""

    def forward(params: Any, batch: Any) -> Any:
        return jax.vjp(lambda x: trial.loss_fn(x, batch)[0], params)[1]

    return size_of(jax.eval_shape(forward, jax.eval_shape(trial.first_model), trial.batch_shapes()))


def stored(trials: Sequence[Trial], placement: Placement) -> int:
    """Returns the bytes of the samples on a device: all to train with or, streamed, its agents' batches."""
    leaves = {id(leaf): leaf for one in trials for leaf in jax.tree.leaves(one.dataset.train)}
    if not trials[0].dataset.is_streamed:
        return sum(leaf.shape[0] * _bytes_of_sample(leaf) for leaf in leaves.values())
    samples = len(trials) * placement.per_device * trials[0].batches.size
    return samples * sum(_bytes_of_sample(leaf) for leaf in jax.tree.leaves(trials[0].dataset.train))


def _bytes_of_sample(leaf: Any) -> int:
    result: int = math.prod(leaf.shape[1:]) * np.dtype(leaf.dtype).itemsize
    return result


def size_of(shapes: Any) -> int:
    """Returns the bytes of all arrays of a tree, of which only the shapes are looked at."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def _width(method: Method) -> int:
    """Returns the number of an agent's neighbours, itself among them, at the most."""
    return int(method.topology.graphs[0].neighbours.shape[1])


def _mean_operations(trial: Trial) -> float:
    """Returns the floating-point operations of one convolution or matrix product of a forward pass."""
    loss = trial.loss_of("plain")
    traced = jax.make_jaxpr(lambda params, batch: loss(params, batch)[0])(
        jax.eval_shape(trial.first_model), trial.batch_shapes()
    )
    found = list(_operations(traced.jaxpr))
    return sum(found) / max(1, len(found))


def _operations(jaxpr: Any) -> Iterator[float]:
    """Yields the operations of each convolution and matrix product, those of inner functions too."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in ("conv_general_dilated", "dot_general"):
            left, right = (operand.aval for operand in equation.invars)
            result = equation.outvars[0].aval
            if name == "dot_general":
                ((contracted, _), _) = equation.params["dimension_numbers"]
                terms = math.prod(left.shape[axis] for axis in contracted)
            else:
                outputs = right.shape[equation.params["dimension_numbers"].rhs_spec[0]]
                terms = right.size // outputs
            yield 2.0 * result.size * terms
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from _operations(inner)


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


def estimate(program: "Program") -> Footprint:
    """Returns what a run, or several in one program, will take; see above."""
    placement, shapes = program.placement, program.carry_shapes
    at_a_time = program.agents_per_call * program.at_once
    is_grouped = program.agents_per_call < placement.per_device
    one = program.shapes_of_one.params
    gradients = copies(program.method, one, is_grouped) * size_of(one) * program.at_once
    activations = at_a_time * kept(program.trial, program.method, one, placement)
    devices = placement.devices * placement.batch_devices
    return Footprint(
        carried=size_of(shapes) // placement.devices,
        data=stored(program.trials, placement),
        working=gradients // placement.devices + activations,
        sharing=max(1, devices // jax.process_count()) if policy.is_cpu() else 1,
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


def fits(program: "Program") -> bool:
    """Tells whether a run should find enough memory, with some to spare."""
    there = available()
    return there is None or estimate(program).total <= 0.7 * there


def check(program: "Program") -> str | None:
    """Refuses what cannot be trained here: for want of TF32, or of memory for the models and state alone.

    Returns a warning where memory may not suffice for a step, else None.
    """
    check_precision(program.config.precision)
    there, needed = available(), estimate(program)
    if there is None or needed.total <= there:
        return None
    config, count = program.config, len(program.trials)
    what = f"{config.agents:,} agents" + (f" in {count} trials" if count > 1 else "")
    fewer = f"fewer agents{' or trials' if count > 1 else ''} or more devices"
    if needed.least > there:
        raise ArgumentError(
            f"memory does not suffice: models and state of {what} take {readable(needed.least)}, "
            f"there are {readable(there)}; use {fewer}"
        )
    return (
        f"memory may not suffice: {what} take about {readable(needed.total)}, there are {readable(there)}; "
        f"a smaller batch_size or agents_per_call, {fewer} would help"
    )
