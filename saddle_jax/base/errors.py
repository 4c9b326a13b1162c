"""The error of a run that cannot go on."""


class RunError(Exception):
    """A folder or a disk cannot be used; the message says why and what to do, in one line."""
