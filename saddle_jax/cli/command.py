"""The command as its user typed it, and what to type next."""

import os
import pathlib
import shlex
import shutil
import sys

# bin/saddle runs another Python in its place and says here how it was called.
VARIABLE = "SADDLE_COMMAND"


def typed() -> str:
    """Returns how the command was called, such as bin/saddle, so that what is printed works as it stands."""
    if named := os.environ.get(VARIABLE):
        return shlex.quote(named)
    program = pathlib.Path(sys.argv[0])
    if program.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m saddle_jax.cli"
    found = shutil.which(program.name)
    is_found = found is not None and os.path.realpath(found) == os.path.realpath(program)
    return shlex.quote(program.name if is_found else str(program))


def next_steps(folder: pathlib.Path) -> str:
    """Returns the line that ends a training: the command that shows its runs."""
    return f"next: {typed()} report {shlex.quote(str(folder))}"
