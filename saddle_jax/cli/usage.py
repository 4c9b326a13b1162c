"""What the verbs share: how a user's mistake is told, and options of one verb."""

import contextlib
import importlib.util
import math
import sys
from collections.abc import Iterator, Sequence

from absl import flags

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import RunError

# What `pip install 'saddle_jax[all]'` brings and `pip install saddle_jax` does not, by the names of modules.
OPTIONAL = {
    "flax",
    "matplotlib",
    "orbax",
    "orbax.checkpoint",  # others of its makers share the first name
    "PIL",
    "safetensors",
    "tensorboardX",
    "tensorflow_datasets",
    "tqdm",
}


class UsageError(Exception):
    """A user's mistake: printed in one line, exit status 2, no traceback."""


@contextlib.contextmanager
def missing_extras(verb: str) -> Iterator[None]:
    """A package that only the extras bring is the user's to install; any other that is missing is a bug."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        raise UsageError(
            f"{error.name} is not installed: {verb} needs pip install 'saddle_jax[all]'"
        ) from error


def require(*modules: str) -> None:
    """A missing module is a ModuleNotFoundError now, before hours of training, not at their end."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextlib.contextmanager
def mistakes() -> Iterator[None]:
    """What the library refuses, and files that cannot be used, are the user's mistakes."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (RunError, ArgumentError) as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise UsageError(f"{where}{error.strerror or error}") from error


def data_dir_option(options: flags.FlagValues) -> None:
    """Defines --data_dir of the verbs that open runs again."""
    meaning = "Of runs: where the data lies; TFDS_DATA_DIR else, whatever DIR says."
    flags.DEFINE_string("data_dir", None, meaning, flag_values=options)


def parse(options: flags.FlagValues, arguments: Sequence[str], positional: Sequence[str] = ()) -> list[str]:
    """Reads a verb's options; returns its other arguments, of which there must be as many as named.

    A last name such as "DIR..." stands for one or more, "[DIR]" for one or none, "[CASE ...]" for any number.
    """
    if "--help" in arguments or "-h" in arguments:
        print(f"usage: saddle ... {' '.join(positional)} [options]\n{options.get_help()}")
        sys.exit(0)
    try:
        found = options(["saddle", *arguments])[1:]
    except flags.Error as error:
        raise UsageError(str(error).splitlines()[0]) from error
    least = sum(not name.startswith("[") for name in positional)
    most = math.inf if any("..." in name for name in positional) else len(positional)
    if not least <= len(found) <= most:
        wanted = " ".join(positional) or "nothing"
        raise UsageError(f"arguments must be {wanted} and options, got {' '.join(found) or 'nothing'}")
    return found
