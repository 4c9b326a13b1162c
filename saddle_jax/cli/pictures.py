"""Files of pictures: which endings there are, and how an option names one."""

import pathlib

from absl import flags

from saddle_jax.base.files import check_named_output
from saddle_jax.cli.usage import UsageError, mistakes

ENDINGS = ("png", "pdf", "svg")


def picture_option(options: flags.FlagValues) -> None:
    """Defines --picture, the format of a picture whose place is fixed."""
    meaning = "Format of the picture of curves."
    flags.DEFINE_enum("picture", ENDINGS[0], ENDINGS, meaning, flag_values=options)


def output_option(options: flags.FlagValues, what: str, default: str, name: str = "output") -> None:
    """Defines an option that names the file of a picture."""
    meaning = f"{what}: a .png, .pdf or .svg file (default: {default})."
    flags.DEFINE_string(name, None, meaning, flag_values=options)


def checked(name: str | None, default: str | pathlib.Path, option: str = "output") -> pathlib.Path:
    """Returns the file of a picture, before anything is computed for it; a wrong one is a UsageError."""
    path = pathlib.Path(name or default)
    if path.suffix.removeprefix(".") not in ENDINGS:
        raise UsageError(f"{option} must end in .png, .pdf or .svg, got {str(path)!r}")
    with mistakes():
        check_named_output(name, option)
    return path
