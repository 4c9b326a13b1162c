"""What the exit status of a command says, and what the system says of a file."""

import os

from saddle_jax.base.statuses import BUG as BUG
from saddle_jax.base.statuses import DAMAGED as DAMAGED
from saddle_jax.base.statuses import DIVERGED as DIVERGED
from saddle_jax.base.statuses import MISTAKE as MISTAKE
from saddle_jax.base.statuses import status_of as status_of


def reported(error: OSError) -> str:
    """Returns what the system says of a file, with the file's name where it says it."""
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return ": ".join([*names[:1], error.strerror or str(error)])
