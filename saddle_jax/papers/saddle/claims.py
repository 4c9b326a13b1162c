"""What the paper's text says of its tables in numbers, each with the printed figures that it follows from.

A claim is a number, or the ends of a range, over differences between figures: gains of SADDLe over its base,
drops by compression, losses by a smaller alpha. The same formula gives ours, from runs.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from saddle_jax.papers.saddle import pairs
from saddle_jax.papers.saddle.experiments import Entry
from saddle_jax.papers.saddle.pairs import Difference

Numbers = tuple[float, ...]


class Claim(NamedTuple):
    """A sentence of the text with a number in it.

    Attributes:
      place: the table or section that it is about.
      text: what it says, in short.
      stated: the number as written, or the two ends of a range.
      differences: what it follows from.
      reduce: how the number follows from the differences.
      least: what the text writes for less: where compression gains something, it drops by 0.
    """

    place: str
    text: str
    stated: tuple[str, ...]
    differences: tuple[Difference, ...]
    reduce: Callable[[Sequence[float]], Numbers]
    least: float = -math.inf

    def value(self, means: Mapping[Entry, float]) -> tuple[Numbers | None, int]:
        """Computes the number from the means of entries, over the differences that they allow.

        Returns the number, or None if they allow no difference, and of how many differences it is.
        """
        found = [
            means[one] - (means[other] if other else 0.0)
            for one, other in self.differences
            if one in means and (other is None or other in means)
        ]
        return (self.reduce(found) if found else None), len(found)

    def printed(self) -> Numbers:
        """Computes the number from the printed tables, as the text would write it."""
        every = {entry for pair in self.differences for entry in pair if entry}
        value, _ = self.value({entry: entry.printed.mean for entry in every if entry.printed})
        assert value is not None
        return tuple(max(self.least, number) for number in value)

    def verdict(self) -> str:
        """Tells whether the tables round to what is stated: yes, nearly (within one unit), or no."""
        worst = 0.0
        for stated, value in zip(self.stated, self.printed(), strict=True):
            unit = 10.0 ** -len(stated.partition(".")[2])
            worst = max(worst, abs(value - float(stated)) / unit)
        if worst <= 0.5 + 1e-6:
            return "yes"
        return "nearly" if worst <= 1.0 else "no"


def mean(values: Sequence[float]) -> Numbers:
    """Returns the mean of all differences, alone."""
    return (statistics.fmean(values),)


def ends(values: Sequence[float]) -> Numbers:
    """Returns the smallest and the largest of them."""
    return min(values), max(values)


def alone(values: Sequence[float]) -> Numbers:
    """Returns the values one by one, as they are."""
    return tuple(values)


_BOTH = (("q_saddle", "qgm", "1 2 5"), ("n_saddle", "ngm", "3 4 5"))
_GAINS = tuple(pair for one in _BOTH for pair in pairs.gains(*one))
_COMPRESSED_GAINS = tuple(pair for one in _BOTH for pair in pairs.gains(*one, compressed=True))

CLAIMS = (
    Claim("abstract", "SADDLe gains 1-20 % (if uncompressed runs are meant)", ("1", "20"), _GAINS, ends),
    Claim(
        "abstract", "SADDLe gains 1-20 % (if compressed runs are meant)", ("1", "20"), _COMPRESSED_GAINS, ends
    ),
    Claim(
        "introduction",
        "SADDLe drops by 1 %, the average of Tables 1 to 4",
        ("1",),
        (*pairs.drops("q_saddle", "1 2"), *pairs.drops("n_saddle", "3 4")),
        mean,
    ),
    Claim(
        "introduction",
        "baselines drop by 4.3 % on average (if Tables 1 and 3 are meant)",
        ("4.3",),
        (*pairs.drops("qgm", "1"), *pairs.drops("ngm", "3")),
        mean,
    ),
    Claim(
        "introduction",
        "baselines drop by 4.3 % on average (if Tables 1 to 4 are meant)",
        ("4.3",),
        (*pairs.drops("qgm", "1 2"), *pairs.drops("ngm", "3 4")),
        mean,
    ),
    Claim(
        "Table 1", "CIFAR-10: 8.4 % better", ("8.4",), pairs.gains("q_saddle", "qgm", "1", "cifar10"), mean
    ),
    Claim("Table 1", "CIFAR-10: QGM drops 1-6 %", ("1", "6"), pairs.drops("qgm", "1", "cifar10"), ends, 0.0),
    Claim(
        "Table 1",
        "CIFAR-10: Q-SADDLe drops 0-1.5 %",
        ("0", "1.5"),
        pairs.drops("q_saddle", "1", "cifar10"),
        ends,
        0.0,
    ),
    Claim("Table 1", "CIFAR-100: ~6 % better", ("6",), pairs.gains("q_saddle", "qgm", "1", "cifar100"), mean),
    Claim(
        "Table 1", "CIFAR-100: QGM drops 1-8 %", ("1", "8"), pairs.drops("qgm", "1", "cifar100"), ends, 0.0
    ),
    Claim(
        "Table 1",
        "CIFAR-100: Q-SADDLe drops 0-1.8 %",
        ("0", "1.8"),
        pairs.drops("q_saddle", "1", "cifar100"),
        ends,
        0.0,
    ),
    Claim("Table 2", "Imagenette: ~12 % better", ("12",), pairs.gains("q_saddle", "qgm", "2"), mean),
    Claim("Table 2", "Imagenette: Q-SADDLe drops 0-2 %", ("0", "2"), pairs.drops("q_saddle", "2"), ends, 0.0),
    Claim("Table 2", "Imagenette: QGM drops 4-9 %", ("4", "9"), pairs.drops("qgm", "2"), ends, 0.0),
    Claim("Table 2", "QGM loses 8.5 % from alpha 0.01 to 0.001", ("8.5",), pairs.by_alpha("qgm", "2"), mean),
    Claim("Table 2", "Q-SADDLe nearly retains its accuracy", ("0",), pairs.by_alpha("q_saddle", "2"), mean),
    Claim(
        "Table 3", "CIFAR-10: 2.3 % better", ("2.3",), pairs.gains("n_saddle", "ngm", "3", "cifar10"), mean
    ),
    Claim(
        "Table 3", "CIFAR-100: 4.2 % better", ("4.2",), pairs.gains("n_saddle", "ngm", "3", "cifar100"), mean
    ),
    Claim("Table 3", "CIFAR-10: NGM drops ~1-8 %", ("1", "8"), pairs.drops("ngm", "3", "cifar10"), ends, 0.0),
    Claim(
        "Table 3",
        "CIFAR-10: N-SADDLe drops 0-0.3 %",
        ("0", "0.3"),
        pairs.drops("n_saddle", "3", "cifar10"),
        ends,
        0.0,
    ),
    Claim(
        "Table 3", "CIFAR-100: NGM drops ~2-11 %", ("2", "11"), pairs.drops("ngm", "3", "cifar100"), ends, 0.0
    ),
    Claim(
        "Table 3",
        "CIFAR-100: N-SADDLe drops 0-1.7 %",
        ("0", "1.7"),
        pairs.drops("n_saddle", "3", "cifar100"),
        ends,
        0.0,
    ),
    Claim(
        "Table 4",
        "Imagenette: 1.7 % better",
        ("1.7",),
        pairs.gains("n_saddle", "ngm", "4", "imagenette"),
        mean,
    ),
    Claim(
        "Table 4",
        "Imagenette: N-SADDLe drops 1.4 %",
        ("1.4",),
        pairs.drops("n_saddle", "4", "imagenette"),
        mean,
    ),
    Claim("Table 4", "Imagenette: NGM drops 3.7 %", ("3.7",), pairs.drops("ngm", "4", "imagenette"), mean),
    Claim(
        "Table 4", "ImageNet: 4.2 % better", ("4.2",), pairs.gains("n_saddle", "ngm", "4", "imagenet"), mean
    ),
    Claim("Table 4", "ImageNet: NGM drops 13 %", ("13",), pairs.drops("ngm", "4", "imagenet"), mean),
    Claim(
        "Table 4",
        "ImageNet: N-SADDLe drops about 1.5 %",
        ("1.5",),
        pairs.drops("n_saddle", "4", "imagenet"),
        mean,
    ),
    Claim("Table 5", "torus: Q-SADDLe 12 % better", ("12",), pairs.gains("q_saddle", "qgm", "5"), mean),
    Claim("Table 5", "torus: Q-SADDLe drops ~5 %", ("5",), pairs.drops("q_saddle", "5"), mean),
    Claim("Table 5", "torus: QGM drops ~11 %", ("11",), pairs.drops("qgm", "5"), mean),
    Claim("Table 5", "torus: N-SADDLe 0.7 % better", ("0.7",), pairs.gains("n_saddle", "ngm", "5"), mean),
    Claim(
        "Figure 4",
        "QGM drops from about 79 % to 73 %",
        ("79", "73"),
        ((pairs.level("qgm", "none"), None), (pairs.level("qgm", "quantize8"), None)),
        alone,
    ),
    Claim(
        "Figure 4",
        "Q-SADDLe drops ~0.7 %",
        ("0.7",),
        ((pairs.level("q_saddle", "none"), pairs.level("q_saddle", "quantize8")),),
        alone,
    ),
    Claim(
        "Figure 4",
        "NGM drops ~7 %",
        ("7",),
        ((pairs.level("ngm", "none"), pairs.level("ngm", "sign")),),
        alone,
    ),
    Claim(
        "Table 6",
        "efficient: 1.75 % below Q-SADDLe",
        ("1.75",),
        pairs.turned(pairs.efficient("q_saddle")),
        mean,
    ),
    Claim("Table 6", "efficient: about 10 % above QGM", ("10",), pairs.efficient("qgm"), mean),
    Claim(
        "Table 7",
        "CIFAR-10: D-SADDLe 10 % better",
        ("10",),
        pairs.gains("d_saddle", "dpsgd", "dpsgd", "cifar10"),
        mean,
    ),
    Claim(
        "Table 7",
        "CIFAR-100: D-SADDLe 5.4 % better",
        ("5.4",),
        pairs.gains("d_saddle", "dpsgd", "dpsgd", "cifar100"),
        mean,
    ),
    Claim(
        "Table 8",
        "top-30 %: QGM drops ~5-57 %",
        ("5", "57"),
        pairs.drops("qgm", "top-k", base="1"),
        ends,
        0.0,
    ),
    Claim(
        "Table 8",
        "top-30 %: Q-SADDLe drops ~0.6-18.5 %",
        ("0.6", "18.5"),
        pairs.drops("q_saddle", "top-k", base="1"),
        ends,
        0.0,
    ),
    Claim(
        "Table 9", "2 bits: NGM drops 4.4 % on average", ("4.4",), pairs.drops("ngm", "2-bit", base="3"), mean
    ),
    Claim(
        "Table 9",
        "2 bits: N-SADDLe drops 1.2 % on average",
        ("1.2",),
        pairs.drops("n_saddle", "2-bit", base="3"),
        mean,
    ),
)
