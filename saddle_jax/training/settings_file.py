"""Settings from a user's Python file, FILE.py[:VARIANT], whose get_config() returns them."""

import importlib.util
import pathlib
import sys
from typing import Any

from saddle_jax.base.checks import ArgumentError
from saddle_jax.training.config import Config


def load_settings(text: str) -> Config:
    """Runs the file and returns what its get_config(), or get_config(VARIANT), returns."""
    name, _, variant = text.partition(":")
    path = pathlib.Path(name)
    if not path.is_file():
        raise ArgumentError(f"config must be a file FILE.py[:VARIANT], got {text!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"config must be a Python file, got {text!r}")
    module: Any = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))  # overlays import their base
    try:
        spec.loader.exec_module(module)
        config = module.get_config(variant) if variant else module.get_config()
    except Exception as error:  # it is the user's own program
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ArgumentError(f"config {text}: {reason}") from error
    finally:
        sys.path.pop(0)
    if not isinstance(config, Config):
        raise ArgumentError(f"{name}: get_config() must return a saddle_jax.config.Config, got {config!r}")
    return config
