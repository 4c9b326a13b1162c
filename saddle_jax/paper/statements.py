"""What the paper says of its methods in words, each statement with the runs that could show it wrong.

A statement is about a quantity of runs that differ in one thing; it says which of two is larger. Differences
are taken seed by seed. The numbers that the text gives are in `claims`.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from saddle_jax.paper import pairs
from saddle_jax.paper.experiments import Entry

# What is measured of a run: the last accuracy in percent, the largest eigenvalue of the Hessian at its end,
# backward passes, or the mean over its logged steps of what diagnostics log.
Quantity = Literal[
    "accuracy",
    "lambda_max",
    "passes",
    "compression_error",
    "gradient_compression_error",
    "gradient_norm",
]


class Contrast(NamedTuple):
    """Runs of one problem to hold against each other.

    Attributes:
      one: the entry that the statement is about.
      other: what it is compared with.
      bases: for a difference of differences, what `one` and `other` are first compared with, each.
    """

    one: Entry
    other: Entry
    bases: tuple[Entry, Entry] | None = None


class Statement(NamedTuple):
    """A sentence about which of two is larger.

    Attributes:
      name: a word or two for tables and pictures.
      text: what the paper says, in short.
      quantity: what is compared.
      sign: 1 if `one` is said to be above `other`, -1 if below.
      contrasts: where it can be tested.
    """

    name: str
    text: str
    quantity: Quantity
    sign: Literal[1, -1]
    contrasts: tuple[Contrast, ...]

    @property
    def is_relative(self) -> bool:
        """Tells whether differences are in percent of the other; accuracies differ in percentage points."""
        return self.quantity != "accuracy"


# Methods with SADDLe, without, and the tables that have both.
_METHODS = (
    ("d_saddle", "dpsgd", "dpsgd"),
    ("q_saddle", "qgm", "1 2 5 top-k"),
    ("n_saddle", "ngm", "3 4 5 2-bit"),
)
_BASES = {"top-k": "1", "2-bit": "3"}


def _contrasts(differences: Sequence[pairs.Difference]) -> tuple[Contrast, ...]:
    return tuple(Contrast(one, other) for one, other in differences if other is not None)


def _gains(*, compressed: bool, methods: Sequence[str] = ("d_saddle", "q_saddle", "n_saddle")) -> tuple:
    found = [
        pair
        for one, other, tables in _METHODS
        if one in methods
        for pair in pairs.gains(one, other, tables, compressed=compressed)
    ]
    return _contrasts(found)


def _smaller_drops() -> tuple[Contrast, ...]:
    """Holds what compression does to SADDLe against what it does to the base method."""
    found = []
    for one, other, tables in _METHODS:
        for table in tables.split():
            ours = pairs.drops(one, table, base=_BASES.get(table))
            theirs = pairs.drops(other, table, base=_BASES.get(table))
            found += [
                Contrast(compressed, base, (full, base_full))
                for full, compressed in ours
                for base_full, base in theirs
                if compressed is not None and base is not None
                if (base.problem, base.compressor) == (compressed.problem, compressed.compressor)
            ]
    return tuple(found)


_ALL = (*_gains(compressed=False), *_gains(compressed=True))

STATEMENTS = (
    Statement("accuracy", "SADDLe is above its base method", "accuracy", 1, _ALL),
    Statement("drop", "compression costs SADDLe less than its base method", "accuracy", 1, _smaller_drops()),
    Statement("flatness", "SADDLe ends where lambda_max is lower", "lambda_max", -1, _ALL),
    Statement(
        "compression error",
        "the compression error of models is lower with SADDLe",
        "compression_error",
        -1,
        _gains(compressed=True, methods=["q_saddle"]),
    ),
    Statement(
        "gradient error",
        "the compression error of gradients is lower with SADDLe",
        "gradient_compression_error",
        -1,
        _gains(compressed=True, methods=["n_saddle"]),
    ),
    Statement(
        "gradient norm",
        "gradients are smaller with SADDLe",
        "gradient_norm",
        -1,
        _gains(compressed=True, methods=["n_saddle"]),
    ),
    Statement(
        "efficient",
        "the compute-efficient variant is above QGM",
        "accuracy",
        1,
        _contrasts(pairs.efficient("qgm")),
    ),
    Statement(
        "efficient loses",
        "it is below Q-SADDLe",
        "accuracy",
        -1,
        _contrasts(pairs.efficient("q_saddle")),
    ),
    Statement(
        "efficient costs",
        "it takes fewer backward passes than Q-SADDLe (1.66 times)",
        "passes",
        -1,
        _contrasts(pairs.efficient("q_saddle")),
    ),
)
