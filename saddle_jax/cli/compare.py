"""saddle compare: a grid of methods, graphs, compressors and so on, and the table of what they reached."""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from saddle_jax.base import user_code
from saddle_jax.cli.compared import show_compared
from saddle_jax.cli.grids import grid_options, read_grid
from saddle_jax.cli.output import Output, output_options
from saddle_jax.cli.pictures import picture_option
from saddle_jax.cli.running import run_several
from saddle_jax.cli.settings import config_options, read_for_many
from saddle_jax.cli.statuses import MISTAKE
from saddle_jax.cli.usage import UsageError, mistakes, parse


@user_code.reading_once()  # all runs have the same code
def run(arguments: Sequence[str]) -> int:
    """Runs what is missing, resumes what was interrupted, and goes on past what diverges or cannot be."""
    options = _options()
    parse(options, arguments)
    grid = read_grid(options)
    settings, folder = read_for_many(options), pathlib.Path(options.workdir)

    from saddle_jax.training.sweep import runs_of_grid

    with mistakes():
        runs, notes, impossible = runs_of_grid(settings, grid, folder, single_program=options.single_program)
    if not runs:
        raise UsageError(impossible[0])
    output = Output(options)
    for note in notes:
        output.note(note)
    for line in impossible:
        print(f"saddle: {line}", file=sys.stderr)
    refused, status = run_several(runs, quiet=output.is_silent)
    if status == 130:
        return status
    ended = [workdir for workdir in runs if workdir not in refused]
    if not ended:
        raise UsageError(f"no run of {folder} could be made", status)
    show_compared(ended, grid, folder, options.picture, output)
    return status or (MISTAKE if impossible else 0)


def _options() -> flags.FlagValues:
    options = flags.FlagValues()
    config_options(options)
    grid_options(options)
    flags.DEFINE_string("workdir", None, "Folder of the comparison.", flag_values=options)
    meaning = (
        "Train a cell's seeds, and shares of lost messages, in one program and folder, where memory "
        "suffices; false: a folder each."
    )
    flags.DEFINE_bool("single_program", True, meaning, flag_values=options)
    picture_option(options)
    output_options(options)
    return options
