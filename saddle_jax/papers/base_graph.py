"""The Base-(k+1) graph (Takezawa et al., NeurIPS 2023): an exact average after finitely many graphs.

For n = 25 agents with at most k neighbours each, the product of the first matrices of the sequence is
J = 1/n 1 1^T. The paper's Table 1 says which graphs have this property at all.
"""

import numpy as np

from saddle_jax.core.topology import TimeVarying
from saddle_jax.graphs.base_graph import base_graph
from saddle_jax.graphs.time_varying import one_peer_exponential
from saddle_jax.papers.common import Compared, Reproduction, to_digits

AGENTS = 25
PRINTED = {1: 9, 2: 6, 3: 5, 4: 2}  # number of graphs by k
_ROUNDING = 1e-12


def graphs_to_average(graphs: TimeVarying) -> float:
    """Returns the number of graphs whose product is J up to rounding errors; infinity if no period's is."""
    product = np.eye(graphs.size)
    for number, graph in enumerate(graphs.graphs, start=1):
        product = graph.mixing @ product
        if np.abs(product - 1 / graphs.size).max() < _ROUNDING:
            return number
    return np.inf


def results() -> list[Compared]:
    """Multiplies the matrices of all four graphs, and of one without the property."""
    rows = [
        to_digits(f"Base-{k + 1} graph", str(printed), graphs_to_average(base_graph(AGENTS, k)))
        for k, printed in PRINTED.items()
    ]
    found = graphs_to_average(one_peer_exponential(AGENTS))
    ours = "never" if np.isinf(found) else str(found)
    return [*rows, Compared("1-peer exponential graph, n not a power of 2", "never", ours, ours == "never")]


REPRODUCTION = Reproduction(
    "number of graphs after which 25 agents hold the exact average",
    "Takezawa et al., NeurIPS 2023, Algorithm 3 and Table 1 (base_graph.py)",
    results,
)
