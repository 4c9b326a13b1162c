"""What agents send: exact bytes, as Python integers, from one abstract trace of a step."""

import dataclasses
import math
from typing import Any

import numpy as np

from saddle_jax.base.types import Params
from saddle_jax.core.method import Method


@dataclasses.dataclass(frozen=True)
class Ledger:
    """A ledger knows what the steps of a run send.

    Attributes:
      link_bytes: bytes over one link in one step, with norms, scales, signs and indices.
      link_paper_bits: bits over one link in one step, as the paper's tables count.
      listeners: how many hear each agent in each step of the topology's period, int [P, A].
    """

    link_bytes: int
    link_paper_bits: int
    listeners: np.ndarray[tuple[int, int], np.dtype[np.int64]]

    @property
    def wire_bytes(self) -> tuple[int, ...]:
        """The bytes that each agent sends in the first step [A]."""
        return tuple(int(count) * self.link_bytes for count in self.listeners[0])

    @property
    def paper_bits(self) -> tuple[int, ...]:
        """The bits that each agent sends in the first step [A], as the paper counts."""
        return tuple(int(count) * self.link_paper_bits for count in self.listeners[0])

    def wire_bytes_per_agent(self, steps: int) -> int:
        """Returns the bytes that an agent has sent after `steps` steps; the average where degrees differ."""
        return self._messages(steps) * self.link_bytes // self.listeners.shape[1]

    def paper_bytes_per_agent(self, steps: int) -> int:
        """Returns the bytes that an agent has sent after `steps` steps, as the paper counts."""
        return self._messages(steps) * self.link_paper_bits // (8 * self.listeners.shape[1])

    def _messages(self, steps: int) -> int:
        """Counts the messages that all agents together have sent in each round after `steps` steps."""
        per_step = [int(count) for count in self.listeners.sum(axis=1)]
        periods, rest = divmod(steps, len(per_step))
        return periods * sum(per_step) + sum(per_step[:rest])


def open_ledger(method: Method, params: Params) -> Ledger:
    """Makes the ledger of a method for stacked parameters (or their shapes) [A, ...]."""
    rounds = method.trace(params).rounds
    graphs = method.topology.graphs
    return Ledger(
        link_bytes=sum(each.wire_bytes for each in rounds),
        link_paper_bits=sum(each.paper_bits for each in rounds),
        listeners=np.stack([graph.out_degree[graph.present] for graph in graphs]),
    )


def passes_per_step(method: Method, params: Params) -> float:
    """Counts the backward passes of an agent in a step, each over one batch: the mean over agents, phases."""
    graphs = method.topology.graphs
    pairs = float(np.mean([1 + graph.degree[graph.present] for graph in graphs]))
    asked = method.trace(params).asked
    return method.ascent.passes_per_step * sum(1 if kind == "own" else pairs for kind in asked)


def readable(count: float) -> str:
    """Writes a number of bytes for people: 1,234,567 becomes "1.23 MB"."""
    if count < 1000:
        return f"{count:.0f} B"
    power = min(4, int(math.log10(count) // 3))
    return f"{count / 1000**power:.2f} {' kMGT'[power]}B"


def table(ledger: Ledger, steps: int) -> dict[str, Any]:
    """Returns both totals after `steps` steps under the names that result.json uses."""
    return {
        "bytes_sent_per_agent": ledger.wire_bytes_per_agent(steps),
        "paper_bytes_sent_per_agent": ledger.paper_bytes_per_agent(steps),
    }
