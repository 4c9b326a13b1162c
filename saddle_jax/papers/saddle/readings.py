"""What the paper leaves open, read otherwise than our defaults do: settings that an experiment may be given.

A reading that means nothing to a run leaves it as it is: an order of compressed gossip where nothing is
compressed, a self-gradient of QGM. Such a run is that of the default reading, and is not made twice.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from saddle_jax.methods import options_of
from saddle_jax.runs.run_name import safe
from saddle_jax.settings.config import Config

SETTINGS = ("order", "nesterov", "self_gradient", "ascent_reuse", "norm")
_BIASED = "_biased"


def read_otherwise(config: Config, readings: Mapping[str, Any]) -> Config:
    """Returns a run's settings with the readings that mean something to it.

    Args:
      config: the settings of an entry.
      readings: values by name of SETTINGS, and "biased": whether quantizers are divided by tau.
    """
    changes = {name: value for name, value in readings.items() if _has(config, name)}
    biased = changes.pop("biased", None)
    if biased is not None:
        changes["compressor"] = config.compressor.removesuffix(_BIASED) + (_BIASED if biased else "")
    return dataclasses.replace(config, **changes)


def _has(config: Config, name: str) -> bool:
    if name == "biased":
        return config.compressor.startswith("quantize")
    if name == "order":
        return config.compressor != "none" and "order" in options_of(config.method)
    if name == "ascent_reuse":
        return config.ascent_every > 1
    return name == "norm" or name in options_of(config.method)


def ending(config: Config, default: Config) -> str:
    """Names what a reading changed, to go behind a run's name: "-order=paper"; "" if it changed nothing."""
    names = ("compressor", *SETTINGS)
    changed = {
        name: getattr(config, name) for name in names if getattr(config, name) != getattr(default, name)
    }
    return "".join(f"-{safe(text)}" for text in written(changed))


def written(readings: Mapping[str, Any]) -> list[str]:
    """Writes readings as people and folders read them: order=paper, nesterov=false."""
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in readings.items()
    ]
