"""Observed social networks, from networkx; each has its own number of agents.

Their weights are Metropolis-Hastings weights, 1 / (1 + max(degree_i, degree_j)). The first two are graphs of
Vogels et al., "RelaySum for decentralized deep learning on heterogeneous data", NeurIPS 2021.
"""

import networkx as nx

from saddle_jax.core.topology import Topology
from saddle_jax.graphs.weights import lazy


def karate() -> Topology:
    """The friendships of 34 members of a karate club (Zachary, 1977).

    >>> sj.karate()
    karate(): 34 agents, degrees 1 to 17, 156 directed links, spectral gap 0.0312
    """
    return lazy("karate()", 34, nx.karate_club_graph)


def davis() -> Topology:
    """18 women of the American South and the 14 social events they attended (Davis et al., 1941).

    >>> sj.davis()
    davis(): 32 agents, degrees 2 to 14, 178 directed links, spectral gap ...
    """
    return lazy("davis()", 32, nx.davis_southern_women_graph)


def florentine() -> Topology:
    """The marriages among 15 families of Renaissance Florence (Padgett and Ansell, 1993).

    >>> sj.florentine()
    florentine(): 15 agents, degrees 1 to 6, 40 directed links, spectral gap ...
    """
    return lazy("florentine()", 15, nx.florentine_families_graph)


def les_miserables() -> Topology:
    """The 77 characters of Les Misérables, joined if they appear together (Knuth, 1993).

    >>> sj.les_miserables()
    les_miserables(): 77 agents, degrees 1 to 36, 508 directed links, spectral gap ...
    """
    return lazy("les_miserables()", 77, nx.les_miserables_graph)
