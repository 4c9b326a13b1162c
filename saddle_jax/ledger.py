"""What agents send: exact bytes, as Python integers, from shapes alone."""

import dataclasses
import math
from typing import Any

import jax

from saddle_jax.methods.method import Method
from saddle_jax.types import Params


@dataclasses.dataclass(frozen=True)
class Ledger:
    """What one step of a run costs.

    Attributes:
      wire_bytes: per agent [A], the real encodings: norms, scales, signs and indices included.
      paper_bits: per agent [A], as the paper's tables count.
    """

    wire_bytes: tuple[int, ...]
    paper_bits: tuple[int, ...]

    def wire_bytes_per_agent(self, steps: int) -> int:
        """Bytes that an agent has sent after `steps` steps; the average where degrees differ."""
        return steps * sum(self.wire_bytes) // len(self.wire_bytes)

    def paper_bytes_per_agent(self, steps: int) -> int:
        """The same in the paper's accounting."""
        return steps * sum(self.paper_bits) // (8 * len(self.paper_bits))


def open_ledger(method: Method, params: Params) -> Ledger:
    """The ledger of a method for stacked parameters (or their shapes) [A, ...]."""
    shapes = [leaf.shape[1:] for leaf in jax.tree.leaves(params)]
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(params)]
    wire = sum(
        message.bits(shape, dtype) // 8
        for message in method.rounds
        for shape, dtype in zip(shapes, dtypes, strict=True)
    )
    paper = sum(message.paper_bits(shape) for message in method.rounds for shape in shapes)
    graph = method.topology
    listeners = [int(count) for count in graph.out_degree[graph.present]]
    return Ledger(tuple(n * wire for n in listeners), tuple(n * paper for n in listeners))


def readable(count: float) -> str:
    """Bytes for people: 1,234,567 becomes "1.23 MB"."""
    if count < 1000:
        return f"{count:.0f} B"
    power = min(4, int(math.log10(count) // 3))
    return f"{count / 1000**power:.2f} {' kMGT'[power]}B"


def table(ledger: Ledger, steps: int) -> dict[str, Any]:
    """The two totals under the names that result.json uses."""
    return {
        "bytes_sent_per_agent": ledger.wire_bytes_per_agent(steps),
        "paper_bytes_sent_per_agent": ledger.paper_bytes_per_agent(steps),
    }
