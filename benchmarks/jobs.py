"""What the benchmarks are made of: options, jobs, and PyTorch where it is installed."""

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple

from benchmarks.rows import Row
from benchmarks.work import Work
from saddle_jax.base import checks
from saddle_jax.kernels.convolution import LOWERINGS, Lowering

NO_PYTORCH = "PyTorch is not installed: pip install 'saddle_jax[bench]'"


@dataclasses.dataclass(frozen=True)
class Options:
    """The options by which the benchmarks measure.

    Attributes:
      quick: tiny sizes, to see that everything works.
      repeats: rounds, of which the median counts.
      lowering, group: how our side computes agents, see `Work`.
    """

    quick: bool = False
    repeats: int = 5
    lowering: Lowering = "auto"
    group: int = 0

    def __post_init__(self):
        checks.whole("repeats", self.repeats, at_least=1)
        checks.choice("lowering", self.lowering, LOWERINGS)
        checks.whole("group", self.group, at_least=0)

    def applied(self, works: Sequence[Work]) -> list[Work]:
        """Returns the works, computed with these options."""
        return [dataclasses.replace(work, lowering=self.lowering, group=self.group) for work in works]


class Job(NamedTuple):
    """One row of the table that is still to be measured."""

    case: str
    what: str
    run: Callable[[], Row]


def pytorch(module: str) -> ModuleType | None:
    """Imports a module of the opponent; returns None where PyTorch is not installed."""
    try:
        return importlib.import_module(f"benchmarks.baselines.pytorch.{module}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None
