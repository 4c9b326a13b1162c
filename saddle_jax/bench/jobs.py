"""What the benchmarks are made of: options, jobs, and PyTorch where it is installed."""

import dataclasses
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

from saddle_jax import checks
from saddle_jax.bench.rows import Row

NO_PYTORCH = "PyTorch is not installed: pip install 'saddle_jax[bench]'"


@dataclasses.dataclass(frozen=True)
class Options:
    """How to measure.

    Attributes:
      quick: tiny sizes, to see that everything works.
      repeats: rounds, of which the median counts.
    """

    quick: bool = False
    repeats: int = 5

    def __post_init__(self):
        checks.whole("repeats", self.repeats, at_least=1)


class Job(NamedTuple):
    """One row to be measured."""

    case: str
    what: str
    run: Callable[[], Row]


def pytorch(module: str) -> ModuleType | None:
    """A module of the opponent; None where PyTorch is not installed."""
    try:
        return importlib.import_module(f"saddle_jax.bench.opponent.{module}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None
