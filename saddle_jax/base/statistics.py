"""What a few seeds tell: mean, standard deviation, Student's 95 % interval, and differences seed by seed."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

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

    @property
    def p(self) -> float | None:
        """Returns how likely a mean this far from 0 would be by chance, by Student's t, two-sided."""
        from scipy.special import stdtr

        if self.mean is None or not self.std:
            return None
        return float(2 * stdtr(self.seeds - 1, -abs(self.mean) * math.sqrt(self.seeds) / self.std))

    def within(self, bounds: tuple[float, float]) -> "Summary":
        """Cuts the interval of a mean where no number can lie, such as an accuracy above 100 %."""
        if self.low is None or self.high is None:
            return self
        return self._replace(low=max(self.low, bounds[0]), high=min(self.high, bounds[1]))

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


def mean_and_std(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation over the seeds of numbers [S, ...]; one seed deviates by 0."""
    return values.mean(axis=0), values.std(axis=0, ddof=min(1, len(values) - 1))


def half_interval(seeds: int) -> float:
    """Returns half the 95 % interval of a mean over so many seeds, at least two, in standard deviations."""
    from scipy.special import stdtrit  # the quantiles of Student's t, without the weight of scipy.stats

    return float(stdtrit(seeds - 1, (1 + _LEVEL) / 2)) / math.sqrt(seeds)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values corrected for their number (Holm 1979), each in its place.

    The smallest is multiplied by their number m, the next by m - 1, and so on; none falls below another one
    that is smaller by itself.
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected, least = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = least
    return corrected


def in_percent(logs: Summary) -> Summary:
    """Turns a summary of logarithms of ratios into changes in percent: the geometric mean and its interval.

    Ratios are not spread evenly around their mean, their logarithms are more so; no change is below -100 %.
    """
    mean, low, high = (
        None if end is None else 100 * math.expm1(end) for end in (logs.mean, logs.low, logs.high)
    )
    return Summary(logs.seeds, mean, None, low, high)


def differences(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    """Returns one - other for each seed that both have: what seeds share cancels out."""
    return {seed: one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())}


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> Summary:
    """Summarises the differences one - other over the seeds that both have."""
    return summarise(list(differences(one, other).values()))
