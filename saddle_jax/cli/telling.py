"""How the command ends when a verb did not: what the library refuses, and interruptions, in one line."""

# Nothing that takes time is imported here, see `__main__`.
import saddle_jax.training.signals as interruption
from saddle_jax.cli import statuses, surroundings


def tell_refused(error: Exception) -> int:
    """Tells what the library refuses; anything else is a bug, and raised again."""
    from saddle_jax.cli.usage import UsageError, mistakes

    if isinstance(error, OSError):
        raise error
    try:
        with mistakes():
            raise error
    except UsageError as refused:
        refused.tell()
        return refused.status
    except Exception:
        if not (line := surroundings.unusable_devices()):
            raise
        UsageError(line).tell()
        return statuses.MISTAKE


def tell_interrupted() -> int:
    """Tells that the command was interrupted; returns the exit status of that."""
    interruption.tell("saddle: interrupted")
    return interruption.STATUS
