"""The network of a run, as its settings describe it: what goes wrong, and how long things take."""

import math
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.registry import Registry, Spec

if TYPE_CHECKING:
    from saddle_jax.core.faults import Faults, Timing

NONE = "none"  # nothing goes wrong; no time is simulated
FAULTS = Registry(
    "faults",
    {"faults": "saddle_jax.core.faults:Faults"},
    kinds=["saddle_jax.core.faults:Faults"],
    group="saddle_jax.faults",
)
TIMING = Registry(
    "timing",
    {"timing": "saddle_jax.settings.network:timing"},
    kinds=["saddle_jax.core.faults:Timing"],
    group="saddle_jax.timing",
)
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
_BITS = {"": 1.0, "bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12}


def make_faults(text: str, agents: int, numbers: Mapping[str, Any] | None = None) -> "Faults | None":
    """Makes what goes wrong on the network of a run, "faults(drop=0.1)"; None if nothing does.

    `numbers`, which may be arrays, take the place of options.
    """
    if text == NONE and not numbers:
        return None
    spec = Spec("faults") if text == NONE else FAULTS.parse(text)
    faults: Faults = FAULTS.make(FAULTS.with_options(spec, numbers or {}))
    faults.check_agents(agents)
    return faults if faults.loses or faults.delay else None


def make_timing(text: str, agents: int, numbers: Mapping[str, Any] | None = None) -> "Timing | None":
    """Makes how long messages and gradients take, "timing(latency='10ms')"; None if nobody says."""
    if text == NONE and not numbers:
        return None
    spec = Spec("timing") if text == NONE else _parsed(text)
    made: Timing = TIMING.make(TIMING.with_options(spec, numbers or {}))
    made.check_agents(agents)
    return made


def timing(
    latency: str | float = 0.0,
    bandwidth: str | float = math.inf,
    compute: str | float = 0.0,
    compute_sigma: float = 0.0,
) -> "Timing":
    """Says how long things take, with units or as files of measurements.

    Args:
      latency: time that a message takes, such as 10ms, or a file .npy [A, A].
      bandwidth: bits per second of a link, such as 100Mbit, or a file .npy [A, A].
      compute: time of one backward pass, such as 50ms, or a file .npy [A] or, as measured, [T, A].
      compute_sigma: sigma of the log-normal factors of compute, drawn per agent and step.
    """
    from saddle_jax.core.faults import Timing

    return Timing(
        latency=_loaded("latency", quantity("latency", latency)),
        bandwidth=_loaded("bandwidth", quantity("bandwidth", bandwidth)),
        compute=_loaded("compute", quantity("compute", compute)),
        compute_sigma=compute_sigma,
    )


def check_timing(text: str) -> None:
    """Checks how long things take as far as no file must be read and nothing be imported."""
    spec = TIMING.check(_parsed(text), (NONE,))
    if spec.name == NONE or not TIMING.is_ours(spec):
        return
    for name, value in given_times(text).items():
        if name != "compute_sigma":
            quantity(name, value)
    if not files_of(text):
        TIMING.make(spec)


def given_times(text: str) -> dict[str, Any]:
    """Returns the options that `timing` gives, as they are written; of a function of the user's none."""
    spec = _parsed(text)
    return TIMING.given(spec) if spec.name in TIMING.ours else {}


def files_of(text: str) -> dict[str, str]:
    """Returns the files of measurements that `timing` names, by option."""
    return {name: value for name, value in given_times(text).items() if str(value).endswith(".npy")}


def without_files(text: str) -> str:
    """Returns `timing` with times and rates in place of those that it takes from files.

    For whoever only opens a run again: its models are the same whatever time they took.
    """
    instead = {"latency": 0.0, "bandwidth": 1.0, "compute": 0.0}
    files = {name: instead[name] for name in files_of(text)}
    return str(TIMING.with_options(_parsed(text), files)) if files else text


def _parsed(text: str) -> Spec:
    """Reads how long things take; the name of a file of measurements needs no quotes."""

    def plain(value: Any) -> Any:
        return value.name if isinstance(value, Spec) and value.is_path else value

    spec = TIMING.parse(text, (NONE,))
    return Spec(spec.name, tuple(map(plain, spec.args)), tuple((k, plain(v)) for k, v in spec.kwargs))


def quantity(name: str, value: Any) -> Any:
    """Returns seconds, or bits per second, of a number or a text with a unit; the name of a file stays."""
    units, example, nothing = (
        (_BITS, "bits per second such as 100Mbit or 1Gbit", math.inf)
        if name == "bandwidth"
        else (_SECONDS, "a time such as 10ms or 0.5s", 0.0)
    )
    if not isinstance(value, str) or value.endswith(".npy"):
        return value
    found = re.fullmatch(r"(\d+\.?\d*(?:e[+-]?\d+)?)\s*([a-zA-Z]*)", value.strip())
    if not found or found.group(2) not in units:
        raise ArgumentError(f"{name} must be {example}, or a file .npy, got {value!r}")
    number = float(found.group(1)) * units[found.group(2)]
    if math.isinf(number) or (number == 0 and math.isinf(nothing)):  # nothing arrives without bandwidth
        least = "finite" if math.isinf(number) else "above 0"
        raise ArgumentError(f"{name} must be {least}, {example}, got {value!r}")
    return number


def _loaded(name: str, quantity: Any) -> Any:
    """Returns the numbers of a file that the settings name; others are numbers already."""
    if not isinstance(quantity, str):
        return quantity
    if not os.path.isfile(quantity):  # a pipe would be waited for
        raise ArgumentError(f"{name} must be a file, got {quantity!r}")
    import numpy as np

    try:
        return np.load(quantity, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ArgumentError(
            f"{name} must be a file that NumPy can read, got {quantity!r}: {error}"
        ) from error
