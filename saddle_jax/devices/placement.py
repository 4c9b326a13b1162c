"""Placement of a run's agents on devices, with idle agents that make their number divisible."""

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from saddle_jax.base.checks import ArgumentError
from saddle_jax.devices import lifting, policy

# ---- programs on several devices of a CPU run one at a time, because they could deadlock ----
#
# XLA:CPU has one pool of threads, one for each core. A program on several devices takes one thread per
# device, and at a collective each thread waits for the others. Every device may have 32 programs in flight.
# The launch of one more waits, in a thread of the same pool, until one has ended. On two cores, the first
# device then waits at its collective for the second, while the second one's thread waits in a launch for a
# program that no thread computes. After 40 seconds XLA aborts the process. Disabling asynchronous dispatch
# does not help: the pool still computes a program on several devices, and the call returns before the
# program has ended. A program on one device is launched by the thread that calls it, and cannot block.
#
# So every program on several devices is called through `in_turn`. The host can go on working between two
# calls while the first one computes. Accelerators have their own queues and are not waited for.


_turn = threading.Lock()
_running: Any = None  # the smallest result of the last program on several devices; ready when all are


def in_turn(program: Callable[..., Any], *arguments: Any) -> Any:
    """Calls program(*arguments), on CPUs only after the previous program on several devices has ended.

    Only programs that are called through this function may take donated buffers: it waits for their results.
    """
    global _running
    if not policy.is_cpu():
        return program(*arguments)
    with _turn:
        before, _running = _running, None  # so that an error of it is raised once
        jax.block_until_ready(before)
        results = program(*arguments)
        shared = [x for x in jax.tree.leaves(results) if isinstance(x, jax.Array) and len(x.devices()) > 1]
        _running = min(shared, key=lambda x: x.size, default=None)
    return results


class _Padded(Protocol):
    """The interface of a graph that a placement needs."""

    @property
    def size(self) -> int:
        """The number of agents in the graph."""

    def padded(self, size: int) -> Any:
        """Returns the same graph with idle agents added at the end."""


_Graph = TypeVar("_Graph", bound=_Padded)


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices of a run, and how its agents are sharded over them.

    Attributes:
      agents: the number of agents, without idle ones.
      devices: the number of devices over which the agent axis is sharded.
      batch_devices: the number of devices over which each agent's batch is sharded.
      given: the devices, which may be compile-only ones; None takes JAX's own.
    """

    agents: int
    devices: int = 1
    batch_devices: int = 1
    given: tuple[Any, ...] | None = None

    @property
    def per_device(self) -> int:
        """The number of agents on each device, idle ones included."""
        return -(-self.agents // self.devices)

    @property
    def size(self) -> int:
        """The number of all agents, idle ones included: a multiple of the number of devices."""
        return self.per_device * self.devices

    @functools.cached_property
    def mesh(self) -> Mesh | None:
        """The device mesh; None on a single device, unless that is given."""
        count = self.devices * self.batch_devices
        if self.given is not None:
            return lifting.agent_mesh(self.given[:count], self.batch_devices)
        return None if count == 1 else lifting.agent_mesh(_spread(count), self.batch_devices)

    def sharding(self, *axes: str | None) -> NamedSharding | None:
        """Returns the sharding of an array whose first axes are these mesh axes; None on a single device."""
        return None if self.mesh is None else NamedSharding(self.mesh, PartitionSpec(*axes))

    def __str__(self) -> str:
        kind = (self.given or jax.devices())[0].device_kind
        idle = f", {self.size - self.agents} idle" if self.size > self.agents else ""
        shared = f", batches cut over {self.batch_devices}" if self.batch_devices > 1 else ""
        hosts = f", of {jax.process_count()} processes" if jax.process_count() > 1 else ""
        count = self.devices * self.batch_devices
        return f"{count} x {kind}{hosts}, {self.per_device} agents on each{idle}{shared}"

    def active(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context manager in which steps are traced and run."""
        return contextlib.nullcontext() if self.mesh is None else jax.set_mesh(self.mesh)

    def graph(self, topology: _Graph) -> _Graph:
        """Returns the graph padded with idle agents to `size`."""
        return topology if self.size == topology.size else topology.padded(self.size)

    def shardings(self, tree: Any, axis: int = 0) -> Any:
        """Returns the shardings of models and states: leaves are sharded along `axis`, scalars replicated.

        `Method.init` checks that every leaf is one of the two.
        """
        if self.mesh is None:
            return None
        axes = (*[None] * axis, lifting.AXIS)
        return jax.tree.map(lambda x: self.sharding(*axes[: jnp.ndim(x)]), tree)

    def like(self, shapes: Any, axis: int = 0) -> Any:
        """Returns the shapes of models and states with their shardings, see `shardings`."""
        here = None if self.mesh is not None else jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        places = self.shardings(shapes, axis) or jax.tree.map(lambda _: here, shapes)
        return jax.tree.map(lambda x, to: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=to), shapes, places)

    def everywhere(self, tree: Any) -> Any:
        """Returns the tree with all of its arrays replicated on every device."""
        if self.mesh is None:
            return jax.device_put(tree)
        return jax.tree.map(lambda x: _put(x, self.sharding()), tree)

    def by_agents(self, x: Any, axis: int = 0) -> Any:
        """Shards an array along its agents' `axis` over the devices; idle rows are copies of the first."""
        idle = self.size - self.agents
        if idle:
            first = jax.lax.slice_in_dim(x, 0, 1, axis=axis)
            x = jnp.concatenate([x, jnp.repeat(first, idle, axis=axis)], axis=axis)
        return x if self.mesh is None else _put(x, self.sharding(*[None] * axis, lifting.AXIS))

    @functools.cached_property
    def own_rows(self) -> range:
        """The rows of the agent axis, idle ones included, that are on devices of this process."""
        sharding = self.sharding(lifting.AXIS)
        if sharding is None:
            return range(self.size)
        slices = sharding.addressable_devices_indices_map((self.size,)).values()
        rows = [row for index in slices if index is not None for row in range(self.size)[index[0]]]
        return range(min(rows), max(rows) + 1)  # the rows of a process are contiguous

    def from_own_rows(self, x: np.ndarray) -> Any:
        """Makes an array [n * A, ...], n entries per agent, sharded by agents, from this process's own."""
        sharding = self.sharding(lifting.AXIS)
        if sharding is None:
            return x
        n = len(x) // len(self.own_rows)
        first, total = n * self.own_rows.start, n * self.size

        def part(index: Any) -> np.ndarray:
            start, stop, _ = index[0].indices(total)
            return x[start - first : stop - first]

        return jax.make_array_from_callback((total, *x.shape[1:]), sharding, part)

    def cut_batches(self, batch: Any) -> Any:
        """Shards batches [A, B, ...] along B over the devices that share an agent's batch."""
        if self.batch_devices == 1:
            return batch
        return jax.lax.with_sharding_constraint(batch, self.sharding(lifting.AXIS, lifting.BATCH_AXIS))

    def fetch(self, function: Any, *arguments: Any) -> Any:
        """Computes function(*arguments) on the arguments' devices; the results are on one local device."""
        sharding = self.sharding()
        result = in_turn(_replicated(function, sharding), *arguments)
        return result if sharding is None else jax.tree.map(lambda x: x.addressable_data(0), result)


