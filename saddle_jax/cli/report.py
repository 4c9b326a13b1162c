"""saddle report, saddle figure: runs as a page to look at, and as the paper's figures."""

import pathlib
from collections.abc import Callable, Sequence

from absl import flags

from saddle_jax.base.errors import RunError
from saddle_jax.base.files import check_named_output
from saddle_jax.cli.usage import UsageError, parse


def run(arguments: Sequence[str]) -> None:
    """One HTML page for one run, or for a comparison of several."""
    options = flags.FlagValues()
    flags.DEFINE_string(
        "output",
        None,
        "File; report.html in the run's folder, or here for several, else.",
        flag_values=options,
    )
    folders = [pathlib.Path(name) for name in parse(options, arguments, ["DIR..."])]
    path = pathlib.Path(options.output or (folders[0] if len(folders) == 1 else ".")) / (
        "" if options.output else "report.html"
    )

    from saddle_jax.report.page import write_page

    def write() -> None:
        check_named_output(options.output)
        write_page(folders, path)

    _written(path, write)
    print(f"page: {path}")


def figure(arguments: Sequence[str]) -> None:
    """One of the paper's figures, from run folders."""
    from saddle_jax.report.figures import KINDS, draw

    options = flags.FlagValues()
    flags.DEFINE_string("output", None, "File; KIND.png here else.", flag_values=options)
    kind, *names = parse(options, arguments, ["KIND", "DIR..."])
    if kind not in KINDS:
        raise UsageError(f"KIND must be one of {', '.join(KINDS)}, got {kind!r}")
    path = pathlib.Path(options.output or f"{kind}.png")
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise UsageError(f"output must end in .png, .pdf or .svg, got {str(path)!r}")

    def write() -> None:
        check_named_output(options.output)
        draw(kind, [pathlib.Path(name) for name in names], path)

    _written(path, write)
    print(f"picture: {path}")


def _written(path: pathlib.Path, write: Callable[[], None]) -> None:
    try:
        write()
    except RunError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"output must be a file that can be written, got {str(path)!r}: {reason}") from error
