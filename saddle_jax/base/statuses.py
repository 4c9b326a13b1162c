"""The exit statuses of the command line, which docs/reliability.md documents."""

from saddle_jax.base.errors import DamagedError

# Beside 0 for success, 130 for an interrupt and 141 for a closed pipe; BUG is an error of ours.
DIVERGED, MISTAKE, DAMAGED, BUG = 1, 2, 3, 70


def status_of(error: BaseException) -> int:
    """Returns the exit status for an error that the library raises itself: a mistake or a damaged file."""
    return DAMAGED if isinstance(error, DamagedError) else MISTAKE
