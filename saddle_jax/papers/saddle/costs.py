"""The paper's communication costs: derivations of all 39 printed numbers, beside the exact costs.

The paper counts bits per number only (no norms, scales, signs; 16-bit indices), in gigabytes sent per
agent over its two neighbours in a ring, and truncates to two decimals. Its numbers follow from:

    QGM               T - 1 iterations: the counter of that line of code lags one step
    QGM, b bits       the printed number above it, times b / 32
    QGM, top-30 %     T - 1 iterations of 6 bytes per kept entry, k floored per tensor
    NGM               T iterations of two rounds, and one more scalar with every model
    NGM, 1 bit        the printed number above it, divided by the rounded 1.94
"""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from saddle_jax import models
from saddle_jax.base.types import Params
from saddle_jax.compression import COMPRESSORS
from saddle_jax.core.comm_cost import CommCost, comm_cost, passes_per_step
from saddle_jax.core.trees import replicate
from saddle_jax.graphs.named import ring
from saddle_jax.methods import METHODS
from saddle_jax.papers.saddle.printed import SETTINGS
from saddle_jax.planning.forecast import stand_in

# The printed reduction for 1 bit in the second of two rounds: 64 / 33, rounded.
_NGM_RATIO = 1.94

# table: (method, compressor, dataset) -> printed gigabytes by number of agents. Tables have the numbers of
# those of the main text whose costs they list; "top-k" is in the appendix.
PRINTED: dict[str, dict[tuple[str, str, str], dict[int, float]]] = {
    "1": {
        ("qgm", "none", "cifar10"): {5: 136.45, 10: 68.44, 20: 34.43, 40: 17.43},
        ("qgm", "quantize(8)", "cifar10"): {5: 34.11, 10: 17.11, 20: 8.60, 40: 4.35},
        ("qgm", "none", "cifar100"): {5: 111.32, 10: 55.66, 20: 27.83, 40: 14.02},
        ("qgm", "quantize(8)", "cifar100"): {5: 27.83, 10: 13.91, 20: 6.95, 40: 3.50},
    },
    "2": {
        ("qgm", "none", "imagenette"): {5: 110.23, 10: 55.10},
        ("qgm", "quantize(10)", "imagenette"): {5: 34.44, 10: 17.21},
    },
    "3": {
        ("ngm", "none", "cifar10"): {5: 272.91, 10: 136.89, 20: 68.88},
        ("ngm", "sign", "cifar10"): {5: 140.67, 10: 70.56, 20: 35.50},
        ("ngm", "none", "cifar100"): {5: 222.65, 10: 111.32, 20: 55.66},
        ("ngm", "sign", "cifar100"): {5: 114.76, 10: 57.38, 20: 28.69},
    },
    "4": {
        ("ngm", "none", "imagenette"): {10: 110.25},
        ("ngm", "sign", "imagenette"): {10: 56.82},
        ("ngm", "none", "imagenet"): {10: 22466.30},
        ("ngm", "sign", "imagenet"): {10: 11580.56},
    },
    "top-k": {("qgm", "top_k(0.3)", "cifar10"): {5: 61.38, 10: 30.78, 20: 15.49}},
}


@dataclasses.dataclass(frozen=True)
class Cost:
    """One printed cost. The SADDLe version of a method costs the same as the method."""

    table: str
    agents: int
    dataset: str
    method: str
    compressor: str
    paper_gb: float  # printed
    derived_gb: float  # by the paper's accounting, truncated as printed
    wire_gb: float  # of our encodings in all T steps


def costs(table: str | None = None) -> Iterator[Cost]:
    """Yields all costs, or those of one table."""
    for name, rows in PRINTED.items():
        if table not in (None, name):
            continue
        for (method, compressor, dataset), by_agents in rows.items():
            for agents, printed in by_agents.items():
                wire = cost_of(method, compressor, dataset, agents).wire_bytes_per_agent(
                    SETTINGS[dataset].steps(agents)
                )
                derived = derive(method, compressor, dataset, agents)
                yield Cost(name, agents, dataset, method, compressor, printed, derived, round(wire / 1e9, 4))


class Ratio(NamedTuple):
    """A reduction in cost: as stated in the paper, from its printed costs, and exact."""

    place: str
    what: str
    stated: str
    printed: float  # of the printed costs
    exact: float  # of the bytes sent or the gradients computed


