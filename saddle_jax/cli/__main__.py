"""The saddle command: finds the verb, runs it, and prints a user's mistake in one line."""

import importlib
import os
import sys
from collections.abc import Sequence

# Nothing that takes time is imported here: until `run` listens, Python answers Ctrl-C with a traceback.
import saddle_jax.training.interruption as interruption
from saddle_jax.cli import clock as clock  # looks at the time
from saddle_jax.cli.verbs import DEVICES, HELP, VERBS
from saddle_jax.version import __version__


def main(argv: Sequence[str]) -> int:
    """Runs the verb that argv[1] names; returns the exit status."""
    from saddle_jax.cli.extras import missing_extras
    from saddle_jax.cli.usage import UsageError

    verb, *arguments = [*argv[1:]] or [""]
    try:
        if verb in ("-h", "--help", "help"):
            print(HELP, end="")
        elif verb in ("version", "--version"):
            print(__version__)
        elif verb in VERBS:
            module, function = VERBS[verb]
            with missing_extras(verb):
                return getattr(importlib.import_module(module), function)(arguments) or 0
        else:
            raise UsageError(f"VERB must be one of {', '.join(VERBS)}, version, help, got {verb!r}")
    except UsageError as error:
        if interruption.is_raised():  # it is what a library made of the interruption
            return _tell_interrupted()
        error.tell()
        return 2
    except BrokenPipeError:  # whoever read us, such as head, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return _tell_interrupted()
    except Exception:
        if not interruption.is_raised():
            raise
        return _tell_interrupted()
    return 0


def _tell_interrupted() -> int:
    interruption.tell("saddle: interrupted")
    return interruption.STATUS


def run() -> None:
    """Starts the console script: listens for Ctrl-C, sets up memory and cores, and runs the verb."""
    interruption.listen()

    from saddle_jax.devices.cores import use_every_core
    from saddle_jax.devices.malloc import keep_freed_memory

    keep_freed_memory()
    use_every_core(at_least=DEVICES.get(sys.argv[1], 1) if sys.argv[1:] else 1)
    interruption.in_verb()
    interruption.leave(main(sys.argv))


if __name__ == "__main__":
    run()
