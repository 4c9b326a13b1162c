"""saddle report, saddle figure: runs as a page to look at, and as the paper's figures."""

import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.base import checks
from saddle_jax.base.files import check_named_output
from saddle_jax.cli.pictures import checked, output_option
from saddle_jax.cli.usage import UsageError, mistakes, parse, write_named
from saddle_jax.runs.run_folder import folders_below


def run(arguments: Sequence[str]) -> None:
    """Writes one HTML page for one run, or for a comparison of several."""
    options = flags.FlagValues()
    meaning = "HTML file to write (default: report.html, in DIR or, for several, here)."
    flags.DEFINE_string("output", None, meaning, flag_values=options)
    named = [pathlib.Path(name) for name in parse(options, arguments, ["DIR..."])]
    default = (named[0] if len(named) == 1 else pathlib.Path()) / "report.html"
    path = pathlib.Path(options.output or default)
    folders = _folders(named)

    from saddle_jax.report.page import write_page

    with mistakes():
        check_named_output(options.output)
    write_named("output", path, lambda: write_page(folders, path))
    print(f"page: {path}")


def _folders(names: Sequence[str | pathlib.Path]) -> list[pathlib.Path]:
    """Lists the folders of runs, and those of all runs below the folders of comparisons and sweeps."""
    folders = []
    for folder in map(pathlib.Path, names):
        is_run = (folder / "config.json").exists()
        folders += [folder] if is_run else folders_below(folder) or [folder]
    return folders


def figure(arguments: Sequence[str]) -> None:
    """Draws one of the paper's figures from run folders."""
    from saddle_jax.report.figures import AXES, KINDS, draw

    options = flags.FlagValues()
    axes = f"What curves are drawn against: {', '.join(AXES)} (default: epoch)."
    flags.DEFINE_string("x", None, axes, flag_values=options)
    paper = "Draw the paper's final figures across the curves of runs that reproduce one."
    flags.DEFINE_bool("paper", False, paper, flag_values=options)
    output_option(options, "Picture to write", "KIND.png, here")
    kind, *names = parse(options, arguments, ["KIND", "DIR..."])
    with mistakes():
        checks.known("KIND", kind, KINDS)
    if options.x is not None and (kind != "curves" or options.x not in AXES):
        raise UsageError(f"x must be one of {', '.join(AXES)}, for curves, got {options.x!r} for {kind}")
    if options.paper and kind != "curves":
        raise UsageError(f"paper must be for curves, got it for {kind}")
    path, workdirs = checked(options.output, f"{kind}.png"), _folders(names)
    write_named("output", path, lambda: draw(kind, workdirs, path, options.x, options.paper))
    print(f"picture: {path}")
