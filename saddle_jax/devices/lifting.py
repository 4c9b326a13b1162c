"""How the agents are computed on this hardware: the one home of that choice.

What is written for one agent is lifted over all of them in up to three steps:

    devices   the agent axis is cut into one shard per device of the mesh axis "agents", if there is one
    groups    a shard's agents are taken so many at a time, in a loop: memory is bounded, caches suffice
    vmap      a group's agents are one more axis of every operation

The mesh is JAX's own, in the way JAX has for it:

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
BATCH_AXIS = "batch"  # of the mesh: the images of each agent, where there are more devices than agents


def agent_mesh(devices: int | Sequence[Any] | None = None, batch: int = 1) -> Mesh:
    """Devices in the order of the agents, for `jax.set_mesh`.

    Args:
      devices: how many, or which; None is all there are.
      batch: over how many of them each agent's batch is cut; it must divide their number.

    >>> dict(sj.agent_mesh(1).shape)
    {'agents': 1, 'batch': 1}
    """
    if devices is None or isinstance(devices, int):
        there = jax.devices()
        count = len(there) if devices is None else checks.whole("devices", devices, at_least=1)
        if count > len(there):
            raise ArgumentError(f"devices must be at most {len(there)}, as many as there are, got {count}")
        devices = there[:count]
    batch = checks.whole("batch", batch, at_least=1)
    if len(devices) % batch:
        raise ArgumentError(f"batch must divide the number of devices, {len(devices)}, got {batch}")
    grid = np.array(devices).reshape(-1, batch)
    return Mesh(grid, (AXIS, BATCH_AXIS), axis_types=(AxisType.Auto,) * 2)


def shards() -> int:
    """Over how many devices the agent axis is cut here: 1 without a mesh, and inside a shard."""
    mesh = jax.sharding.get_abstract_mesh()
    if AXIS in mesh.explicit_axes:
        raise ArgumentError(f"the mesh axis {AXIS!r} must be of type Auto, got Explicit: use sj.agent_mesh")
    return mesh.shape[AXIS] if AXIS in mesh.auto_axes else 1


def stacked_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of stacked arrays [A, ...]: the agents are cut over the mesh's devices.

    >>> tuple(sj.stacked_sharding(sj.agent_mesh(1)).spec)
    ('agents',)
    """
    return NamedSharding(mesh, PartitionSpec(AXIS))


def lift(function: Callable[..., Any], group: int = 0) -> Callable[..., Any]:
    """A function of one agent as a function of all: each argument and result gets the agent axis [A, ...]."""

    def of_a_shard(*arguments: Any) -> Any:
        agents = jax.tree.leaves(arguments)[0].shape[0]
        size = policy.group_size(agents, group)
        if size == agents > 1:
            return jax.vmap(function)(*arguments)
        # One by one there is no axis more: operations are those of one model.
        batched = {} if size == 1 else {"batch_size": size}
        return jax.lax.map(lambda one: function(*one), arguments, **batched)

    return on_shards(of_a_shard)


def on_shards(function: Callable[..., Any], everywhere: Sequence[int] = ()) -> Callable[..., Any]:
    """A function of a shard's agents, run on every device; without a mesh all agents are one shard.

    Args:
      function: of trees whose leaves are [S, ...], S the shard's agents; its results must be the same.
      everywhere: which arguments have no agent axis: every shard sees the whole of them.
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
        # Our rules for convolutions say nothing about how values vary over the mesh: unchecked.
        return jax.shard_map(
            function,
            in_specs=tuple(specs),
            out_specs=PartitionSpec(AXIS),
            axis_names={AXIS},
            check_vma=False,
        )(*arguments)

    return run


def check_divides(size: int, devices: int) -> None:
    """Checks that so many agents can be cut into equal shards."""
    if size % devices:
        raise ArgumentError(
            f"the number of agents must be a multiple of the mesh's {devices} devices, got {size}: "
            "see Topology.padded"
        )
