"""What the verbs share: one line for a user's mistake, and how options are read."""

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from absl import flags

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError, printable
from saddle_jax.base.user_code import UserCodeError
from saddle_jax.cli.helping import HelpWanted
from saddle_jax.cli.option_texts import nearest_option
from saddle_jax.cli.statuses import MISTAKE, reported, status_of

_LONGEST = 2_000  # letters of a line about a mistake


class UsageError(Exception):
    """A user's mistake: printed in one line, exit status 2, no traceback but of the user's own program.

    Damaged files are reported the same way, with exit status 3.
    """

    def __init__(self, message: str, status: int = MISTAKE):
        super().__init__(message)
        self.status = status

    def tell(self) -> None:
        """Prints the line, and below it where the user's own program failed, if it did."""
        text = printable(str(self))
        if len(text) > _LONGEST:  # what was given may be a whole file
            text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 4 :]}"
        print(f"saddle: {text}", file=sys.stderr)
        if isinstance(self.__cause__, UserCodeError):
            print(self.__cause__.trace, end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def mistakes() -> Iterator[None]:
    """Turns what the library refuses, and files that cannot be used, into a UsageError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (RunError, ArgumentError) as error:
        raise UsageError(str(error), status_of(error)) from error
    except OSError as error:
        raise UsageError(reported(error)) from error


def write_named(
    option: str,
    path: str | os.PathLike,
    write: Callable[[], None],
    refusals: tuple[type[Exception], ...] = (OSError,),
) -> None:
    """Calls `write`, which writes the file that an option names; what it refuses is a UsageError."""
    try:
        write()
    except RunError as error:
        raise UsageError(str(error), status_of(error)) from error
    except refusals as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{option} must be a file that can be written, got {str(path)!r}: {reason}"
        ) from error


def parse(options: flags.FlagValues, arguments: Sequence[str], positional: Sequence[str] = ()) -> list[str]:
    """Reads a verb's options; returns its other arguments, of which there must be as many as named.

    A last name such as "DIR..." stands for one or more, "[DIR]" for one or none, "[CASE ...]" for any number.
    """
    if "--help" in arguments or "-h" in arguments:
        raise HelpWanted(options, positional)
    for word in arguments:
        name = word.partition("=")[2]
        is_flagfile = word.lstrip("-").startswith("flagfile=")
        if is_flagfile and not os.path.isfile(name):  # a pipe would be waited for
            raise UsageError(f"flagfile must be a file, got {name!r}")
    try:
        values = options(["saddle", *arguments])[1:]
    except flags.UnrecognizedFlagError as error:
        hint = nearest_option(error.flagname, options)
        raise UsageError(f"there is no option --{error.flagname} here{hint}") from error
    except flags.Error as error:
        raise UsageError(str(error).splitlines()[0]) from error
    except UnicodeDecodeError as error:
        raise UsageError("flagfile must be a text of options, one in a line, got no text") from error
    least = sum(not name.startswith("[") for name in positional)
    most = math.inf if any("..." in name for name in positional) else len(positional)
    if not least <= len(values) <= most:
        names = " ".join(positional) or "nothing"
        raise UsageError(f"arguments must be {names} and options, got {' '.join(values) or 'nothing'}")
    return values
