"""The network of a run, as its settings describe it: what goes wrong, and how long things take."""

import math
import os
import re
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.core.faults import Faults, LostWeight, Timing

if TYPE_CHECKING:
    from saddle_jax.settings.config import Config

_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
_BITS = {"": 1.0, "bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12}


def check_seconds(name: str, text: str) -> Any:
    """Checks a time such as 10ms, or the name of a file .npy, and returns the seconds or that name."""
    return _quantity(name, text, _SECONDS, "a time such as 10ms or 0.5s", 0.0)


def check_bandwidth(name: str, text: str) -> Any:
    """Checks bits per second such as 100Mbit, or the name of a file .npy, and returns them or that name."""
    return _quantity(name, text, _BITS, "bits per second such as 100Mbit or 1Gbit", math.inf)


def check_steps(name: str, text: str) -> dict[int, int]:
    """Returns {agent: step} of a text such as 3:100,7:250."""
    if not text:
        return {}
    if not re.fullmatch(r"\d{1,9}:\d{1,9}(,\d{1,9}:\d{1,9})*", text):
        raise ArgumentError(
            f"{name} must be AGENT:STEP with commas between, such as 3:100,7:250, got {text!r}"
        )
    pairs = [pair.split(":") for pair in text.split(",")]
    steps = {int(agent): int(step) for agent, step in pairs}
    if len(steps) < len(pairs):
        raise ArgumentError(f"{name} must name each agent once, got {text!r}")
    return steps


def faults_of(config: "Config") -> Faults | None:
    """Returns what goes wrong on the network of a run; None if nothing does."""
    faults = Faults(
        drop=config.drop,
        offline=config.offline,
        delay=config.delay,
        symmetric=config.symmetric,
        lost_weight=cast(LostWeight, config.lost_weight),
        burst=config.burst or None,
        mean_offline=config.mean_offline or None,
        computes=config.offline_computes,
        joins=check_steps("joins", config.joins) or None,
        leaves=check_steps("leaves", config.leaves) or None,
    )
    faults.check_agents(config.agents)
    return faults if faults.loses or faults.delay else None


def timing_of(config: "Config") -> Timing | None:
    """Returns how long messages and gradients take; None if the settings do not say."""
    if not (config.latency or config.bandwidth or config.compute_time):
        return None
    timing = Timing(
        latency=_loaded("latency", check_seconds("latency", config.latency)),
        bandwidth=_loaded("bandwidth", check_bandwidth("bandwidth", config.bandwidth)),
        compute=_loaded("compute_time", check_seconds("compute_time", config.compute_time)),
        compute_sigma=config.compute_sigma,
    )
    timing.check_agents(config.agents)
    return timing


def without_files(config: "Config") -> dict[str, Any]:
    """Returns times and rates in place of those that the settings take from files.

    For whoever only opens a run again: its models are the same whatever time they took.
    """
    instead = {"latency": "0s", "bandwidth": "1bit", "compute_time": "0s"}
    return {name: value for name, value in instead.items() if getattr(config, name).endswith(".npy")}


def _quantity(name: str, text: str, units: dict[str, float], example: str, nothing: float) -> Any:
    if not text:
        return nothing
    if text.endswith(".npy"):
        return text
    found = re.fullmatch(r"(\d+\.?\d*(?:e[+-]?\d+)?)\s*([a-zA-Z]*)", text.strip())
    if not found or found.group(2) not in units:
        raise ArgumentError(f"{name} must be {example}, or a file .npy, got {text!r}")
    value = float(found.group(1)) * units[found.group(2)]
    if math.isinf(value) or (value == 0 and math.isinf(nothing)):  # nothing arrives without bandwidth
        least = "finite" if math.isinf(value) else "above 0"
        raise ArgumentError(f"{name} must be {least}, {example}, got {text!r}")
    return value


def _loaded(name: str, quantity: Any) -> Any:
    """Returns the numbers of a file that the settings name; others are numbers already."""
    if not isinstance(quantity, str):
        return quantity
    if not os.path.isfile(quantity):  # a pipe would be waited for
        raise ArgumentError(f"{name} must be a file, got {quantity!r}")
    try:
        return np.load(quantity, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ArgumentError(
            f"{name} must be a file that NumPy can read, got {quantity!r}: {error}"
        ) from error
