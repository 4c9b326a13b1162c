"""Random matchings: in every step agents average in pairs, as in asynchronous gossip (AD-PSGD).

Boyd et al., "Randomized gossip algorithms", 2006. Each step divides a random permutation of the agents into
pairs, which average, W[i, i] = W[i, j] = 1/2. If the number of agents is odd the last one is alone,
W[i, i] = 1, so that W is doubly stochastic.
"""

import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.topology import TimeVarying, Topology, alternate, are_connected
from saddle_jax.graphs.weights import MAX_PERIOD, draw_until, with_self_weights


def random_matchings(n: int, count: int, seed: int = 0) -> TimeVarying:
    """Cycles through `count` random perfect matchings, drawn until their union is connected.

    >>> sj.random_matchings(8, 4)
    random_matchings(8, 4, seed=0): 8 agents, period 4, 4 x 8 directed links, spectral gap ... per step
    """
    n = checks.whole("n", n, at_least=2)
    count = checks.whole("count", count, at_least=1, at_most=MAX_PERIOD)
    if count == 1 and n > 2:
        raise ArgumentError(f"count must be at least 2 to connect {n} agents, got 1")
    name = f"random_matchings({n}, {count}, seed={seed})"

    def draw(random: np.random.RandomState) -> list[Topology]:
        return [_matching(f"{name}[{t}]", random.permutation(n)) for t in range(count)]

    turns = draw_until(
        name, seed, draw, lambda turns: are_connected(*turns), "matchings that connect the agents"
    )
    return alternate(*turns, name=name)


def _matching(name: str, order: np.ndarray) -> Topology:
    pairs = order[: len(order) // 2 * 2].reshape(-1, 2)
    receiver, sender = np.r_[pairs[:, 0], pairs[:, 1]], np.r_[pairs[:, 1], pairs[:, 0]]
    links = with_self_weights(len(order), receiver, sender, np.full(len(receiver), 0.5))
    return Topology(name, len(order), lambda: links)
