"""The command as its user typed it, and what to type next."""

import os
import pathlib
import shlex
import shutil
import sys

from saddle_jax.cli.verbs import VERBS

# bin/saddle runs another Python in its place and says here how it was called.
VARIABLE = "SADDLE_COMMAND"


def typed() -> str:
    """Returns how the command was called, such as bin/saddle, so that what is printed works as it stands."""
    if named := os.environ.get(VARIABLE):
        return shlex.quote(named)
    program = pathlib.Path(sys.argv[0])
    if program.stem != "saddle":  # such as __main__.py, or a program that calls us
        return f"{shlex.quote(sys.executable)} -m saddle_jax.cli"
    found = shutil.which(program.name)
    is_found = found is not None and os.path.realpath(found) == os.path.realpath(program)
    return shlex.quote(program.name if is_found else str(program))


def next_steps(folder: pathlib.Path) -> str:
    """Returns how a training ends: the commands that show its runs, as a page or, if there is one, live."""
    verbs = [verb for verb in ("report", "serve") if verb in VERBS]
    lines = [f"{typed()} {verb} {shlex.quote(str(folder))}" for verb in verbs]
    return "next: " + "\n  or: ".join(lines)
