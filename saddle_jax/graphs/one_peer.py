"""The one-peer exponential graph: in each step an agent receives from one other, 1, 2, 4, ... before it.

Ying et al., "Exponential graph is provably efficient for decentralized deep training", NeurIPS 2021. It is
also the graph of Assran et al., "Stochastic gradient push", ICML 2019. With the period p = ceil(log2 n),

    W_t[i, i] = W_t[i, i - 2^(t mod p)] = 1/2.

Each W_t is doubly stochastic. Their product over a period is an exact average if and only if n is a power of
two: every distance is then the sum of a unique subset of 1, 2, 4, ...
"""

import numpy as np

from saddle_jax.base import checks
from saddle_jax.core.topology import TimeVarying, Topology, alternate
from saddle_jax.graphs.weights import with_self_weights


def one_peer_exponential(n: int) -> TimeVarying:
    """Agent i receives from i - 1, then i - 2, then i - 4, ... (mod n), one per step, with weight 1/2.

    >>> sj.one_peer_exponential(8)
    one_peer_exponential(8): 8 agents, period 3, 3 x 8 directed links, spectral gap 1.0000 per step
    """
    n = checks.whole("n", n, at_least=2)
    name, agents, half = f"one_peer_exponential({n})", np.arange(n), np.full(n, 0.5)

    def turn(t: int) -> Topology:
        links = with_self_weights(n, agents, (agents - 2**t) % n, half)
        return Topology(f"{name}[{t}]", n, lambda: links)

    return alternate(*map(turn, range((n - 1).bit_length())), name=name)
