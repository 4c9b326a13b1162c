"""saddle serve: a local page over all runs of a folder, kept up to date while they are trained."""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from saddle_jax.cli.usage import UsageError, parse

PORT = 8765


def run(arguments: Sequence[str]) -> None:
    """Serves the page until it is interrupted."""
    options = flags.FlagValues()
    meaning = "Address to serve on; others than 127.0.0.1 let other machines read the runs."
    flags.DEFINE_string("host", "127.0.0.1", meaning, flag_values=options)
    meaning = "Port to serve on; 0 takes any that is free."
    flags.DEFINE_integer("port", PORT, meaning, 0, 65535, flag_values=options)
    (name,) = parse(options, arguments, ["DIR"])
    folder = pathlib.Path(name)
    if not folder.is_dir():
        raise UsageError(f"DIR must be a folder, got {name!r}")

    from saddle_jax.serve.pages import Site
    from saddle_jax.serve.server import Server, is_everywhere

    try:
        server = Server(Site(folder), options.host, options.port)
    except OSError as error:
        raise UsageError(
            f"host and port must be free, and this machine's, got {options.host} and {options.port}: "
            f"{error.strerror or error}; --port=0 takes any port that is free"
        ) from error
    with server:
        shown = "127.0.0.1" if is_everywhere(options.host) else options.host
        address = f"[{shown}]" if ":" in shown and not shown.startswith("[") else shown
        if options.host not in ("127.0.0.1", "localhost", "::1", "[::1]"):
            print("saddle: whoever reaches this machine can read these runs", file=sys.stderr)
        print(f"page: http://{address}:{server.server_port}/  (Ctrl-C ends it)", flush=True)
        server.serve_forever()