# The reduction by each compressor in the captions.
_STATED = {"quantize(8)": "4", "quantize(10)": "3.2", "top_k(0.3)": "2.2", "sign": "1.94"}


def ratios() -> Iterator[Ratio]:
    """Yields the reductions stated in captions and text, at ten agents, with the derived ones."""
    agents = 10
    for table, rows in PRINTED.items():
        for (method, compressor, dataset), by_agents in rows.items():
            if compressor == "none":
                continue
            full = PRINTED["1" if table == "top-k" else table][method, "none", dataset][agents]
            exact = _bytes(method, "none", dataset) / _bytes(method, compressor, dataset)
            what = f"{dataset}, {compressor}"
            yield Ratio(f"costs of {table}", what, _STATED[compressor], full / by_agents[agents], exact)
    whole, signs = _bytes("ngm", "none", "cifar10"), _bytes("ngm", "sign", "cifar10")
    second = (whole / 2) / (signs - whole / 2)  # the first of two rounds is not compressed
    yield Ratio("costs of 3", "cifar10, sign, second round", "32", 32.0, second)
    climbing = [_passes(every) for every in (1, 5)]
    yield Ratio(
        "Table 6", "gradients of the efficient variant", "1.66", 2 * 5 / (5 + 1), climbing[0] / climbing[1]
    )


def ratio_rows() -> list[list[str]]:
    """Returns the table of reductions: stated, from the printed costs, and exact."""
    rows = [["place", "what", "stated", "as printed", "exactly"]]
    for ratio in ratios():
        row = [ratio.place, ratio.what, f"{ratio.stated}x", f"{ratio.printed:.2f}x", f"{ratio.exact:.2f}x"]
        rows.append(row)
    return rows


def _bytes(method: str, compressor: str, dataset: str) -> int:
    return cost_of(method, compressor, dataset, 10).wire_bytes_per_agent(1)


def _passes(every: int) -> float:
    """Returns the mean number of gradients per step of Q-SADDLe with an ascent in every k-th step."""
    method = METHODS["q_saddle"](ring(5), 0.1, rho=0.1, ascent_every=every)
    return passes_per_step(method, jax.ShapeDtypeStruct((5, 3), np.float32))


def derive(method: str, compressor: str, dataset: str, agents: int) -> float:
    """Derives a cost in gigabytes by the paper's accounting."""
    steps = SETTINGS[dataset].steps(agents)
    if compressor.startswith("quantize"):
        bits = COMPRESSORS.given(compressor)["bits"]
        return _truncated(derive(method, "none", dataset, agents) * bits / 32)
    if compressor == "sign":
        return _truncated(derive(method, "none", dataset, agents) / _NGM_RATIO)
    cost = cost_of(method, compressor, dataset, agents)
    if method == "ngm":
        scalar = 2 * 4  # to two neighbours, four bytes
        return _truncated((cost.paper_bytes_per_agent(steps) + steps * scalar) / 1e9)
    return _truncated(cost.paper_bytes_per_agent(steps - 1) / 1e9)


def cost_of(method: str, compressor: str, dataset: str, agents: int) -> CommCost:
    """Returns the communication cost of a training run."""
    # The cost of a link does not depend on the number of agents, so it is traced once.
    return dataclasses.replace(
        _cost_of_five(method, compressor, dataset), out_degrees=np.full((1, agents), 2)
    )


@functools.cache
def _cost_of_five(method: str, compressor: str, dataset: str) -> CommCost:
    """Returns the communication cost on a ring of five agents, the smallest of the paper."""
    named = None if compressor == "none" else COMPRESSORS.make(compressor)
    chosen = METHODS[method](ring(5), SETTINGS[dataset].learning_rate, compressor=named)
    return comm_cost(chosen, shapes_of(dataset))


@functools.cache
def shapes_of(dataset: str) -> Params:
    """Returns the shapes of five agents' models [5, ...]."""
    data = stand_in(dataset)
    model = models.build(SETTINGS[dataset].model, data.num_outputs)
    shapes: Params = jax.eval_shape(
        lambda: replicate(models.init(model, data.input_shape, jax.random.key(0)), 5)
    )
    return shapes


def _truncated(value: float) -> float:
    """Truncates to two decimals; a tiny offset keeps 34.43 from becoming 34.42 by rounding errors."""
    return math.floor(value * 100 + 1e-7) / 100
