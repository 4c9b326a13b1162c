"""An unreliable network: lost and delayed messages, agents that are offline, and the time that a run takes.

Everything is drawn from the step's key and the indices of the agents concerned. So the same seed loses the
same messages, whatever the method, and on any number of devices. A link that fails in a step fails for all
rounds of that step: what is sent together, such as push-sum's x and w, is lost together.

What happens to the weight w_ij of a message that did not arrive (`lost_weight`):

    "self"           it is added to w_ii: rows of W still sum to one. If links fail in both directions at once
                     (`symmetric`), columns do too: the agents' average and the mean of trackers are preserved
    "renormalise"    the weights of what arrived are scaled to sum to one; columns then do not

On a column-stochastic graph (push-sum) the weight returns to the sender, so that the total mass is
preserved.

`Timing` simulates how long a run would take on a real network: every agent has a clock. In a step an agent
computes its gradients and then goes through the step's rounds, one after the other. In a round it sends over
all of its links at once and waits for its neighbours:

    T_i  <-  T_i + c_i (gradients it takes)                               it computes
    T_i  <-  max(T_i, max_j T_j + latency_ij + bits / bandwidth_ij)       each round; j are its neighbours

No agent waits for one that is offline; a lost message takes as long as one that arrives. An exact average
of all agents is a ring all-reduce of 2 (A - 1) steps at the pace of the slowest link, which begins when the
last agent is ready. The time of the run is that of the latest clock.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Key, Tree
from saddle_jax.core.network import Network, Table
from saddle_jax.core.topology import Stochasticity

LostWeight = Literal["self", "renormalise"]
LOST_WEIGHTS = ("self", "renormalise")

# Folded into the step's key, so that links and agents are drawn independently.
_LINKS, _AGENTS = 1, 2


class FaultState(NamedTuple):
    """State of the faults: links in a burst of losses, agents that are offline, and messages under way."""

    failing: Any  # bool [A, K]: links in a burst of losses; () unless losses come in bursts
    away: Any  # bool [A]: agents that are offline; () unless they come and go
    arrivals: (
        Any  # bool [A, D, K]: what will arrive in the next D rounds, the next one first; () without delay
    )
    past: Any  # what was sent in the last D rounds, a tree [A, D, ...] for each; () without delay
    sent: Array  # int32 [A, kinds]: over how many links each agent has sent, by kind of step


@dataclasses.dataclass(eq=False)
class Conditions:
    """The faults that were drawn for one step.

    Attributes:
      faults: the settings that they were drawn from.
      arrived: whether a message of its k-th neighbour reaches agent i in this step, bool [A, K]; True for
        itself.
      delivered: whether a message that is sent to it in this step will reach it, bool [A, K]; equal to
        `arrived` without delay.
      online: which agents take part in this step, bool [A].
      past: what was sent in the last D rounds, one tree [A, D, ...] per delayed round; None in an abstract
        step, which collects the shapes in `noted`.
    """

    faults: "Faults"
    arrived: Array
    delivered: Array
    online: Array
    past: list[Tree] | None = None
    noted: list[Tree] = dataclasses.field(default_factory=list)
    _rounds: int = 0

    def as_received(self, x: Tree) -> Tree:
        """Returns x [A, ...] as the neighbours receive it in this round: as it was D rounds ago."""
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
        """Returns the new leaves [A, ...] of agents that computed in this step and the old ones of others."""
        if self.faults.computes or not self.faults.has_absences:
            return new

        def leaf(old: Any, new: Any) -> Any:
            return jnp.where(self.online.reshape(-1, *(1,) * (new.ndim - 1)), new, old) if new.ndim else new

        return jax.tree.map(leaf, old, new)

    def lost(self, table: Table) -> Array:
        """Returns the fraction of this step's messages that never arrive, float []; 0 if none is sent.

        Nothing is sent to or from an agent that is offline.
        """
        sent = table.occupied & self.online[:, None] & self.online[table.neighbours]
        sent = sent.at[:, 0].set(False)
        share = jnp.sum(sent & ~self.delivered) / jnp.maximum(1, jnp.sum(sent))
        return share.astype(jnp.float32)

    def weights(self, table: Table, stochasticity: Stochasticity) -> Array:
        """Returns the mixing weights of the messages that arrived, float [A, K], see `lost_weight`."""
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


@dataclasses.dataclass(frozen=True, eq=False)
class Faults:
    """What a network loses and delays: `dataclasses.replace(method, faults=sj.Faults(drop=0.1))`.

    Attributes:
      drop: the probability that a message is lost, in [0, 1).
      offline: the probability that an agent is offline in a step, in [0, 1). It neither sends nor receives.
      delay: the number of rounds of gossip by which messages are late; nothing arrives before the first one.
      symmetric: whether a link fails in both directions at once; False draws each direction independently.
      lost_weight: what happens to the weight of a message that did not arrive, "self" or "renormalise".
      burst: the mean number of steps that a link fails in a row (Gilbert and Elliott's model: a failing link
        loses every message, a good one none); None draws each step independently.
      mean_offline: the mean number of steps that an agent stays offline; None draws each step independently.
      computes: whether an agent that is offline goes on training alone; False freezes it, with all its state.
      joins: {agent: step}, agents that are offline before a step and then join with the initial model.
      leaves: {agent: step}, agents that are offline from a step on.
      arrived: which messages arrive, in place of `drop`: masks bool [T, A, A], where i receives from j in
        step t if [t, i, j] (they repeat after T steps); or (key, t, neighbours [A, K]) -> bool [A, K].
      online: which agents are online, in place of `offline`: masks bool [T, A], or (key, t) -> bool [A].

    >>> sj.Faults(drop=0.1, symmetric=False)
    Faults(drop=0.1, symmetric=False)
    """

    drop: Any = 0.0
    offline: Any = 0.0
    delay: int = 0
    symmetric: bool = True
    lost_weight: LostWeight = "self"
    burst: Any = None
    mean_offline: Any = None
    computes: bool = False
    joins: Mapping[int, int] | None = None
    leaves: Mapping[int, int] | None = None
    arrived: Any = None
    online: Any = None

    def __post_init__(self) -> None:
        checks.whole("delay", self.delay, at_least=0)
        checks.choice("lost_weight", self.lost_weight, LOST_WEIGHTS)
        checks.instance("symmetric", self.symmetric, bool, "True")
        checks.instance("computes", self.computes, bool, "True")
        for name in ("joins", "leaves"):
            object.__setattr__(self, name, _steps(name, getattr(self, name)))
        for rate, length in (("drop", "burst"), ("offline", "mean_offline")):
            share = checks.real(rate, getattr(self, rate), at_least=0.0, below=1.0)
            object.__setattr__(self, rate, share)
            _check_length(rate, share, length, getattr(self, length))
        for name, rate, axes in (("arrived", "drop", 3), ("online", "offline", 2)):
            _check_mask(name, getattr(self, name), axes, rate, getattr(self, rate))

    def __repr__(self) -> str:
        given = [(field.name, getattr(self, field.name), field.default) for field in dataclasses.fields(self)]
        shown = [
            f"{name}={'...' if np.ndim(value) else value}"
            for name, value, usual in given
            if np.ndim(value) or checks.is_array(value) or value != usual
        ]
        return f"Faults({', '.join(shown)})"

    @property
    def loses(self) -> bool:
        """Whether a message may be lost; True if a probability is an array, whose value is not known."""
        return self.has_absences or self.arrived is not None or _is_above_zero(self.drop)

    @property
    def has_absences(self) -> bool:
        """Whether agents may be offline in some step."""
        away = self.online is not None or bool(self.joins) or bool(self.leaves)
        return away or _is_above_zero(self.offline)

    @property
    def is_one_way(self) -> bool:
        """Whether a link may fail in one direction alone."""
        if callable(self.arrived):
            return True
        if self.arrived is not None:
            return not np.array_equal(self.arrived, np.swapaxes(self.arrived, 1, 2))
        return _is_above_zero(self.drop) and not self.symmetric

    def check_agents(self, size: int) -> None:
        """Checks that masks, `joins` and `leaves` fit a number of agents."""
        for name in ("joins", "leaves"):
            for agent, step in (getattr(self, name) or {}).items():
                checks.whole(f"{name}: agent", agent, at_least=0, at_most=size - 1)
                checks.whole(f"{name}: step of agent {agent}", step, at_least=0)
        for name, shape in (("arrived", (size, size)), ("online", (size,))):
            mask = getattr(self, name)
            if mask is not None and not callable(mask) and np.shape(mask)[1:] != shape:
                letters = "[T, A, A]" if name == "arrived" else "[T, A]"
                raise ArgumentError(
                    f"{name} must be {letters} with A = {size} agents, got shape {np.shape(mask)}"
                )

    def init(self, occupied: np.ndarray, kinds: int, past: tuple[Tree, ...]) -> FaultState:
        """Returns the state before the first step; `past` has the shapes [A, ...] of the delayed rounds."""
        size, slots = occupied.shape

        def earlier(x: Any) -> Array:
            return jnp.zeros((size, self.delay, *x.shape[1:]), x.dtype)

        return FaultState(
            failing=jnp.zeros((size, slots), bool) if self.burst is not None else (),
            away=jnp.zeros(size, bool) if self.mean_offline is not None else (),
            arrivals=jnp.zeros((size, self.delay, slots), bool) if self.delay else (),
            past=jax.tree.map(earlier, past) if self.delay else (),
            sent=jnp.zeros((size, kinds), jnp.int32),
        )

    def draw(
        self, key: Key | None, t: Array, table: Table, state: FaultState, kind: int | None
    ) -> tuple[Conditions, FaultState]:
        """Draws the conditions of step t.

        Args:
          key: the step's key; None is enough for masks and delay alone.
          t: the number of the step, int32 [].
          table: the graph of the step.
          state: from the step before.
          kind: the position of the step's kind in `FaultState.sent`; None in a step without communication.
        """
        if key is None and self._draws:
            raise ArgumentError(f"key must be given to a step with {self!r}, which draws, got None")
        keys = (
            (None, None) if key is None else tuple(jax.random.fold_in(key, use) for use in (_LINKS, _AGENTS))
        )
        whole, failing = self._whole(keys[0], t, table, state.failing)
        online, away = self._online(keys[1], t, len(whole), state.away)
        both = online[:, None] & online[table.neighbours]
        delivered = (table.occupied & whole & both).at[:, 0].set(table.occupied[:, 0])
        state = state._replace(failing=failing, away=away)
        arrived = delivered
        if self.delay and kind is not None:
            coming, own = state.arrivals, table.occupied[:, :1]
            arrived = jnp.concatenate([own, (coming[:, 0] & online[:, None])[:, 1:]], axis=1)
            state = state._replace(arrivals=jnp.roll(coming, -1, axis=1).at[:, -1].set(delivered))
        if kind is not None:
            others = (table.occupied & both).at[:, 0].set(False)
            over = jnp.zeros(len(others), jnp.int32).at[table.neighbours].add(others.astype(jnp.int32))
            state = state._replace(sent=state.sent.at[:, kind].add(over))
        return Conditions(self, arrived, delivered, online, list(state.past)), state

    def abstract_conditions(self, table: Table) -> Conditions:
        """Returns the conditions of an abstract step: every message arrives."""
        return Conditions(self, table.occupied, table.occupied, jnp.ones(len(table.occupied), bool))

    @property
    def _draws(self) -> bool:
        functions = callable(self.arrived) or callable(self.online)
        return functions or _is_above_zero(self.drop) or _is_above_zero(self.offline)

    def _whole(self, key: Any, t: Array, table: Table, failing: Any) -> tuple[Array, Any]:
        """Returns which links work in this step, bool [A, K], and which are in a burst of losses."""
        neighbours = table.neighbours
        if callable(self.arrived):
            return jnp.asarray(self.arrived(key, t, neighbours)), failing
        own = jnp.arange(len(neighbours))[:, None]
        if self.arrived is not None:
            mask = jnp.asarray(self.arrived, bool)[t % len(self.arrived)]
            return mask[own, neighbours], failing
        if not _is_above_zero(self.drop):
            return jnp.ones(neighbours.shape, bool), failing
        ends = jnp.broadcast_arrays(own, neighbours)
        if self.symmetric:
            ends = [jnp.minimum(*ends), jnp.maximum(*ends)]
        drawn = jax.vmap(jax.vmap(lambda i, j: _uniform(key, i, j)))(*ends)
        failing_now = _next(drawn, t, failing, self.drop, self.burst)
        return ~failing_now, failing_now if self.burst is not None else failing

    def _online(self, key: Any, t: Array, size: int, away: Any) -> tuple[Array, Any]:
        """Returns which agents are online in this step, bool [A], and the state of those drawn at random."""
        agents = jnp.arange(size)
        online = jnp.ones(size, bool)
        if self.online is not None:
            masks = self.online
            given = masks(key, t) if callable(masks) else jnp.asarray(masks)[t % len(masks)]
            online = jnp.pad(jnp.asarray(given), (0, size - len(given)), constant_values=True)  # idle agents
        elif _is_above_zero(self.offline):
            away_now = _next(
                jax.vmap(lambda i: _uniform(key, i))(agents), t, away, self.offline, self.mean_offline
            )
            online, away = ~away_now, away_now if self.mean_offline is not None else away
        for steps, joining in ((self.joins, True), (self.leaves, False)):
            if steps:
                at = np.full(size, -1 if joining else np.iinfo(np.int32).max, np.int32)
                at[list(steps)] = list(steps.values())
                online &= t >= at if joining else t < at
        return online, away


def _uniform(key: Key, *numbers: Any) -> Array:
    """Draws a number uniformly from [0, 1); it depends on the key and these numbers alone."""
    for number in numbers:
        key = jax.random.fold_in(key, number)
    return jax.random.uniform(key)


def _next(drawn: Array, t: Array, bad: Any, share: Any, length: Any) -> Array:
    """Returns what is bad in this step: drawn independently, or the next state of a two-state Markov chain.

    The chain leaves the bad state with probability 1 / length and enters it such that it is bad in a `share`
    of all steps; it begins in its stationary distribution.
    """
    now: Array = drawn < share
    if length is None:
        return now
    leaves, enters = 1.0 / length, share / ((1.0 - share) * length)
    return jnp.where(t == 0, now, jnp.where(bad, drawn >= leaves, drawn < enters))


def _steps(name: str, steps: Any) -> dict[int, int] | None:
    """Returns {agent: step}, which may also be a list of pairs [agent, step]."""
    if steps is None:
        return None
    try:
        pairs = list(steps.items() if isinstance(steps, Mapping) else steps)
        found = dict(pairs)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{name} must be {{agent: step}}, or pairs such as [[3, 100], [7, 250]], got {steps!r}"
        ) from None
    if len(found) < len(pairs):
        raise ArgumentError(f"{name} must name each agent once, got {steps!r}")
    return found


def _is_above_zero(rate: Any) -> bool:
    return checks.is_array(rate) or rate > 0


def _check_length(rate: str, share: Any, name: str, length: Any) -> None:
    """Checks the mean length of a bad state: the probability of entering it must be at most one."""
    if length is None:
        return
    least = 1.0
    if not checks.is_array(share):
        least = max(least, share / (1.0 - share))
    checks.real(f"{name}, the mean number of steps at {rate} = {share},", length, at_least=least)


def _check_mask(name: str, mask: Any, axes: int, rate: str, share: Any) -> None:
    is_mask = mask is not None and not callable(mask)
    if is_mask and (np.ndim(mask) != axes or np.asarray(mask).dtype != bool or not len(mask)):
        letters = "[T, A, A]" if axes == 3 else "[T, A]"
        raise ArgumentError(
            f"{name} must be masks bool {letters} or a function, got "
            f"{np.asarray(mask).dtype} {list(np.shape(mask))}"
        )
    if mask is not None and _is_above_zero(share):
        raise ArgumentError(f"{rate} must be 0 beside {name}, which says what is lost, got {share}")


# ---- how long a run would take on a real network ----


class Clock(NamedTuple):
    """The agents' clocks: the latest one, and how much earlier each agent was ready."""

    seconds: Array  # float32 []: of the latest
    rounding: Array  # float32 []: what `seconds` lost to rounding, by Kahan's summation
    behind: Array  # float32 [A]: how much earlier each agent was ready


