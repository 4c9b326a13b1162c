"""Finds the verb, runs it, and tells a user's mistake in one line."""

import importlib
import sys
from collections.abc import Sequence

from saddle_jax.cli.usage import UsageError
from saddle_jax.version import __version__

# Each verb is a module with `run(arguments)`, imported when it is used.
VERBS = {"data": "saddle_jax.cli.data", "topology": "saddle_jax.cli.topology"}

HELP = """usage: saddle VERB ...        (saddle VERB --help tells its options)

  data list                 which datasets there are, and where
  data prepare NAME         download and prepare one (needs internet and TensorFlow)
  data show NAME            counts, shapes and a contact sheet
  data partition            who would hold what, and a picture of it
  topology NAME SIZE...     what a graph is like, such as: topology torus 5 8
  version                   which saddle_jax this is
"""


def main(argv: Sequence[str]) -> int:
    """Runs the verb that argv[1] names; returns the exit status."""
    verb, *arguments = [*argv[1:]] or [""]
    try:
        if verb in ("-h", "--help", "help"):
            print(HELP, end="")
        elif verb in ("version", "--version"):
            print(__version__)
        elif verb in VERBS:
            importlib.import_module(VERBS[verb]).run(arguments)
        else:
            raise UsageError(f"VERB must be one of {', '.join(VERBS)}, version, help, got {verb!r}")
    except UsageError as error:
        print(f"saddle: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("saddle: interrupted", file=sys.stderr)
        return 130
    return 0


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


if __name__ == "__main__":
    run()
