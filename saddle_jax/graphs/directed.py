"""Directed graphs with push-sum weights: an agent divides its mass among its out-neighbours and itself.

Kempe et al., "Gossip-based computation of aggregate information", 2003; Assran et al., "Stochastic gradient
push", ICML 2019. With the out-degree d_j, the number of others that receive from agent j,

    P[i, j] = 1 / (d_j + 1)   if i receives from j, or i = j.

The columns sum to one, so the total mass is preserved; if in- and out-degrees are all equal, so is the
average. An agent needs to know only its own out-degree.
"""

from typing import Any

import numpy as np

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.topology import Links, Topology, from_links


def directed(adjacency: Any, name: str | None = None) -> Topology:
    """Makes a strongly connected directed graph; adjacency [A, A] is true at [i, j] if i receives from j.

    The diagonal is ignored: every agent has a self-weight. `name` is its name (default "directed").

    >>> sj.directed([[0, 0, 1], [1, 0, 0], [1, 1, 0]])  # links from 2 to 0, 0 to 1, and 0 and 1 to 2
    directed: 3 agents, degrees 1 to 2, 4 directed links, spectral gap 0.7113, column stochastic
    """
    try:
        links = np.array(adjacency)
    except ValueError as error:
        raise ArgumentError(f"adjacency must be a matrix [A, A], got {adjacency!r}") from error
    if links.ndim != 2 or links.shape[0] != links.shape[1] or links.size == 0:
        raise ArgumentError(f"adjacency must be a square matrix [A, A], got shape {links.shape}")
    if links.dtype.kind not in "biuf" or not np.isin(links, (0, 1)).all():
        raise ArgumentError(
            "adjacency must have the values True and False, got others; weights go to from_matrix"
        )
    receiver, sender = np.nonzero(links.astype(bool) | np.eye(len(links), dtype=bool))
    return from_links(name or "directed", len(links), *_push_sum(receiver, sender, len(links)))


def _push_sum(receiver: np.ndarray, sender: np.ndarray, size: int) -> Links:
    """Returns the links with the weights 1 / (out-degree + 1), self-loops included."""
    out_degrees = np.bincount(sender, minlength=size)  # itself included
    return Links(receiver, sender, 1.0 / out_degrees[sender])


def directed_ring(n: int) -> Topology:
    """The directed ring: agent i receives from i - 1 (mod n), with weight 1/2.

    >>> sj.directed_ring(4)
    directed_ring(4): 4 agents, degree 1, 4 directed links, spectral gap 0.2929
    """
    n = checks.whole("n", n, at_least=2)

    def make_links() -> Links:
        receiver = np.repeat(np.arange(n), 2)
        return Links(
            receiver, np.sort([np.arange(n), (np.arange(n) - 1) % n], axis=0).T.ravel(), np.full(2 * n, 0.5)
        )

    return Topology(f"directed_ring({n})", n, make_links)


def random_digraph(n: int, degree: int, seed: int = 0) -> Topology:
    """A random directed graph: each agent sends to its successor in a random cycle and to random others.

    The cycle makes it strongly connected. All out-degrees are `degree`, but in-degrees differ: methods that
    assume a doubly stochastic W have a bias on it.

    >>> sj.random_digraph(8, 2)
    random_digraph(8, 2, seed=0): 8 agents, degrees 1 to ..., 16 directed links, ..., column stochastic
    """
    n = checks.whole("n", n, at_least=2)
    degree = checks.whole("degree", degree, at_least=1, at_most=n - 1)
    random = np.random.default_rng(checks.whole("seed", seed, at_least=0, at_most=2**32 - 1))
    order = random.permutation(n)
    receivers = np.zeros((n, degree), int)  # by positions in the cycle: the sender is at 0, the next at 1
    receivers[:, 0] = 1
    for agent in range(n):
        receivers[agent, 1:] = 2 + random.choice(n - 2, degree - 1, replace=False) if degree > 1 else 0
    receiver = order[(np.arange(n)[:, None] + receivers) % n].ravel()
    sender, everybody = np.repeat(order, degree), np.arange(n)
    links = _push_sum(np.r_[receiver, everybody], np.r_[sender, everybody], n)
    return from_links(f"random_digraph({n}, {degree}, seed={seed})", n, *links)
