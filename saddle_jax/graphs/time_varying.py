"""Graphs that change from step to step, so that an agent talks to one other at a time."""

import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.topology import TimeVarying, Topology, alternate, are_connected
from saddle_jax.graphs.weights import MAX_PERIOD, draw_until, with_self_weights


def one_peer_exponential(n: int) -> TimeVarying:
    """Agent i receives from i - 1, then i - 2, then i - 4, ... (mod n), one per step, with weight 1/2.

    Ying et al., "Exponential graph is provably efficient for decentralized deep training", NeurIPS 2021. It
    is also the graph of Assran et al., "Stochastic gradient push", ICML 2019. With the period
    p = ceil(log2 n),

        W_t[i, i] = W_t[i, i - 2^(t mod p)] = 1/2.

    Each W_t is doubly stochastic. Their product over a period is an exact average if and only if n is a power
    of two: every distance is then the sum of a unique subset of 1, 2, 4, ...

    >>> sj.one_peer_exponential(8)
    one_peer_exponential(8): 8 agents, period 3, 3 x 8 directed links, spectral gap 1.0000 per step
    """
    n = checks.whole("n", n, at_least=2)
    name, agents, half = f"one_peer_exponential({n})", np.arange(n), np.full(n, 0.5)

    def turn(t: int) -> Topology:
        links = with_self_weights(n, agents, (agents - 2**t) % n, half)
        return Topology(f"{name}[{t}]", n, lambda: links)

    return alternate(*map(turn, range((n - 1).bit_length())), name=name)


def random_matchings(n: int, count: int, seed: int = 0) -> TimeVarying:
    """Cycles through `count` random perfect matchings, drawn until their union is connected.

    Boyd et al., "Randomized gossip algorithms", 2006, as in asynchronous gossip (AD-PSGD). Each step divides
    a random permutation of the agents into pairs, which average, W[i, i] = W[i, j] = 1/2. If the number of
    agents is odd the last one is alone, W[i, i] = 1, so that W is doubly stochastic.

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
