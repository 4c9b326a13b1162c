"""Halo exchange between devices: only the rows that the graph needs are sent.

The agents are divided over a mesh axis into shards of S = A / D consecutive agents. `halo_exchange` gives
every shard its own rows and those of other shards that its agents read: on a ring these are the two next to
its ends, for any S. There is one collective-permute for each distance between two devices. It sends the rows
of all tensors, packed into one matrix per dtype. If nearly all rows would have to be sent, there is one
all-gather instead.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array
from saddle_jax.devices import lifting

# From this fraction of all other shards' rows on, an all-gather sends little more and needs no packing.
_NEARLY_ALL = 0.75


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The rows that each device sends, for one table on one number of devices.

    Attributes:
      sent: for each distance r between devices, the rows that device d sends to device d + r, int [D, M_r];
        a device with fewer rows to send repeats its first. Empty with an all-gather.
      senders: the rows that agent i reads, int [A, K], as indices into the rows of its shard after the
        exchange: the shard's own rows, then those received in the order of `sent`; with an all-gather, all.
      gathers: whether it is an all-gather.
    """

    sent: dict[int, np.ndarray]
    senders: np.ndarray
    gathers: bool


def plan(table: np.ndarray, rows: int, devices: int) -> Plan:
    """Returns the exchange on D devices; D must divide both the table's length and the number of rows.

    Args:
      table: int [A, K], the rows that each agent reads.
      rows: how many rows there are: A where each agent has one, A K where each has one per neighbour.
      devices: D.
    """
    return _plan(table.tobytes(), table.shape, table.dtype.str, rows, devices)


@functools.lru_cache(maxsize=64)
def _plan(content: bytes, shape: tuple[int, ...], dtype: str, rows: int, devices: int) -> Plan:
    table = np.frombuffer(content, dtype).reshape(shape)
    size, readers = rows // devices, len(table) // devices
    home = table // size  # the device of every sender
    receiver = np.arange(len(table))[:, None] // readers
    shard = [slice(d * readers, (d + 1) * readers) for d in range(devices)]

    def rows_read(d: int, r: int) -> np.ndarray:
        """Returns the rows that device d reads from device d - r."""
        return np.unique(table[shard[d]][home[shard[d]] == (d - r) % devices])

    widest = {r: max(len(rows_read(d, r)) for d in range(devices)) for r in range(1, devices)}
    if sum(widest.values()) >= _NEARLY_ALL * (rows - size):
        return Plan({}, table, gathers=True)
    sent: dict[int, np.ndarray] = {}
    senders = table - receiver * size  # right for rows of the same shard
    position = size
    for r, width in widest.items():
        if not width:
            continue
        outgoing = np.zeros((devices, width), np.int32)
        for d in range(devices):
            incoming, origin = rows_read(d, r), (d - r) % devices
            outgoing[origin, : len(incoming)] = incoming - origin * size
            for k, row in enumerate(incoming):
                senders[shard[d]][table[shard[d]] == row] = position + k
        sent[r] = outgoing
        position += width
    return Plan(sent, senders.astype(np.int32), gathers=False)


def halo_exchange(table: np.ndarray, tree: Any) -> tuple[Any, Array]:
    """Sends every shard the rows that its agents read, and returns their indices there.

    Args:
      table: int [A, K], the rows that each agent reads.
      tree: leaves [rows, ...], sharded over the devices as the agents are.

    Returns:
      A tree and indices [A, K], both for `lifting.on_shards`: inside it `leaf[indices[:, k]]` are the rows of
      the table's k-th column. Without a mesh: the tree itself and the table.
    """
    devices = lifting.shards()
    if devices == 1:
        return tree, jnp.asarray(table)
    rows = jax.tree.leaves(tree)[0].shape[0]
    lifting.check_divides(len(table), devices)
    moves = plan(table, rows, devices)
    if moves.gathers:
        return everything(tree), jnp.asarray(moves.senders)

    def exchange(tree: Any, *sent: Array) -> Any:
        received = [_send(r, devices, tree, rows[0]) for r, rows in zip(moves.sent, sent, strict=True)]
        return jax.tree.map(lambda *x: jnp.concatenate(x), tree, *received)

    sent = [jnp.asarray(rows) for rows in moves.sent.values()]
    return lifting.on_shards(exchange)(tree, *sent), jnp.asarray(moves.senders)


def everything(tree: Any) -> Any:
    """Gathers all agents' rows on every shard, for `lifting.on_shards`; without a mesh the tree itself."""
    return tree if lifting.shards() == 1 else lifting.on_shards(_gather)(tree)


def _gather(tree: Any) -> Any:
    return jax.tree.map(lambda x: jax.lax.all_gather(x, lifting.AXIS, tiled=True), tree)


def _send(distance: int, devices: int, tree: Any, rows: Array) -> Any:
    """Sends rows [M] of this shard to the device `distance` ahead; returns those received, [M, ...]."""
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda x: x[rows], tree))
    routes = [(d, (d + distance) % devices) for d in range(devices)]
    received = list(leaves)
    for dtype in sorted({leaf.dtype for leaf in leaves}, key=str):
        positions = [n for n, leaf in enumerate(leaves) if leaf.dtype == dtype]
        packed = jnp.concatenate([leaves[n].reshape(len(rows), -1) for n in positions], axis=1)
        arrived = jax.lax.ppermute(packed, lifting.AXIS, routes)
        ends = np.cumsum([leaves[n][0].size for n in positions])
        for n, part in zip(positions, jnp.split(arrived, ends[:-1], axis=1), strict=True):
            received[n] = part.reshape(leaves[n].shape)
    return jax.tree.unflatten(structure, received)
