"""How long a run would take on a real network: every agent has a clock.

In a step an agent computes its gradients; then it goes through the step's rounds, one after the other. In a
round it sends over all of its links at once and waits for its neighbours:

    T_i  <-  T_i + c_i (gradients it takes)                               it computes
    T_i  <-  max(T_i, max_j T_j + latency_ij + bits / bandwidth_ij)       each round; j are its neighbours

Nobody waits for an agent that is away; a message that is lost is waited for as if it came. An exact average
of all agents takes 2 (A - 1) turns of a ring, at the pace of its slowest link, and begins when the last is
there. The time of the run is that of the latest clock.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Key
from saddle_jax.core.network import Network


class Clock(NamedTuple):
    """The agents' clocks: how long the run has taken, and how far each agent is behind the latest."""

    seconds: Array  # float32 []: of the latest
    rounding: Array  # float32 []: what `seconds` lost to rounding, by Kahan's summation
    behind: Array  # float32 [A]: how much earlier each agent was ready


@dataclasses.dataclass(frozen=True, eq=False)
class Timing:
    """Timing says how long things take: `dataclasses.replace(method, timing=sj.Timing(latency=0.01))`.

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
        """Checks that what is said of single agents and links is said of those that there are."""
        for name in ("latency", "bandwidth", "compute"):
            shape = np.shape(getattr(self, name))
            agents = shape[-1:] if name == "compute" else shape
            if any(length != size for length in agents):
                raise ArgumentError(f"{name} must be of {size} agents, got shape {shape}")

    def init(self, size: int) -> Clock:
        """Makes the clocks [A] before the first step."""
        return Clock(jnp.float32(0), jnp.float32(0), jnp.zeros(size, jnp.float32))

    def advance(self, key: Key | None, t: Array, network: Network, passes: Array, clock: Clock) -> Clock:
        """Returns the clocks after step t.

        Args:
          key: the step's key; only compute_sigma needs one.
          t: the number of the step, int32 [].
          network: the step's, with its rounds.
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
        # Whoever is away or idle is not waited for, and begins with the others when it returns.
        behind = jnp.where(online, latest - ready, 0)
        passed = latest - clock.rounding
        seconds = clock.seconds + passed
        return Clock(seconds, (seconds - clock.seconds) - passed, behind)

    def _seconds(self, key: Key | None, t: Array, size: int) -> Array:
        """Returns what a backward pass takes each agent in this step, float32 [A]."""
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
        """Returns latency and seconds per bit of each agent's k-th link, float32 [A, K] or []."""
        neighbours = network.table.neighbours
        own = jnp.arange(len(neighbours))[:, None]

        def at_links(matrix: np.ndarray) -> Array:
            numbers = jnp.asarray(matrix, jnp.float32)
            return numbers[own, neighbours] if numbers.ndim else numbers

        return at_links(np.asarray(self.latency)), at_links(1 / np.asarray(self.bandwidth, np.float64))
