"""Packages that only the extras bring: a verb that misses one says in one line how to install it."""

import contextlib
import importlib.util
from collections.abc import Iterator

from saddle_jax.cli.usage import UsageError

# What each extra brings and `pip install saddle_jax` does not, by the names of modules.
BY_EXTRA = {
    "train": (
        "flax",
        "PIL",
        "orbax",
        "orbax.checkpoint",
        "safetensors",
        "tensorboardX",
        "tensorflow_datasets",
        "tqdm",
    ),
    "report": ("matplotlib",),
}
OPTIONAL = {name for names in BY_EXTRA.values() for name in names}


@contextlib.contextmanager
def missing_extras(verb: str) -> Iterator[None]:
    """Turns a missing package that only the extras bring into a UsageError; any other is a bug."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        raise UsageError(
            f"{error.name} is not installed: {verb} needs pip install 'saddle_jax[all]'"
        ) from error


def require(*modules: str) -> None:
    """Raises ModuleNotFoundError for a missing module now, before hours of training, not at their end."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