@dataclasses.dataclass(frozen=True, eq=False)
class Timing:
    """How long computing and sending take: `dataclasses.replace(method, timing=sj.Timing(latency=0.01))`.

    Attributes:
      latency: seconds until the first bit arrives: a number, or one for each link [A, A], from j to i.
      bandwidth: bits per second of a link: a number, or one for each link [A, A]. Links do not share it.
      compute: seconds of one backward pass over a batch: a number, one for each agent [A], or as measured
        [T, A], which repeats after T steps.
      compute_sigma: sigma >= 0 of log-normal factors with mean one, drawn for each agent and step; 0: none.

    >>> sj.Timing(latency=0.01, bandwidth=1e8)
    Timing(latency=0.01, bandwidth=100000000.0, compute=0.0, compute_sigma=0.0)
    """

    latency: Any = 0.0
    bandwidth: Any = math.inf
    compute: Any = 0.0
    compute_sigma: Any = 0.0

    def __post_init__(self) -> None:
        for name, axes in (("latency", (0, 2)), ("bandwidth", (0, 2)), ("compute", (0, 1, 2))):
            self._check(name, axes)
        checks.real("compute_sigma", self.compute_sigma, at_least=0.0)

    def _check(self, name: str, axes: tuple[int, ...]) -> None:
        try:
            numbers = np.asarray(getattr(self, name), np.float64)
        except (TypeError, ValueError):
            numbers = np.array(math.nan)
        wrong = numbers <= 0 if name == "bandwidth" else (numbers < 0) | np.isinf(numbers)
        if numbers.ndim not in axes or not numbers.size or np.isnan(numbers).any() or wrong.any():
            least = "above 0 bits per second" if name == "bandwidth" else "seconds >= 0"
            shapes = {0: "a number", 1: "[A]", 2: "[T, A]" if name == "compute" else "[A, A]"}
            raise ArgumentError(
                f"{name} must be {' or '.join(shapes[ndim] for ndim in axes)}, {least}, "
                f"got {getattr(self, name)!r}"
            )

    def check_agents(self, size: int) -> None:
        """Checks that arrays of times fit a number of agents."""
        for name in ("latency", "bandwidth", "compute"):
            shape = np.shape(getattr(self, name))
            agents = shape[-1:] if name == "compute" else shape
            if any(length != size for length in agents):
                raise ArgumentError(f"{name} must be of {size} agents, got shape {shape}")

    def init(self, size: int) -> Clock:
        """Returns the clocks [A] before the first step."""
        return Clock(jnp.float32(0), jnp.float32(0), jnp.zeros(size, jnp.float32))

    def advance(self, key: Key | None, t: Array, network: Network, passes: Array, clock: Clock) -> Clock:
        """Returns the clocks after step t.

        Args:
          key: the step's key; only compute_sigma needs one.
          t: the number of the step, int32 [].
          network: the network of the step, with its recorded rounds.
          passes: backward passes that each agent took, float32 [A].
          clock: from the step before.
        """
        table, size = network.table, network.topology.size
        present = jnp.asarray(network.topology.present)
        online = present if network.conditions is None else present & network.conditions.online
        computes = online if network.faults is None or not network.faults.computes else present
        # All times here are relative to the latest clock of the step before.
        ready = -clock.behind + jnp.where(computes, passes * self._seconds(key, t, size), 0)
        waits = (table.occupied & online[:, None] & online[table.neighbours]).at[:, 0].set(False)
        latency, pace = self._of_links(network)
        for each in network.rounds:
            bits = 8 * each.wire_bytes
            if each.everyone:
                count = int(network.topology.present.sum())
                turn = jnp.max(jnp.where(waits, latency + bits / count * pace, 0))
                ready = jnp.full(
                    size, jnp.max(ready, where=present, initial=-jnp.inf) + 2 * (count - 1) * turn
                )
            elif bits:
                arrival = network.clocks(ready) + latency + bits * pace
                ready = jnp.maximum(ready, jnp.max(jnp.where(waits, arrival, -jnp.inf), axis=1))
        latest = jnp.maximum(jnp.max(ready, where=online, initial=-jnp.inf), 0)
        # Agents that are offline or idle are not waited for; they start with the others when they return.
        behind = jnp.where(online, latest - ready, 0)
        passed = latest - clock.rounding
        seconds = clock.seconds + passed
        return Clock(seconds, (seconds - clock.seconds) - passed, behind)

    def _seconds(self, key: Key | None, t: Array, size: int) -> Array:
        """Returns the seconds of a backward pass of each agent in this step, float32 [A]."""
        numbers = np.asarray(self.compute, np.float32)
        if numbers.ndim:
            idle = [(0, 0)] * (numbers.ndim - 1) + [(0, size - numbers.shape[-1])]
            numbers = np.pad(numbers, idle)
        seconds = jnp.asarray(numbers)[t % len(numbers)] if numbers.ndim == 2 else jnp.asarray(numbers)
        seconds = jnp.broadcast_to(seconds, (size,))
        if not checks.is_array(self.compute_sigma) and self.compute_sigma == 0:
            return seconds
        if key is None:
            raise ArgumentError(f"key must be given to a step with {self!r}, whose agents straggle, got None")
        sigma = self.compute_sigma
        drawn = jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i)))(jnp.arange(size))
        return seconds * jnp.exp(sigma * drawn - sigma**2 / 2)

    def _of_links(self, network: Network) -> tuple[Array, Array]:
        """Returns the latency and the seconds per bit of each agent's k-th link, float32 [A, K] or []."""
        neighbours = network.table.neighbours
        own = jnp.arange(len(neighbours))[:, None]

        def at_links(matrix: np.ndarray) -> Array:
            numbers = jnp.asarray(matrix, jnp.float32)
            return numbers[own, neighbours] if numbers.ndim else numbers

        return at_links(np.asarray(self.latency)), at_links(1 / np.asarray(self.bandwidth, np.float64))
