"""What the exit status of a command says, and what the system says of a file."""

import os

from saddle_jax.base.errors import DamagedError

# Beside 0, 130 for interrupted and 141 for a reader that has gone; BUG is no mistake of the user's.
DIVERGED, MISTAKE, DAMAGED, BUG = 1, 2, 3, 70


def status_of(error: Exception) -> int:
    """Returns the exit status of what the library refuses: that of a mistake, or of a damaged file."""
    return DAMAGED if isinstance(error, DamagedError) else MISTAKE


def told(error: OSError) -> str:
    """Returns what the system says of a file, with the file's name where it says it."""
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return ": ".join([*names[:1], error.strerror or str(error)])
