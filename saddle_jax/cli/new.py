"""saddle new: writes a file to begin with, and a test of its invariants beside it."""

import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.cli.usage import mistakes, parse
from saddle_jax.testing import scaffold


def run(arguments: Sequence[str]) -> None:
    """Writes NAME.py and NAME_test.py, and prints the commands to go on with."""
    options = flags.FlagValues()
    flags.DEFINE_string("folder", ".", "Where the two files are written.", flag_values=options)
    kind, name = parse(options, arguments, ["KIND", "NAME"])
    folder = pathlib.Path(options.folder)
    with mistakes():
        commands = scaffold.write(kind, name, folder)
    print(f"wrote {folder / name}.py and {folder / name}_test.py; to go on:")
    for command in commands:
        print(f"  {command}")
