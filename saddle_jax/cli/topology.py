"""saddle topology: what a graph is like."""

from collections.abc import Callable, Sequence

from saddle_jax import topology
from saddle_jax.cli.usage import UsageError, mistakes

# Graphs that whole numbers alone describe.
TOPOLOGIES: dict[str, Callable[..., topology.Topology]] = {
    "ring": topology.ring,
    "torus": topology.torus,
    "complete": topology.complete,
    "star": topology.star,
    "chain": topology.chain,
    "hypercube": topology.hypercube,
    "exponential": topology.exponential,
}


def run(arguments: Sequence[str]) -> None:
    """Prints a graph's summary."""
    if "--help" in arguments:
        print(f"usage: saddle topology NAME SIZE...\n  NAME  {', '.join(TOPOLOGIES)}")
        return
    name, *sizes = arguments or [""]
    if name not in TOPOLOGIES:
        raise UsageError(f"NAME must be one of {', '.join(TOPOLOGIES)}, got {name!r}")
    if not sizes or not all(size.isdecimal() for size in sizes) or len(sizes) > 1 + (name == "torus"):
        raise UsageError(f"SIZE must be a number of agents (torus: or rows and columns), got {sizes}")
    with mistakes():
        print(TOPOLOGIES[name](*map(int, sizes)))
