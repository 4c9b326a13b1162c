"""Maps functions of one agent over all agents, in the way that suits the hardware.

There are up to three steps:

    devices   the agent axis is divided into one shard per device of the mesh axis "agents", if there is one
    groups    a loop computes a shard's agents a few at a time, so that memory is bounded and caches suffice
    vmap      the agents of a group are one more axis of every operation

The mesh is JAX's own, set as in JAX:

    with jax.set_mesh(sj.agent_mesh(4)):
        params, state, metrics = step(params, state, batch, key)

Inside, stacked arrays [A, ...] are sharded along A, and A is a multiple of the number of devices.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.devices import policy

AXIS = "agents"  # of the mesh
BATCH_AXIS = "batch"  # of the mesh: divides each agent's batch, if there are more devices than agents


def agent_mesh(devices: int | Sequence[Any] | None = None, batch: int = 1) -> Mesh:
    """Returns a mesh of devices in the order of the agents, for `jax.set_mesh`.

    Args:
      devices: how many devices, or a list of them; None takes all.
      batch: over how many devices each agent's batch is sharded; it must divide the number of devices.

    >>> dict(sj.agent_mesh(1).shape)
    {'agents': 1, 'batch': 1}
    """
    if devices is None or isinstance(devices, int):
        available = jax.devices()
        count = len(available) if devices is None else checks.whole("devices", devices, at_least=1)
        if count > len(available):
            raise ArgumentError(
                f"devices must be at most {len(available)}, the number available, got {count}"
            )
        devices = available[:count]
    batch = checks.whole("batch", batch, at_least=1)
    if len(devices) % batch:
        raise ArgumentError(f"batch must divide the number of devices, {len(devices)}, got {batch}")
    grid = np.array(devices).reshape(-1, batch)
    return Mesh(grid, (AXIS, BATCH_AXIS), axis_types=(AxisType.Auto,) * 2)


def shards() -> int:
    """Returns the number of devices over which the agent axis is sharded: 1 without a mesh or in a shard."""
    mesh = jax.sharding.get_abstract_mesh()
    if AXIS in mesh.explicit_axes:
        raise ArgumentError(f"the mesh axis {AXIS!r} must be of type Auto, got Explicit: use sj.agent_mesh")
    return mesh.shape[AXIS] if AXIS in mesh.auto_axes else 1


def stacked_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of stacked arrays [A, ...] over the mesh's devices.

    >>> tuple(sj.stacked_sharding(sj.agent_mesh(1)).spec)
    ('agents',)
    """
    return NamedSharding(mesh, PartitionSpec(AXIS))


def vmap_agents(function: Callable[..., Any], agents_per_call: int = 0) -> Callable[..., Any]:
    """Maps a function of one agent over all agents: arguments and results get the agent axis [A, ...]."""

    def shard_fn(*arguments: Any) -> Any:
        agents = jax.tree.leaves(arguments)[0].shape[0]
        size = policy.group_size(agents, agents_per_call)
        if size == agents > 1:
            return jax.vmap(function)(*arguments)
        # Without a batch size there is no additional axis: the operations are those of one model.
        options = {} if size == 1 else {"batch_size": size}
        return jax.lax.map(lambda one: function(*one), arguments, **options)

    return on_shards(shard_fn)


def on_shards(function: Callable[..., Any], everywhere: Sequence[int] = ()) -> Callable[..., Any]:
    """Runs a function of a shard's agents on every device; without a mesh all agents are one shard.

    Args:
      function: takes trees whose leaves are [S, ...], S the agents of a shard, and returns such trees.
      everywhere: the positions of arguments without an agent axis, which are replicated.
    """

    def run(*arguments: Any) -> Any:
        count = shards()
        if count == 1:
            return function(*arguments)
        specs = []
        for position, argument in enumerate(arguments):
            specs.append(PartitionSpec() if position in everywhere else PartitionSpec(AXIS))
            for leaf in () if position in everywhere else jax.tree.leaves(argument):
                check_divides(leaf.shape[0], count)
        # check_vma: our batching rules for convolutions do not state how values vary over the mesh.
        return jax.shard_map(
            function,
            in_specs=tuple(specs),
            out_specs=PartitionSpec(AXIS),
            axis_names={AXIS},
            check_vma=False,
        )(*arguments)

    return run


def check_divides(size: int, devices: int) -> None:
    """Checks that the number of devices divides the number of agents."""
    if size % devices:
        raise ArgumentError(
            f"the number of agents must be a multiple of the mesh's {devices} devices, got {size}: "
            "see Topology.padded"
        )
