"""saddle topology: what a graph is like, in a line and as a picture."""

import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.base.checks import spells_whole
from saddle_jax.base.files import check_named_output
from saddle_jax.cli.usage import UsageError, mistakes, parse, write_named
from saddle_jax.training.config import Config, build_topology


def run(arguments: Sequence[str]) -> None:
    """Prints the summary of the graph that the settings `topology` and `agents` describe, and draws it."""
    options = flags.FlagValues()
    meaning = "Picture to write, with the weights: a .png, .pdf or .svg file (default: none)."
    flags.DEFINE_string("output", None, meaning, flag_values=options)
    flags.DEFINE_integer("seed", 0, "Seed of a random graph.", flag_values=options)
    kind, agents = parse(options, arguments, ["TOPOLOGY", "AGENTS"])
    if not spells_whole(agents):
        raise UsageError(f"AGENTS must be a whole number, got {agents!r}")
    path = None if options.output is None else pathlib.Path(options.output)
    if path is not None and path.suffix not in (".png", ".pdf", ".svg"):
        raise UsageError(f"output must end in .png, .pdf or .svg, got {str(path)!r}")
    with mistakes():
        topology = build_topology(Config(topology=kind, agents=int(agents), seed=options.seed))
        check_named_output(options.output)
        print(topology)
    if path is not None:
        from saddle_jax.report.graph_picture import plot_graph

        with mistakes():
            write_named("output", path, lambda: plot_graph(topology, path))
        print(f"picture: {path}")
