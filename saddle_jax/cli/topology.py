"""saddle topology: what a graph is like."""

from collections.abc import Sequence

from absl import flags

from saddle_jax.cli.usage import UsageError, mistakes, parse
from saddle_jax.training.config import Config, build_topology


def run(arguments: Sequence[str]) -> None:
    """Prints the summary of the graph that the settings `topology` and `agents` describe."""
    kind, agents = parse(flags.FlagValues(), arguments, ["TOPOLOGY", "AGENTS"])
    if not agents.isdecimal():
        raise UsageError(f"AGENTS must be a whole number, got {agents!r}")
    with mistakes():
        print(build_topology(Config(topology=kind, agents=int(agents))))
