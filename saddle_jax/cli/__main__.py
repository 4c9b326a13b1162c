"""The entry point of the saddle command: its own options, such as --help, and dispatch to the verbs."""

from collections.abc import Sequence

# No slow imports here: before `start` handles Ctrl-C, Python would answer it with a traceback.
from saddle_jax.cli import process
from saddle_jax.version import __version__

_BEGIN = """\
saddle trains deep networks on agents that have no server, and compares how they do it.

  saddle demo                       the paper's point, in about 90 seconds
  saddle train --method=q_saddle    train one run: digits, ten agents in a ring
  saddle serve runs                 look at the runs while they train
  saddle compare --compare=method=qgm,q_saddle --workdir=runs/two
  saddle settings                   what --NAME=VALUE may be

saddle --help lists all verbs, saddle VERB --help the options of one.
"""


def main(argv: Sequence[str]) -> int:
    """Runs the verb that argv[1] names; returns the exit status."""
    return process.guarded(_dispatch, [*argv[1:]])


def _dispatch(words: list[str]) -> int:
    from saddle_jax.cli import complete
    from saddle_jax.cli.verb import call, load, overview

    load()
    first, _, value = words[0].partition("=") if words else ("", "", "")
    if not words:
        print(_BEGIN, end="")
    elif first in ("-h", "--help", "help"):
        print(overview(), end="")
    elif first == "--version":
        print(__version__)
    elif first == "--completion":
        print(complete.script(value or "".join(words[1:2])), end="")
    elif first == "__complete":
        print("\n".join(complete.complete(words[1:])))
    else:
        return call(words)
    return 0


def _devices(words: Sequence[str]) -> int:
    """Returns the number of devices that the verb needs; 0 if no verb runs, which needs no JAX."""
    from saddle_jax.cli.verb import load

    if {"-h", "--help"} & {*words}:
        return 0
    return next((one.devices for name, one in load().items() if words[:1] == name.split()[:1]), 0)


def run() -> None:
    """The console script."""
    process.start(main, _devices)


if __name__ == "__main__":
    run()
