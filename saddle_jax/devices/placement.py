"""Where the agents of a run live: which devices, how many agents on each, and idle ones to make it even."""

import contextlib
import dataclasses
import functools
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from saddle_jax.base.checks import ArgumentError
from saddle_jax.devices import lifting, policy
from saddle_jax.devices.dispatch import in_turn


class _Padded(Protocol):
    """What a placement asks of a graph of agents."""

    @property
    def size(self) -> int:
        """How many agents there are."""

    def padded(self, size: int) -> Any:
        """The same graph with idle agents behind it."""


_Graph = TypeVar("_Graph", bound=_Padded)


@dataclasses.dataclass(frozen=True)
class Placement:
    """A run's agents on devices.

    Attributes:
      agents: how many there are.
      devices: over how many the agent axis is cut.
      batch_devices: over how many each of those cuts its agents' batches again.
    """

    agents: int
    devices: int = 1
    batch_devices: int = 1

    @property
    def per_device(self) -> int:
        """Agents on a device, idle ones included."""
        return -(-self.agents // self.devices)

    @property
    def size(self) -> int:
        """All agents, idle ones included: a multiple of the number of devices."""
        return self.per_device * self.devices

    @functools.cached_property
    def mesh(self) -> Mesh | None:
        """Of JAX; None on one device."""
        count = self.devices * self.batch_devices
        return None if count == 1 else lifting.agent_mesh(_spread(count), self.batch_devices)

    def sharding(self, *axes: str | None) -> NamedSharding | None:
        """Of an array with these mesh axes, from the first on; None on one device."""
        return None if self.mesh is None else NamedSharding(self.mesh, PartitionSpec(*axes))

    def __str__(self) -> str:
        kind = jax.devices()[0].device_kind
        idle = f", {self.size - self.agents} idle" if self.size > self.agents else ""
        shared = f", batches cut over {self.batch_devices}" if self.batch_devices > 1 else ""
        hosts = f", of {jax.process_count()} processes" if jax.process_count() > 1 else ""
        count = self.devices * self.batch_devices
        return f"{count} x {kind}{hosts}, {self.per_device} agents on each{idle}{shared}"

    def active(self) -> contextlib.AbstractContextManager[Any]:
        """What steps are traced and run in."""
        return contextlib.nullcontext() if self.mesh is None else jax.set_mesh(self.mesh)

    def graph(self, topology: _Graph) -> _Graph:
        """The graph with as many idle agents as it takes."""
        return topology if self.size == topology.size else topology.padded(self.size)

    def shardings(self, tree: Any, axis: int = 0) -> Any:
        """Where the leaves of models and states belong, whose `axis` is the agents', on every device scalars.

        That every leaf is of one of these two kinds is a law which `Method.init` checks.
        """
        if self.mesh is None:
            return None
        axes = (*[None] * axis, lifting.AXIS)
        return jax.tree.map(lambda x: self.sharding(*axes[: jnp.ndim(x)]), tree)

    def everywhere(self, tree: Any) -> Any:
        """A tree whose arrays every device has whole."""
        return tree if self.mesh is None else jax.tree.map(lambda x: _put(x, self.sharding()), tree)

    def by_agents(self, x: Any, axis: int = 0) -> Any:
        """An array whose `axis` is the agents', with idle rows (copies of the first) behind them, cut up."""
        idle = self.size - self.agents
        if idle:
            first = jax.lax.slice_in_dim(x, 0, 1, axis=axis)
            x = jnp.concatenate([x, jnp.repeat(first, idle, axis=axis)], axis=axis)
        return x if self.mesh is None else _put(x, self.sharding(*[None] * axis, lifting.AXIS))

    @functools.cached_property
    def own_rows(self) -> range:
        """The rows of the agent axis, idle ones included, that devices of this process hold."""
        sharding = self.sharding(lifting.AXIS)
        if sharding is None:
            return range(self.size)
        parts = sharding.addressable_devices_indices_map((self.size,)).values()
        held = [row for part in parts if part is not None for row in range(self.size)[part[0]]]
        return range(min(held), max(held) + 1)  # the devices of a process are neighbours

    def from_own_rows(self, x: np.ndarray) -> Any:
        """An array [n * A, ...] cut by agents, n entries of each, from those of this process's own rows."""
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
        """Batches [A, B, ...], told to lie on the devices that share an agent's batch."""
        if self.batch_devices == 1:
            return batch
        return jax.lax.with_sharding_constraint(batch, self.sharding(lifting.AXIS, lifting.BATCH_AXIS))

    def pull(self, function: Any, *arguments: Any) -> Any:
        """function(*arguments), computed where those are; its results whole, on the first device here."""
        sharding = self.sharding()
        if sharding is None:
            return function(*arguments)
        result = in_turn(_replicated(function, sharding), *arguments)
        return jax.tree.map(lambda x: x.addressable_data(0), result)


def _put(x: Any, sharding: Any) -> Any:
    """An array that every process has whole, on its devices among these."""
    if sharding.is_fully_addressable:
        return jax.device_put(x, sharding)
    here = np.asarray(x)
    return jax.make_array_from_callback(here.shape, sharding, lambda index: here[index])


def _spread(count: int) -> list[Any]:
    """So many devices, of every process as many as of the others, or one more of the first ones."""
    processes = jax.process_count()
    shares = [count // processes + (process < count % processes) for process in range(processes)]
    of_each = [[d for d in jax.devices() if d.process_index == p] for p in range(processes)]
    return [device for share, there in zip(shares, of_each, strict=True) for device in there[:share]]


@functools.cache
def _replicated(function: Any, sharding: NamedSharding) -> Any:
    return jax.jit(function, out_shardings=sharding)


def place(agent_count: int, batch_size: int, wanted: str = "auto") -> Placement:
    """The devices of a run: "auto" is all there are, as far as they are of use; a number is that many.

    More devices than agents cut the agents' batches too.
    """
    available = jax.device_count()
    count = available if wanted == "auto" else int(wanted)
    if count > available:
        raise ArgumentError(f"devices must be at most {available}, as many as there are, got {count}")
    placement = _place(agent_count, batch_size, wanted, count)
    taken = placement.devices * placement.batch_devices
    if taken < jax.process_count():
        raise ArgumentError(
            f"every one of the {jax.process_count()} processes needs agents on a device of its own, but "
            f"{agent_count} agents take {taken} devices: take fewer processes or more agents"
        )
    return placement


def _place(agent_count: int, batch_size: int, wanted: str, count: int) -> Placement:
    if count <= agent_count:
        # 10 agents on 8 devices are two on each of five, unless every process is to have some.
        enough = -(-agent_count // -(-agent_count // count))
        takes_all = wanted != "auto" or enough < jax.process_count()
        return Placement(agent_count, count if takes_all else enough)
    if wanted != "auto":
        if count % agent_count or batch_size % (count // agent_count):
            raise ArgumentError(
                f"devices must be at most agents = {agent_count}, or a multiple that divides "
                f"agents * batch_size = {agent_count * batch_size}, got {count}"
            )
        return Placement(agent_count, agent_count, count // agent_count)
    most = policy.devices_per_batch(count, agent_count)
    return Placement(agent_count, agent_count, max(n for n in range(1, most + 1) if batch_size % n == 0))


def check(name: str, value: str) -> None:
    """Of the setting: auto, or a number."""
    if value != "auto" and not (value.isdecimal() and int(value) >= 1):
        raise ArgumentError(f"{name} must be auto or a whole number >= 1, got {value!r}")
