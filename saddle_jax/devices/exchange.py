"""What agents on different devices hear of each other: only the rows that the graph asks for move.

The agents of a mesh axis lie in shards of S = A / D neighbouring ones. `bring` hands every shard its own rows
and those of other shards that its agents listen to: on a ring these are the two beside its borders, whatever
S is. For each distance between two devices there is one collective-permute, of the rows of all tensors packed
into one matrix per dtype. Where nearly everything would have to move, it is one all-gather.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Array
from saddle_jax.devices import lifting

# From this share of all foreign rows on, an all-gather moves little more and needs no packing.
_NEARLY_ALL = 0.75


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """Who sends which rows, for one table on one number of devices.

    Attributes:
      sent: for each distance r between devices, which of its rows device d sends to device d + r,
        int [D, M_r]; a device that has fewer repeats its first. Empty with an all-gather.
      senders: what agent i reads, int [A, K], as positions in what its shard holds after the exchange: its
        own rows first, then those received in the order of `sent`; with an all-gather, all rows.
      gathers: whether every device receives everything.
    """

    sent: dict[int, np.ndarray]
    senders: np.ndarray
    gathers: bool


def plan(table: np.ndarray, rows: int, devices: int) -> Plan:
    """The exchange on so many devices, which must divide both the table's length and the number of rows.

    Args:
      table: int [A, K], which rows each agent reads.
      rows: how many there are: A where everybody has one, A K where everybody has one for each neighbour.
      devices: over how many both are cut.
    """
    return _plan(table.tobytes(), table.shape, table.dtype.str, rows, devices)


@functools.lru_cache(maxsize=64)
def _plan(content: bytes, shape: tuple[int, ...], dtype: str, rows: int, devices: int) -> Plan:
    table = np.frombuffer(content, dtype).reshape(shape)
    size, readers = rows // devices, len(table) // devices
    home = table // size  # the device of every sender
    receiver = np.arange(len(table))[:, None] // readers
    shard = [slice(d * readers, (d + 1) * readers) for d in range(devices)]

    def wanted(d: int, r: int) -> np.ndarray:
        """The rows that device d reads from the device r before it."""
        return np.unique(table[shard[d]][home[shard[d]] == (d - r) % devices])

    widest = {r: max(len(wanted(d, r)) for d in range(devices)) for r in range(1, devices)}
    if sum(widest.values()) >= _NEARLY_ALL * (rows - size):
        return Plan({}, table, gathers=True)
    sent: dict[int, np.ndarray] = {}
    senders = table - receiver * size  # right for those at home
    position = size
    for r, width in widest.items():
        if not width:
            continue
        leaving = np.zeros((devices, width), np.int32)
        for d in range(devices):
            incoming, origin = wanted(d, r), (d - r) % devices
            leaving[origin, : len(incoming)] = incoming - origin * size
            for k, row in enumerate(incoming):
                senders[shard[d]][table[shard[d]] == row] = position + k
        sent[r] = leaving
        position += width
    return Plan(sent, senders.astype(np.int32), gathers=False)


def bring(table: np.ndarray, tree: Any) -> tuple[Any, Array]:
    """What every shard's agents can read, and where in it each finds what it reads.

    Args:
      table: int [A, K], which rows each agent reads.
      tree: leaves [rows, ...], cut over the devices as the agents are.

    Returns:
      A tree and places [A, K], both for `lifting.on_shards`: inside it `leaf[places[:, k]]` are the rows that
      stand in the table's k-th column. Without a mesh: the tree itself and the table.
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
    """All agents' rows on every shard, for `lifting.on_shards`; without a mesh the tree itself."""
    return tree if lifting.shards() == 1 else lifting.on_shards(_gather)(tree)


def _gather(tree: Any) -> Any:
    return jax.tree.map(lambda x: jax.lax.all_gather(x, lifting.AXIS, tiled=True), tree)


def _send(distance: int, devices: int, tree: Any, rows: Array) -> Any:
    """Rows [M] of this shard go to the device `distance` further on; returns those that come in, [M, ...]."""
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda x: x[rows], tree))
    ways = [(d, (d + distance) % devices) for d in range(devices)]
    received = list(leaves)
    for dtype in sorted({leaf.dtype for leaf in leaves}, key=str):
        alike = [n for n, leaf in enumerate(leaves) if leaf.dtype == dtype]
        packed = jnp.concatenate([leaves[n].reshape(len(rows), -1) for n in alike], axis=1)
        moved = jax.lax.ppermute(packed, lifting.AXIS, ways)
        ends = np.cumsum([leaves[n][0].size for n in alike])
        for n, part in zip(alike, jnp.split(moved, ends[:-1], axis=1), strict=True):
            received[n] = part.reshape(leaves[n].shape)
    return jax.tree.unflatten(structure, received)
