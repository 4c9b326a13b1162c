"""Graphs and compressors from the short names that settings give them, such as torus:5x8 and top_k0.3."""

import functools
import re
from collections.abc import Collection
from typing import Any

from saddle_jax import compression
from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.core import graphs
from saddle_jax.core.topology import Topology, from_matrix

_SIMPLE = {
    "ring": graphs.ring,
    "complete": graphs.complete,
    "star": graphs.star,
    "chain": graphs.chain,
    "hypercube": graphs.hypercube,
    "exponential": graphs.exponential,
    "isolated": graphs.isolated,
}
_RANDOM = ("erdos_renyi", "random_regular")
_WITH_SETTING = ("torus", "circulant", *_RANDOM)


def check_one_of(name: str, value: Any, allowed: Collection[str]) -> None:
    """Checks that `value` is one of the allowed names, and suggests the nearest one otherwise."""
    if value not in allowed:
        hint = checks.did_you_mean(value, allowed)
        raise ArgumentError(f"{name} must be one of {', '.join(allowed)}, got {value!r}{hint}")


def parse_compressor(text: str) -> compression.Compressor | None:
    """Builds a compressor from its short name, such as quantize8, quantize2_biased or top_k0.3."""
    plain: dict[str, Any] = {"none": None, "identity": compression.identity(), "sign": compression.sign()}
    if text in plain:
        return plain[text]
    if match := re.fullmatch(r"quantize(\d+)(_biased)?", text):
        return compression.quantize(int(match[1]), biased=bool(match[2]))
    if match := re.fullmatch(r"(top_k|random_k)(\d*\.?\d+)", text):
        return getattr(compression, match[1])(float(match[2]))
    raise ArgumentError(
        "compressor must be one of none, identity, quantizeBITS, quantizeBITS_biased, top_kFRACTION, "
        f"random_kFRACTION, sign, got {text!r}"
    )


def check_topology(text: str) -> None:
    """Checks the name of a graph, apart from what depends on the number of agents."""
    kind, _, setting = text.partition(":")
    check_one_of("topology", kind, (*_SIMPLE, *_WITH_SETTING))
    if kind in _SIMPLE and setting:
        raise ArgumentError(f"topology {kind} takes no setting, got {text!r}")


def is_random(text: str) -> bool:
    """Tells whether a graph is drawn at random, so that it depends on the seed."""
    return text.partition(":")[0] in _RANDOM


# Every Config builds its graph to check it, and random graphs are drawn until they are connected.
@functools.lru_cache(maxsize=32)
def parse_topology(text: str, n: int, seed: int) -> Topology:
    """Builds the graph of `n` agents with this short name; only random graphs look at the seed."""
    kind, _, setting = text.partition(":")
    if n == 1:
        return from_matrix([[1.0]], name="alone")
    try:
        if kind in _SIMPLE and not setting:
            return _SIMPLE[kind](n)
        if kind == "torus" and not setting:
            return graphs.torus(n)
        if kind == "torus":
            rows, columns = (int(side) for side in setting.split("x"))
            if rows * columns == n:
                return graphs.torus(rows, columns)
        if kind == "circulant":
            return graphs.circulant(n, [int(offset) for offset in setting.split(",")])
        if kind == "erdos_renyi":
            return graphs.erdos_renyi(n, float(setting), seed)
        if kind == "random_regular":
            return graphs.random_regular(n, int(setting), seed)
    except ValueError as error:
        raise ArgumentError(f"topology {text!r} cannot have {n} agents: {error}") from error
    raise ArgumentError(f"topology {text!r} cannot have {n} agents")
