"""Communication cost: the exact bytes that agents send, as Python integers, from one abstract trace."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from saddle_jax.base.types import Params
from saddle_jax.core.method import Method, Trace
from saddle_jax.core.network import Round
from saddle_jax.core.rule import Rule


class Sent(NamedTuple):
    """What agents send in a step of one kind: bytes, or bits as the paper's tables count them."""

    link: int  # over each link
    everyone: int = 0  # from each agent, where all agents take an exact average

    def of_agents(self, out_degrees: np.ndarray) -> tuple[int, ...]:
        """Returns what each agent sends [A], given its out-degree, int [A]."""
        return tuple(int(count) * self.link + self.everyone for count in out_degrees)


@dataclasses.dataclass(frozen=True)
class CommCost:
    """The bytes that the steps of a run send; made by `sj.comm_cost`.

    >>> sj.comm_cost(sj.dpsgd(sj.ring(10), 0.1, compressor=sj.sign()), jnp.zeros((10, 1000))).link_bytes
    129

    Attributes:
      rule: the method's rule, which defines the kind of each step.
      wire: by kind, exact bytes, with norms, scales, signs and indices.
      paper: by kind, bits as the paper's tables count them.
      out_degrees: the out-degree of each agent in each of the topology's P graphs, int [P, A].
    """

    rule: Rule[Any]
    wire: dict[int, Sent]
    paper: dict[int, Sent]
    out_degrees: np.ndarray[tuple[int, int], np.dtype[np.int64]]

    @property
    def link_bytes(self) -> int:
        """The bytes sent over one link in a step, the maximum over the kinds of steps."""
        return max(sent.link for sent in self.wire.values())

    @property
    def wire_bytes(self) -> tuple[int, ...]:
        """The bytes that each agent sends in the first step that communicates [A]."""
        return self._of_step(self.wire, self._first)

    @property
    def paper_bits(self) -> tuple[int, ...]:
        """The bits that each agent sends in that step [A], as the paper counts them."""
        return self._of_step(self.paper, self._first)

    def wire_bytes_per_agent(self, steps: int) -> int:
        """Returns the bytes sent per agent in `steps` steps, the mean over the agents."""
        return self._total(self.wire, steps) // self.out_degrees.shape[1]

    def paper_bytes_per_agent(self, steps: int) -> int:
        """Returns the same as `wire_bytes_per_agent`, as the paper counts it."""
        return self._total(self.paper, steps) // (8 * self.out_degrees.shape[1])

    def bytes_of(self, links: Any) -> int:
        """Returns the mean bytes sent per agent, given how many links each has used, int [A, comm_kinds].

        A network on which agents come and go counts the links that were used, see `FaultState.sent`.
        """
        return self._counted(self.wire, links) // self.out_degrees.shape[1]

    def paper_bytes_of(self, links: Any) -> int:
        """Returns the same as `bytes_of`, as the paper counts it."""
        return self._counted(self.paper, links) // (8 * self.out_degrees.shape[1])

    def _counted(self, sent: dict[int, Sent], links: Any) -> int:
        counted: list[int] = np.asarray(links, np.int64)[: self.out_degrees.shape[1]].sum(axis=0).tolist()
        kinds = [sent[kind] for kind in self.rule.comm_kinds]
        return sum(count * kind.link for count, kind in zip(counted, kinds, strict=True))

    @property
    def _first(self) -> int:
        steps = range(len(self.rule.first_kinds) + len(self.rule.kinds))
        return next((t for t in steps if self.rule.kind(t) not in self.rule.local_kinds), 0)

    def _of_step(self, sent: dict[int, Sent], t: int) -> tuple[int, ...]:
        turn = self.rule.comm_round(t) % len(self.out_degrees)
        return sent[self.rule.kind(t)].of_agents(self.out_degrees[turn])

    def _total(self, sent: dict[int, Sent], steps: int) -> int:
        """Returns the sum over all agents of what they send in `steps` steps."""
        start = len(self.rule.first_kinds)
        length = len(self.rule.kinds) * len(self.out_degrees)  # after which kinds and graphs repeat
        first = sum(sum(self._of_step(sent, t)) for t in range(min(steps, start)))
        if steps <= start:
            return first
        period = self._period(sent, start, length)
        periods, rest = divmod(steps - start, length)
        return first + periods * sum(period) + sum(period[:rest])

    def _period(self, sent: dict[int, Sent], start: int, length: int) -> list[int]:
        remembered: dict[int, list[int]] = self.__dict__.setdefault("_periods", {})
        if id(sent) not in remembered:
            remembered[id(sent)] = [sum(self._of_step(sent, start + step)) for step in range(length)]
        return remembered[id(sent)]


def comm_cost(method: Method, params: Params) -> CommCost:
    """Counts what a method sends, for stacked parameters (or their shapes) [A, ...].

    >>> sj.comm_cost(sj.qgm(sj.ring(10), 0.1), jnp.zeros((10, 1000))).wire_bytes_per_agent(steps=5)
    40000
    """
    traces = dict(zip(method.rule.all_kinds, method.trace(params), strict=True))
    agents = method.topology.size - method.topology.idle

    def sent(trace: Trace, size: Callable[[Round], int]) -> Sent:
        # A ring all-reduce: each agent sends 2 (A - 1) pieces, each an A-th of what is averaged.
        everyone = [2 * (agents - 1) * size(each) // agents for each in trace.rounds if each.everyone]
        return Sent(sum(size(each) for each in trace.rounds if not each.everyone), sum(everyone))

    return CommCost(
        rule=method.rule,
        wire={kind: sent(trace, lambda each: each.wire_bytes) for kind, trace in traces.items()},
        paper={kind: sent(trace, lambda each: each.paper_bits) for kind, trace in traces.items()},
        out_degrees=np.stack([graph.out_degree[graph.present] for graph in method.topology.graphs]),
    )


def passes_per_step(method: Method, params: Params) -> float:
    """Returns the backward passes per agent and step, each over one batch: the mean over agents and kinds."""
    graphs = method.topology.graphs
    pairs = float(np.mean([1 + graph.degree[graph.present] for graph in graphs]))
    traces = dict(zip(method.rule.all_kinds, method.trace(params), strict=True))
    calls = [
        sum(1 if scope == "own" else pairs for scope in traces[kind].calls) for kind in method.rule.kinds
    ]
    return method.gradient.passes_per_step * float(np.mean(calls))


def readable(count: float) -> str:
    """Formats a number of bytes: 1,234,567 becomes "1.23 MB"."""
    if count < 1000:
        return f"{count:.0f} B"
    power = min(4, int(math.log10(count) // 3))
    return f"{count / 1000**power:.2f} {' kMGT'[power]}B"


def table(cost: CommCost, steps: int, links: Any = None) -> dict[str, Any]:
    """Returns both totals as result.json names them: of `steps` steps, or of `links` if they were counted."""
    if links is not None:
        return {
            "bytes_sent_per_agent": cost.bytes_of(links),
            "paper_bytes_sent_per_agent": cost.paper_bytes_of(links),
        }
    return {
        "bytes_sent_per_agent": cost.wire_bytes_per_agent(steps),
        "paper_bytes_sent_per_agent": cost.paper_bytes_per_agent(steps),
    }
