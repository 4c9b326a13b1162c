"""The saddle command: one short function per verb."""

import sys
from collections.abc import Callable, Sequence

from absl import app, flags

from saddle_jax import topology
from saddle_jax.version import __version__

# Graphs that whole numbers alone describe.
_TOPOLOGIES: dict[str, Callable[..., topology.Topology]] = {
    "ring": topology.ring,
    "torus": topology.torus,
    "complete": topology.complete,
    "star": topology.star,
    "chain": topology.chain,
    "hypercube": topology.hypercube,
    "exponential": topology.exponential,
}


class UsageError(Exception):
    """A user's mistake: printed in one line, exit status 2, no traceback."""


def show_topology(arguments: Sequence[str]) -> None:
    """topology NAME SIZE...    what a graph is like, such as: topology torus 5 8"""
    name, *sizes = arguments or [""]
    if name not in _TOPOLOGIES:
        raise UsageError(f"NAME must be one of {', '.join(_TOPOLOGIES)}, got {name!r}")
    if not sizes or not all(size.isdecimal() for size in sizes) or len(sizes) > 1 + (name == "torus"):
        raise UsageError(f"SIZE must be a number of agents (torus: or rows and columns), got {sizes}")
    try:
        print(_TOPOLOGIES[name](*map(int, sizes)))
    except ValueError as error:
        raise UsageError(str(error)) from error


def show_version(arguments: Sequence[str]) -> None:
    """version                  which saddle_jax this is"""
    del arguments
    print(__version__)


VERBS: dict[str, Callable[[Sequence[str]], None]] = {
    "topology": show_topology,
    "version": show_version,
}

__doc__ = "\n".join(["saddle VERB ...\n", *(f"  {verb.__doc__}" for verb in VERBS.values())])


def main(argv: Sequence[str]) -> int:
    """Runs the verb named first; returns the exit status."""
    verb, *arguments = [*argv[1:], ""][: max(1, len(argv) - 1)]
    try:
        if verb not in VERBS:
            raise UsageError(f"VERB must be one of {', '.join(VERBS)}, got {verb!r}")
        VERBS[verb](arguments)
    except UsageError as error:
        print(f"saddle: {error}", file=sys.stderr)
        return 2
    return 0


def parse_flags(argv: Sequence[str]) -> list[str]:
    """absl's parser, but a mistake ends with status 2 and one line."""
    try:
        return flags.FLAGS(list(argv))
    except flags.Error as error:
        print(f"saddle: {error}", file=sys.stderr)
        sys.exit(2)


def run() -> None:
    """The console script."""
    sys.modules["__main__"].__doc__ = __doc__  # what absl shows for --help
    app.run(main, flags_parser=parse_flags)


if __name__ == "__main__":
    run()
