"""The Base-(k+1) graph: an exact average in one period for every n, with at most k neighbours per step.

Takezawa et al., "Beyond exponential graph: communication-efficient topologies for decentralized learning via
finite-time convergence", NeurIPS 2023. All graphs are undirected, W_t is symmetric and doubly stochastic.

    Hyper-hypercube   n is a product of factors f_1 ... f_L, each at most k + 1. Number the agents with L
    (Algorithm 1)     digits; in step l, those that differ in digit l alone average.
    Simple base       n = sum_l a_l (k + 1)^(p_l) in base k + 1. Part l, of a_l (k + 1)^(p_l) agents, averages
    (Algorithm 2)     by itself. Then part 1 is joined to all later ones, then part 2, ...: each later agent
                      to one agent of each of the part's a_l blocks. Each block's mean is now that of all
                      agents, and the block averages again.
    Base              n = p q, all prime factors of p at most k + 1, none of q's: p groups of q run
    (Algorithm 3)     Algorithm 2 side by side, then q groups of p Algorithm 1; or Algorithm 2 on all n agents
                      where that is shorter.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from saddle_jax.base import checks
from saddle_jax.core.topology import TimeVarying, Topology, alternate
from saddle_jax.graphs.weights import with_self_weights

_T = TypeVar("_T")
# The undirected links of one step, (i, j, w_ij); self-weights make the rows sum to one.
Turn = list[tuple[int, int, float]]


def base_graph(n: int, degree: int = 1) -> TimeVarying:
    """Makes the Base-(k+1) graph of n agents, each with at most k = `degree` neighbours in a step.

    >>> sj.base_graph(6, 1)
    base_graph(6, 1): 6 agents, period 4, 4 + 4 + 4 + 6 directed links, spectral gap 1.0000 per step
    """
    n = checks.whole("n", n, at_least=2)
    degree = checks.whole("degree", degree, at_least=1)
    name = f"base_graph({n}, {degree})"
    turns = _base(range(n), degree)
    return alternate(*(_graph(f"{name}[{t}]", n, turn) for t, turn in enumerate(turns)), name=name)


def _graph(name: str, n: int, turn: Turn) -> Topology:
    i, j, weight = np.array(turn, float).T
    links = with_self_weights(n, np.r_[i, j], np.r_[j, i], np.r_[weight, weight])
    return Topology(name, n, lambda: links)


def _clique(agents: Sequence[int]) -> Turn:
    return [(i, j, 1 / len(agents)) for place, i in enumerate(agents) for j in agents[place + 1 :]]


@functools.cache
def _factors(n: int, most: int) -> tuple[int, ...] | None:
    """Returns the fewest factors of n, each of them at most `most`; None if there are none."""
    if n == 1:
        return ()
    tails = ((f, _factors(n // f, most)) for f in range(min(n, most), 1, -1) if n % f == 0)
    return min(((f, *tail) for f, tail in tails if tail is not None), key=len, default=None)


def _hyper_hypercube(agents: Sequence[int], k: int) -> list[Turn]:
    """Returns the steps of Algorithm 1: step l joins the agents whose numbers differ in digit l alone."""
    factors = _factors(len(agents), k + 1)
    assert factors is not None
    numbers = np.reshape(agents, factors)
    groups = (np.moveaxis(numbers, digit, -1).reshape(-1, f).tolist() for digit, f in enumerate(factors))
    return [_together(map(_clique, group)) for group in groups]


def _together(lists: Iterable[Sequence[_T]]) -> list[_T]:
    return [one for some in lists for one in some]


def _digits(n: int, base: int) -> Iterator[tuple[int, int]]:
    """Yields the digits a_l > 0 of n and their powers base^(p_l), the largest first."""
    power = base ** max(p for p in range(n.bit_length()) if base**p <= n)
    while n:
        if n >= power:
            yield n // power, power
            n %= power
        power //= base


def _simple_base(agents: Sequence[int], k: int) -> list[Turn]:
    """Returns the steps of Algorithm 2, with its sets V_l and V_l,a."""
    n = len(agents)
    if _factors(n, k + 1) is not None:
        return _hyper_hypercube(agents, k)
    parts, blocks, start = [], [], 0  # V_l, and V_l,1 ... V_l,a
    for a, power in _digits(n, k + 1):
        parts.append(agents[start : start + a * power])
        blocks.append([parts[-1][b * power : (b + 1) * power] for b in range(a)])
        start += a * power
    alone = [_hyper_hypercube(part, k) for part in parts]
    again = [[_hyper_hypercube(block, k) for block in part] for part in blocks[:-1]]
    turns = [_together(_next(own, m) for own in alone) for m in range(len(alone[0]))]
    for m in range(1 + len(again[0][0])):
        # Part m is joined to the later ones; earlier parts were, and average block by block.
        later = _together(parts[m + 1 :])
        turn = _meeting(blocks[m], later, k) if later else _next(alone[-1], m)
        behind = (_next(own, m - part - 1) for part in range(min(m, len(again))) for own in again[part])
        turns.append(turn + _together(behind))
    return turns


def _next(turns: Sequence[Turn], m: int) -> Turn:
    """Returns step m of a sequence that repeats; averaging again does not change agents at consensus."""
    return turns[m % len(turns)] if turns else []


def _meeting(blocks: Sequence[Sequence[int]], others: Sequence[int], k: int) -> Turn:
    """Joins each of the others to one agent of each block; the agents left over in the blocks average."""
    size = sum(map(len, blocks))
    weight = size / (size + len(others)) / len(blocks)
    turn = [(i, block[place], weight) for place, i in enumerate(others) for block in blocks]
    left = [j for block in blocks for j in block[len(others) :]]
    return turn + _together(_clique(left[at : at + k + 1]) for at in range(0, len(left), k + 1))


def _base(agents: Sequence[int], k: int) -> list[Turn]:
    """Returns the steps of Algorithm 3, or of Algorithm 2 if those are fewer."""
    n = len(agents)
    p = max(d for d in range(1, n + 1) if n % d == 0 and _factors(d, k + 1) is not None)
    q = n // p
    simple = _simple_base(agents, k)
    side_by_side = [_simple_base(agents[g * q : (g + 1) * q], k) for g in range(p)]
    turns = [_together(turn) for turn in zip(*side_by_side, strict=True)]
    across = [_hyper_hypercube(agents[place::q], k) for place in range(q)]
    turns += [_together(turn) for turn in zip(*across, strict=True)]
    return simple if len(simple) < len(turns) else turns
