"""The saddle command: finds the verb, runs it, and prints a user's mistake in one line."""

import importlib
import sys
import traceback
from collections.abc import Sequence

# Nothing that takes time is imported here: until `run` listens, Python answers Ctrl-C with a traceback.
import saddle_jax.training.signals as interruption
from saddle_jax.cli import clock as clock  # looks at the time
from saddle_jax.cli import statuses, streams, surroundings, telling
from saddle_jax.cli.verbs import DEVICES, VERBS, WITHOUT_JAX
from saddle_jax.version import __version__


def main(argv: Sequence[str]) -> int:
    """Runs the verb that argv[1] names; returns the exit status."""
    from saddle_jax.base import checks
    from saddle_jax.cli import helping
    from saddle_jax.cli.extras import missing_extras
    from saddle_jax.cli.usage import UsageError, mistakes

    verb, *arguments = [*argv[1:]] or [""]
    try:
        if verb in ("-h", "--help", "help"):
            print(helping.overview(), end="")
        elif verb in ("version", "--version"):
            print(__version__)
        elif verb in VERBS:
            module, function = VERBS[verb]
            with missing_extras(verb):
                status = getattr(importlib.import_module(module), function)(arguments) or 0
            sys.stdout.flush()  # where it can still be told that this is impossible
            return status
        else:
            with mistakes():
                checks.known("VERB", verb, [*VERBS, "version", "help"])
    except helping.HelpWanted as wanted:
        print(helping.of_verb(helping.named(verb, arguments), wanted), end="")
    except UsageError as error:
        if interruption.is_raised():  # it is what a library made of the interruption
            return telling.tell_interrupted()
        error.tell()
        return error.status
    except BrokenPipeError:  # whoever read us, such as head, has read enough
        streams.drop_output()
        return 141
    except KeyboardInterrupt:
        return telling.tell_interrupted()
    except Exception as error:
        if interruption.is_raised():
            return telling.tell_interrupted()
        if isinstance(error, OSError) and error.errno in streams.DISK:
            return streams.tell_disk(error)
        return telling.tell_refused(error)
    return 0


def _set_up() -> None:
    """Sets up memory, cores and cache. What the environment says and cannot be is a ValueError."""
    surroundings.import_jax()

    from saddle_jax.devices.compilations import keep_compiled
    from saddle_jax.devices.machine import keep_freed_memory, use_every_core

    keep_freed_memory()
    use_every_core(at_least=DEVICES.get(sys.argv[1], 1) if sys.argv[1:] else 1)
    keep_compiled()


def run() -> None:
    """Starts the console script: listens for Ctrl-C, sets up memory and cores, and runs the verb."""
    streams.mend()
    streams.silence_libraries()
    interruption.listen()
    try:
        if not WITHOUT_JAX & {*sys.argv[1:2]}:
            _set_up()
    except ValueError as error:
        print(f"saddle: {error}", file=sys.stderr)
        interruption.leave(statuses.MISTAKE)
    interruption.in_verb()
    try:
        status = main(sys.argv)
    except Exception:
        traceback.print_exc()
        print("saddle: this is a bug of saddle_jax: please report the lines above", file=sys.stderr)
        status = statuses.BUG
    interruption.leave(status)


if __name__ == "__main__":
    run()
