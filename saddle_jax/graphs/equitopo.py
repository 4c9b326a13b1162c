"""EquiTopo graphs, whose consensus rate does not depend on the number of agents.

Song et al., "Communication-efficient topologies for decentralized learning with O(1) consensus rate", NeurIPS
2022. In the basis graph of a shift a, agent i receives from i - a (mod n):

    A(a)[i, i - a] = (n - 1) / n,   A(a)[i, i] = 1 / n.

    D-EquiStatic   W = mean of A(a_1), ..., A(a_M), each a_m uniform in 1 ... n - 1, with repetition
    U-EquiStatic   (W + W') / 2 of that
    OD-EquiDyn     each step one random a: W_t = (1 - eta) I + eta A(a)
    OU-EquiDyn     each step one random a and a random start s: starting from s, each agent i is matched
                   with i + a if both are free; W_t = (1 - eta) I + eta (I / n + (n - 1) / n M), M the
                   permutation that swaps the pairs

All are doubly stochastic, the two U also symmetric. The published dynamic graphs are drawn anew in every
step; here `count` steps are drawn, which then repeat.
"""

import math
from collections import Counter
from typing import Any

import numpy as np

from saddle_jax.base import checks
from saddle_jax.core.topology import Links, TimeVarying, Topology, alternate, are_connected
from saddle_jax.graphs.weights import MAX_PERIOD, draw_until, with_self_weights


def equi_static(n: int, degree: int, seed: int = 0, undirected: bool = False) -> Topology:
    """Makes D-EquiStatic of M = `degree` random shifts, or U-EquiStatic; drawn until it is connected.

    The degree is at most M, and 2 M in the undirected graph.

    >>> sj.equi_static(16, 4)
    equi_static(16, 4, seed=0): 16 agents, degree ..., ... directed links, spectral gap ...
    >>> sj.equi_static(16, 2, undirected=True).is_symmetric
    True
    """
    n = checks.whole("n", n, at_least=2)
    degree = checks.whole("degree", degree, at_least=1, at_most=MAX_PERIOD)
    name = f"equi_static({n}, {degree}, seed={seed}{_undirected(undirected)})"
    shifts = draw_until(
        name,
        seed,
        lambda random: random.randint(1, n, size=degree).tolist(),
        lambda shifts: math.gcd(n, *shifts) == 1,
        "connected graph",
    )

    def make_links() -> Links:
        weights: Counter[int] = Counter()
        for a in shifts:
            for shift in (a, n - a) if undirected else (a, a):
                weights[shift] += 1
        hops, counts = np.array(list(weights)), np.array(list(weights.values()))
        agents = np.arange(n)
        senders = (agents[:, None] - hops).ravel() % n
        weight = np.tile(counts / (2 * degree) * (n - 1) / n, n)
        return with_self_weights(n, np.repeat(agents, len(hops)), senders, weight)

    return Topology(name, n, make_links)


def equi_dynamic(
    n: int, count: int, seed: int = 0, undirected: bool = False, eta: float = 0.5
) -> TimeVarying:
    """Makes OD-EquiDyn, or OU-EquiDyn, of `count` steps, in each of which an agent has at most one neighbour.

    They are drawn until their union is connected. eta in (0, 1] is the averaging rate: pairs nearly swap
    their models at 1, the default of the authors' function, and average at 1/2, where the theorem's rate is
    best and which their training uses.

    >>> sj.equi_dynamic(16, 8)
    equi_dynamic(16, 8, seed=0): 16 agents, period 8, 8 x 16 directed links, spectral gap ... per step
    """
    n = checks.whole("n", n, at_least=2)
    count = checks.whole("count", count, at_least=1, at_most=MAX_PERIOD)
    eta = checks.real("eta", eta, above=0.0, at_most=1.0)
    given = f"{_undirected(undirected)}{'' if eta == 0.5 else f', eta={eta:g}'}"
    name = f"equi_dynamic({n}, {count}, seed={seed}{given})"

    def draw(random: np.random.RandomState) -> list[Topology]:
        pairs = [_pairs(n, random) if undirected else _shifted(n, random) for _ in range(count)]
        return [_step(f"{name}[{t}]", n, *pair, eta) for t, pair in enumerate(pairs)]

    turns = draw_until(name, seed, draw, lambda turns: are_connected(*turns), "steps that connect the agents")
    return alternate(*turns, name=name)


def _undirected(undirected: Any) -> str:
    checks.instance("undirected", undirected, bool, "True")
    return ", undirected=True" if undirected else ""


def _shifted(n: int, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Returns the receivers and senders of the links of A(a), for a random a."""
    return np.arange(n), (np.arange(n) - random.randint(1, n)) % n


def _pairs(n: int, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Returns the receivers and senders of a greedy matching along a random a, from a random start."""
    a, start = int(random.randint(1, n)), int(random.randint(n))
    partner: dict[int, int] = {}
    for i in ((start + place) % n for place in range(n)):
        j = (i + a) % n
        if i not in partner and j not in partner:
            partner[i], partner[j] = j, i
    return np.array(list(partner)), np.array(list(partner.values()))


def _step(name: str, n: int, receiver: np.ndarray, sender: np.ndarray, eta: float) -> Topology:
    links = with_self_weights(n, receiver, sender, np.full(len(receiver), eta * (n - 1) / n))
    return Topology(name, n, lambda: links)
