"""Settings from a user's Python file, FILE.py[:VARIANT], whose get_config() returns them."""

import contextlib
import pathlib

from saddle_jax.base import brought, sources
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import one_line
from saddle_jax.settings.config import Config


def load_settings(text: str) -> Config:
    """Runs the file and returns what its get_config(), or get_config(VARIANT), returns."""
    name, variant = _split(text)
    path = pathlib.Path(name)
    file = sources.read("config", path)
    try:
        with brought.folder_on_path(path):  # overlays import their base
            module = brought.run_file(file)
            config = module.get_config(variant) if variant else module.get_config()
    except (Exception, SystemExit) as error:  # it is the user's own program
        raise ArgumentError(f"config {text}: {type(error).__name__}: {one_line(error)}") from error
    if not isinstance(config, Config):
        raise ArgumentError(f"{name}: get_config() must return a saddle_jax.config.Config, got {config!r}")
    return config


def _split(text: str) -> tuple[str, str]:
    """Returns file and variant; a colon may be part of the file's path, too."""
    parts = text.split(":")
    for count in range(len(parts), 0, -1):
        name = ":".join(parts[:count])
        with contextlib.suppress(ValueError):  # a name that no file can have
            if pathlib.Path(name).is_file():
                return name, ":".join(parts[count:])
    raise ArgumentError(f"config must be a file FILE.py[:VARIANT], got {text!r}")
