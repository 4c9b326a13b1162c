"""saddle report, saddle figure: runs as a page to look at, and as the paper's figures."""

import pathlib
from collections.abc import Sequence

from absl import flags

from saddle_jax.base.files import check_named_output
from saddle_jax.cli.usage import UsageError, mistakes, parse, write_named


def run(arguments: Sequence[str]) -> None:
    """Writes one HTML page for one run, or for a comparison of several."""
    options = flags.FlagValues()
    meaning = "File to write (default: report.html, in the run's folder or, for several runs, here)."
    flags.DEFINE_string("output", None, meaning, flag_values=options)
    folders = [pathlib.Path(name) for name in parse(options, arguments, ["DIR..."])]
    default = (folders[0] if len(folders) == 1 else pathlib.Path()) / "report.html"
    path = pathlib.Path(options.output or default)

    from saddle_jax.report.page import write_page

    with mistakes():
        check_named_output(options.output)
    write_named("output", path, lambda: write_page(folders, path))
    print(f"page: {path}")


def figure(arguments: Sequence[str]) -> None:
    """Draws one of the paper's figures from run folders."""
    from saddle_jax.report.curves import AXES
    from saddle_jax.report.figures import KINDS, draw

    options = flags.FlagValues()
    axes = f"What curves are drawn against: {', '.join(AXES)} (default: epoch)."
    flags.DEFINE_string("x", None, axes, flag_values=options)
    flags.DEFINE_string("output", None, "File to write (default: KIND.png, here).", flag_values=options)
    kind, *names = parse(options, arguments, ["KIND", "DIR..."])
    if kind not in KINDS:
        raise UsageError(f"KIND must be one of {', '.join(KINDS)}, got {kind!r}")
    if options.x is not None and (kind != "curves" or options.x not in AXES):
        raise UsageError(f"x must be one of {', '.join(AXES)}, for curves, got {options.x!r} for {kind}")
    path = pathlib.Path(options.output or f"{kind}.png")
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise UsageError(f"output must end in .png, .pdf or .svg, got {str(path)!r}")
    with mistakes():
        check_named_output(options.output)
    write_named("output", path, lambda: draw(kind, [pathlib.Path(name) for name in names], path, options.x))
    print(f"picture: {path}")
