"""Errors of runs that cannot be trained or read, their exit statuses and their one-line messages."""

# Exit statuses of the command line, see docs/commands.md; beside them 0 for success, 130 for an interrupt
# and 141 for a closed pipe. BUG is an error of ours.
DIVERGED, MISTAKE, DAMAGED, BUG = 1, 2, 3, 70


class RunError(Exception):
    """A run's folder or the disk cannot be used; the one-line message says why and what to do."""


class DamagedError(RunError):
    """A file of a run is damaged or unreadable; the one-line message names it."""


def status_of(error: BaseException) -> int:
    """Returns the exit status for an error that the library raises itself: a mistake or a damaged file."""
    return DAMAGED if isinstance(error, DamagedError) else MISTAKE


def one_line(error: BaseException) -> str:
    """Returns an error's message on one line, or its type if it has no message."""
    return " ".join(str(error).split()) or type(error).__name__


def short_line(error: BaseException) -> str:
    """Returns `one_line` of an error, with the middle cut out if it is long."""
    text = one_line(error)
    return text if len(text) < 300 else f"{text[:120]} ... {text[-160:]}"  # the reason often comes last


def printable(text: str) -> str:
    """Escapes control characters, which a terminal would interpret, as \\x1b."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text
    )
