"""Verbs that draw: report, serve, figure, topology."""

import pathlib
import sys

from absl import flags

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.files import check_named_output
from saddle_jax.cli.verb import (
    Output,
    boolean,
    check_folder,
    integer,
    picture_file,
    picture_option,
    text,
    verb,
    writing,
)


@verb(
    "Look at runs",
    "DIR...",
    text("output", None, "HTML file to write (default: report.html, in DIR or here)."),
)
def report(options: flags.FlagValues, out: Output, *names: str) -> None:
    """Write one HTML page of a run, or of several side by side."""
    path = pathlib.Path(
        options.output or (names[0] if len(names) == 1 else ""), "" if options.output else "report.html"
    )
    from saddle_jax.report.page import write_page

    check_named_output(options.output)
    with writing("output", path):
        write_page(names, path)
    out.say(f"page: {path}")
    out.give({"page": str(path)})


@verb(
    "Look at runs",
    "DIR",
    text("host", "127.0.0.1", "Address to serve on; others than this let other machines read the runs."),
    integer("port", 8765, "Port to serve on; 0 takes any that is free.", 0, 65535),
    example="serve runs",
)
def serve(options: flags.FlagValues, out: Output, name: str) -> None:
    """Serve a local page over all runs of a folder, live while they train."""
    folder = check_folder(name)

    from saddle_jax.serve.pages import Site
    from saddle_jax.serve.server import Server, is_everywhere

    try:
        server = Server(Site(folder), options.host, options.port)
    except OSError as error:
        raise ArgumentError(
            f"host and port must be free, and this machine's, got {options.host} and {options.port}: "
            f"{error.strerror or error}; --port=0 takes any port that is free"
        ) from error
    with server:
        shown = "127.0.0.1" if is_everywhere(options.host) else options.host
        address = f"[{shown}]" if ":" in shown and not shown.startswith("[") else shown
        if options.host not in ("127.0.0.1", "localhost", "::1", "[::1]"):
            print("saddle: whoever reaches this machine can read these runs", file=sys.stderr)
        page = f"http://{address}:{server.server_port}/"
        out.say(f"page: {page}  (Ctrl-C ends it)")
        out.give({"page": page})
        server.serve_forever()


@verb(
    "Look at runs",
    "KIND",
    "DIR...",
    text(
        "x",
        None,
        "What curves are drawn against: epoch, step, bytes, paper_bytes, passes, seconds (default: epoch).",
    ),
    boolean("paper", False, "Draw the paper's final figures across the curves of runs that reproduce one."),
    picture_option("Picture to write", "KIND.png, here"),
    example="figure curves runs/both --output=curves.pdf",
)
def figure(options: flags.FlagValues, out: Output, kind: str, *names: str) -> None:
    """Draw a figure of runs; KIND is curves, sharpness, compression, zeta, bits, rho or partition."""
    from saddle_jax.report.figures import AXES, KINDS, draw

    checks.known("KIND", kind, KINDS)
    if options.x is not None and (kind != "curves" or options.x not in AXES):
        raise ArgumentError(f"x must be one of {', '.join(AXES)}, for curves, got {options.x!r} for {kind}")
    if options.paper and kind != "curves":
        raise ArgumentError(f"paper must be for curves, got it for {kind}")
    path = picture_file(options.output, f"{kind}.png")
    with writing("output", path):
        draw(kind, names, path, options.x, options.paper)
    out.say(f"picture: {path}")
    out.give({"picture": str(path)})


@verb(
    "Train and compare",
    "TOPOLOGY",
    "AGENTS",
    integer("seed", 0, "Seed of a random graph."),
    picture_option("Picture to write, with the weights", "none"),
    example="topology 'torus(5, 8)' 40",
)
def topology(options: flags.FlagValues, out: Output, kind: str, agents: str) -> None:
    """Show the properties of a graph, and draw it."""
    from saddle_jax.settings.settings import Settings, build_topology

    if not checks.is_integer_text(agents):
        raise ArgumentError(f"AGENTS must be a whole number, got {agents!r}")
    path = None if options.output is None else picture_file(options.output, "")
    made = build_topology(Settings(topology=kind, agents=int(agents), seed=options.seed))
    out.say(str(made))
    if path is not None:
        from saddle_jax.report.graphs import plot_graph

        with writing("output", path):
            plot_graph(made, path)
        out.note(f"picture: {path}")
    out.give(
        {
            "name": made.name,
            "agents": made.size,
            "degrees": [graph.degree.tolist() for graph in made.graphs],
            "spectral_gap": made.spectral_gap,
            "period": made.period,
            "description": str(made),
            "picture": None if path is None else str(path),
        }
    )