def _put(x: Any, sharding: Any) -> Any:
    """Puts an array that every process holds in full on its own devices of a sharding."""
    if sharding.is_fully_addressable:
        return jax.device_put(x, sharding)
    local = np.asarray(x)
    return jax.make_array_from_callback(local.shape, sharding, lambda index: local[index])


def _spread(count: int) -> list[Any]:
    """Returns `count` devices, equally many from every process, or one more from the first ones."""
    processes = jax.process_count()
    shares = [count // processes + (process < count % processes) for process in range(processes)]
    by_process = [[d for d in jax.devices() if d.process_index == p] for p in range(processes)]
    return [device for share, devices in zip(shares, by_process, strict=True) for device in devices[:share]]


@functools.cache
def _replicated(function: Any, sharding: NamedSharding | None) -> Any:
    return jax.jit(function, out_shardings=sharding)


def place(
    agent_count: int, batch_size: int, devices: str = "auto", given: Sequence[Any] | None = None
) -> Placement:
    """Returns the placement of a run on a number of devices; "auto" takes all that make it faster.

    If there are more devices than agents, the agents' batches are sharded too. `given` are the devices to
    place it on; None takes JAX's own.
    """
    available = jax.device_count() if given is None else len(given)
    count = available if devices == "auto" else int(devices)
    if count > available:
        raise ArgumentError(f"devices must be at most {available}, the number available, got {count}")
    placement = _place(agent_count, batch_size, count, is_auto=devices == "auto")
    if given is not None:
        return dataclasses.replace(placement, given=tuple(given))
    used = placement.devices * placement.batch_devices
    if used < jax.process_count():
        raise ArgumentError(
            f"each of the {jax.process_count()} processes needs agents on a device of its own, but "
            f"{agent_count} agents use {used} devices: use fewer processes or more agents"
        )
    return placement


def spread(agent_count: int, batch_size: int, count: int) -> Placement:
    """Returns the placement of a run on at most `count` devices, which need not exist."""
    return _place(agent_count, batch_size, count, is_auto=True)


def _place(agent_count: int, batch_size: int, count: int, *, is_auto: bool) -> Placement:
    if count <= agent_count:
        # 10 agents on 8 devices: two on each of five devices, unless some process would then have none.
        enough = -(-agent_count // -(-agent_count // count))
        takes_all = not is_auto or enough < jax.process_count()
        return Placement(agent_count, count if takes_all else enough)
    if not is_auto:
        if count % agent_count or batch_size % (count // agent_count):
            raise ArgumentError(
                f"devices must be at most agents = {agent_count}, or a multiple of it that divides "
                f"agents * batch_size = {agent_count * batch_size}, got {count}"
            )
        return Placement(agent_count, agent_count, count // agent_count)
    most = policy.devices_per_batch(count, agent_count)
    return Placement(agent_count, agent_count, max(n for n in range(1, most + 1) if batch_size % n == 0))
