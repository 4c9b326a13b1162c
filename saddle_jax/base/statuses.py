"""What the exit status of a command says; docs/reliability.md tells users."""

from saddle_jax.base.errors import DamagedError

# Beside 0, 130 for interrupted and 141 for a reader that has gone; BUG is no mistake of the user's.
DIVERGED, MISTAKE, DAMAGED, BUG = 1, 2, 3, 70


def status_of(error: BaseException) -> int:
    """Returns the exit status of what the library refuses: that of a mistake, or of a damaged file."""
    return DAMAGED if isinstance(error, DamagedError) else MISTAKE
