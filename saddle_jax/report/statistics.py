"""What a few seeds tell: mean, standard deviation, Student's 95 % interval, and differences seed by seed."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_LEVEL = 0.95


class Summary(NamedTuple):
    """Numbers of several seeds in short; what so few do not tell is None.

    Attributes:
      seeds: how many numbers there are; 0 of a difference between means over different seeds.
      mean: their mean.
      std: their standard deviation, with n - 1.
      low: where the 95 % interval of the mean begins, by Student's t with n - 1 degrees of freedom.
      high: where it ends.
    """

    seeds: int
    mean: float | None = None
    std: float | None = None
    low: float | None = None
    high: float | None = None

    def interval(self, digits: str = ".2f") -> str:
        """Formats the interval, such as "[70.21, 72.19]"; "-" if there is none."""
        return "-" if self.low is None else f"[{self.low:{digits}}, {self.high:{digits}}]"


def signed(value: float | None, digits: str = ".2f") -> str:
    """Formats a difference with its sign, such as "+1.30"; "-" if there is none."""
    return "-" if value is None else f"{value:+{digits}}"


def summarise(values: Sequence[float]) -> Summary:
    """Returns mean, standard deviation and 95 % interval of the mean of numbers that are independent."""
    if not values:
        return Summary(0)
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Summary(1, mean)
    std = statistics.stdev(values)
    half = half_interval(len(values)) * std
    return Summary(len(values), mean, std, mean - half, mean + half)


def half_interval(seeds: int) -> float:
    """Returns half the 95 % interval of a mean over so many seeds, at least two, in standard deviations."""
    from scipy.special import stdtrit  # the quantiles of Student's t, without the weight of scipy.stats

    return float(stdtrit(seeds - 1, (1 + _LEVEL) / 2)) / math.sqrt(seeds)


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> Summary:
    """Summarises the differences one - other over the seeds that both have: what seeds share cancels out."""
    return summarise([one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())])
