"""What goes wrong in one step, once it is drawn: see `saddle_jax.core.faults` for how."""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from saddle_jax.base.types import Array, Tree
from saddle_jax.core.topology import Stochasticity

if TYPE_CHECKING:
    from saddle_jax.core.faults import Faults


class Table(NamedTuple):
    """The graph of one step: its table of neighbours, see `Topology`."""

    neighbours: Array  # int [A, K]
    weights: Array  # float [A, K]
    occupied: Array  # bool [A, K]


class FaultState(NamedTuple):
    """Faults remember which links and agents are in a bad way, and what is still under way."""

    failing: Any  # bool [A, K]: links in a burst of losses; () unless losses come in bursts
    away: Any  # bool [A]: agents that are offline; () unless they come and go
    arrivals: (
        Any  # bool [A, D, K]: what will arrive in the next D rounds, the next one first; () without delay
    )
    past: Any  # what was sent in the last D rounds, a tree [A, D, ...] for each; () without delay
    sent: Array  # int32 [A, kinds]: over how many links each agent has sent, by kind of step


@dataclasses.dataclass(eq=False)
class Conditions:
    """Conditions are what the faults do in one step, as it was drawn.

    Attributes:
      faults: what they were drawn from.
      arrived: which messages of the k-th neighbour reach agent i in this step, bool [A, K]; its own always
        does.
      delivered: which messages sent in this step will reach it, bool [A, K]; the same without delay.
      online: which agents take part in this step, bool [A].
      past: what was sent in the last rounds, a tree [A, D, ...] for each that is delayed; None in an
        abstract step, which notes the shapes in `noted`.
    """

    faults: "Faults"
    arrived: Array
    delivered: Array
    online: Array
    past: list[Tree] | None = None
    noted: list[Tree] = dataclasses.field(default_factory=list)
    _rounds: int = 0

    def as_heard(self, x: Tree) -> Tree:
        """Returns x [A, ...] as the others hear it in this round: as it was D rounds ago."""
        if not self.faults.delay:
            return x
        number, self._rounds = self._rounds, self._rounds + 1
        if self.past is None:
            self.noted.append(x)
            return x
        old = self.past[number]
        self.past[number] = jax.tree.map(lambda past, x: jnp.roll(past, -1, axis=1).at[:, -1].set(x), old, x)
        return jax.tree.map(lambda past: past[:, 0], old)

    def frozen(self, old: Tree, new: Tree) -> Tree:
        """Returns the new leaves [A, ...] of agents that computed, and the old ones of those that did not."""
        if self.faults.computes or not self.faults.has_absences:
            return new

        def leaf(old: Any, new: Any) -> Any:
            return jnp.where(self.online.reshape(-1, *(1,) * (new.ndim - 1)), new, old) if new.ndim else new

        return jax.tree.map(leaf, old, new)

    def lost(self, table: Table) -> Array:
        """Returns the share of this step's messages that never arrive, float []; 0 where none is sent.

        To and from an agent that is away nothing is sent.
        """
        sent = table.occupied & self.online[:, None] & self.online[table.neighbours]
        sent = sent.at[:, 0].set(False)
        share = jnp.sum(sent & ~self.delivered) / jnp.maximum(1, jnp.sum(sent))
        return share.astype(jnp.float32)

    def weights(self, table: Table, stochasticity: Stochasticity) -> Array:
        """Returns the weights of what arrived in this step, float [A, K], see `lost_weight` above."""
        arriving = jnp.where(self.arrived, table.weights, 0)
        if stochasticity == "column":
            lost = jnp.where(table.occupied & ~self.delivered, table.weights, 0)
            returned = jnp.zeros(len(lost)).at[table.neighbours].add(lost)
            return arriving.at[:, 0].add(returned)
        total = arriving.sum(axis=1)
        if self.faults.lost_weight == "self":
            return arriving.at[:, 0].add(table.weights.sum(axis=1) - total)
        alone = total == 0
        scaled = arriving / jnp.where(alone, 1, total)[:, None]
        return scaled.at[:, 0].add(jnp.where(alone, 1, 0))
