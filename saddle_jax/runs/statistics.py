"""Statistics over a few seeds: mean, standard deviation, Student's 95 % interval, and paired differences."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

_LEVEL = 0.95


class Summary(NamedTuple):
    """Summary statistics over seeds; what too few seeds cannot determine is None.

    Attributes:
      seeds: the number of values; 0 for a difference between means over different seeds.
      mean: the mean.
      std: the sample standard deviation (n - 1).
      low: the lower end of the mean's 95 % interval, by Student's t with n - 1 degrees of freedom.
      high: its upper end.
    """

    seeds: int
    mean: float | None = None
    std: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def p(self) -> float | None:
        """The two-sided p-value of Student's t-test against a mean of 0."""
        from scipy.special import stdtr

        if self.mean is None or not self.std:
            return None
        return float(2 * stdtr(self.seeds - 1, -abs(self.mean) * math.sqrt(self.seeds) / self.std))

    def within(self, bounds: tuple[float, float]) -> "Summary":
        """Clips the interval of the mean to these bounds, such as 0 to 100 for an accuracy in percent."""
        if self.low is None or self.high is None:
            return self
        return self._replace(low=max(self.low, bounds[0]), high=min(self.high, bounds[1]))

    def interval(self, digits: str = ".2f") -> str:
        """Formats the interval as "[70.21, 72.19]"; "-" if there is none."""
        return "-" if self.low is None else f"[{self.low:{digits}}, {self.high:{digits}}]"


def signed(value: float | None, digits: str = ".2f") -> str:
    """Formats a difference with its sign as "+1.30"; "-" if there is none."""
    return "-" if value is None else f"{value:+{digits}}"


def summarise(values: Sequence[float]) -> Summary:
    """Computes mean, standard deviation and 95 % interval of independent values."""
    if not values:
        return Summary(0)
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Summary(1, mean)
    std = statistics.stdev(values)
    half = half_interval(len(values)) * std
    return Summary(len(values), mean, std, mean - half, mean + half)


def mean_and_std(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation over the seeds of values [S, ...]; the latter is 0 for one seed."""
    return values.mean(axis=0), values.std(axis=0, ddof=min(1, len(values) - 1))


def half_interval(seeds: int) -> float:
    """Returns half the width of a mean's 95 % interval over two or more seeds, in standard deviations."""
    from scipy.special import stdtrit  # the quantiles of Student's t, without the weight of scipy.stats

    return float(stdtrit(seeds - 1, (1 + _LEVEL) / 2)) / math.sqrt(seeds)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values in their order, corrected for multiple comparisons (Holm, 1979).

    The smallest of m is multiplied by m, the next by m - 1, and so on, keeping their order.
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected, least = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = least
    return corrected


def in_percent(logs: Summary) -> Summary:
    """Converts a summary of log ratios to percentage changes: the geometric mean and its interval.

    Log ratios are closer to symmetric around their mean than ratios are, and no change is below -100 %.
    """
    mean, low, high = (
        None if end is None else 100 * math.expm1(end) for end in (logs.mean, logs.low, logs.high)
    )
    return Summary(logs.seeds, mean, None, low, high)


def differences(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    """Returns one - other for each seed that both have, which cancels their common variation."""
    return {seed: one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())}


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> Summary:
    """Summarises the differences one - other over the seeds that both have."""
    return summarise(list(differences(one, other).values()))
