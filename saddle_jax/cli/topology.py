"""saddle topology: what a graph is like, in a line and as a picture."""

from collections.abc import Sequence

from absl import flags

from saddle_jax.base.checks import spells_whole
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.pictures import checked, output_option
from saddle_jax.cli.usage import UsageError, mistakes, parse, write_named
from saddle_jax.settings.config import Config, build_topology


def run(arguments: Sequence[str]) -> None:
    """Prints the summary of the graph that the settings `topology` and `agents` describe, and draws it."""
    options = flags.FlagValues()
    output_option(options, "Picture to write, with the weights", "none")
    output_options(options)
    flags.DEFINE_integer("seed", 0, "Seed of a random graph.", flag_values=options)
    kind, agents = parse(options, arguments, ["TOPOLOGY", "AGENTS"])
    if not spells_whole(agents):
        raise UsageError(f"AGENTS must be a whole number, got {agents!r}")
    path = None if options.output is None else checked(options.output, "")
    output = Output(options)
    with mistakes():
        topology = build_topology(Config(topology=kind, agents=int(agents), seed=options.seed))
        output.say(str(topology))
    if path is not None:
        from saddle_jax.report.graphs import plot_graph

        with mistakes():
            write_named("output", path, lambda: plot_graph(topology, path))
        output.note(f"picture: {path}")
    output.give(
        {
            "name": topology.name,
            "agents": topology.size,
            "degrees": [graph.degree.tolist() for graph in topology.graphs],
            "spectral_gap": topology.spectral_gap,
            "period": topology.period,
            "description": str(topology),
            "picture": None if path is None else str(path),
        }
    )
