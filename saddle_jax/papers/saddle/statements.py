"""What the paper says of its methods in words, each statement with the runs that could show it wrong.

A statement is about a quantity of runs that differ in one thing; it says which of two is larger. Differences
are taken seed by seed. The numbers that the text gives are in `claims`.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from saddle_jax.papers.saddle import pairs
from saddle_jax.papers.saddle.experiments import Entry

# What is measured of a run: the last accuracy in percent, or that of its best evaluation; the largest
# eigenvalue of the Hessian at its end; backward passes, which are counted; or the mean over its logged steps
# of what diagnostics log.
Quantity = Literal[
    "accuracy",
    "best_accuracy",
    "lambda_max",
    "passes",
    "compression_error",
    "compression_input",
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
      text: what the paper says, in short; in brackets where it does not say so.
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
        return self.quantity not in ("accuracy", "best_accuracy")


# Methods with SADDLe, without, and the tables that have both.
_METHODS = (
    ("d_saddle", "dpsgd", "dpsgd"),
    ("q_saddle", "qgm", "1 2 5 top-k"),
    ("n_saddle", "ngm", "3 4 5 2-bit"),
)
_BASES = {"top-k": "1", "2-bit": "3"}


def _contrasts(differences: Sequence[pairs.Difference]) -> tuple[Contrast, ...]:
    return tuple(Contrast(one, other) for one, other in differences if other is not None)


def _gains(
    *, compressed: bool, methods: Sequence[str] = ("d_saddle", "q_saddle", "n_saddle")
) -> tuple[Contrast, ...]:
    found = [
        pair
        for one, other, tables in _METHODS
        if one in methods
        for pair in pairs.gains(one, other, tables, compressed=compressed)
    ]
    return _contrasts(found)


def _drops(method: str, tables: str) -> list[Contrast]:
    """Holds compressed runs of a method against uncompressed ones."""
    return [
        Contrast(compressed, full)
        for table in tables.split()
        for full, compressed in pairs.drops(method, table, base=_BASES.get(table))
        if compressed is not None
    ]


def _smaller_drops() -> tuple[Contrast, ...]:
    """Holds what compression does to SADDLe against what it does to the base method."""
    return tuple(
        Contrast(compressed, base, (full, base_full))
        for one, other, tables in _METHODS
        for compressed, full, _ in _drops(one, tables)
        for base, base_full, _ in _drops(other, tables)
        if (base.problem, base.compressor) == (compressed.problem, compressed.compressor)
    )


def _efficient(method: str) -> tuple[Contrast, ...]:
    return _contrasts([*pairs.efficient(method), *pairs.efficient(method, compressed=True)])


_ALL = (*_gains(compressed=False), *_gains(compressed=True))
_QGM = (
    *_gains(compressed=True, methods=["q_saddle"]),
    *_contrasts(pairs.gains("q_saddle", "qgm", "compression", compressed=True)),
)
_NGM = _gains(compressed=True, methods=["n_saddle"])
_COMPRESSED = tuple(
    drop for *methods, tables in _METHODS for method in methods for drop in _drops(method, tables)
)

STATEMENTS = (
    Statement("accuracy", "SADDLe is above its base method", "accuracy", 1, _ALL),
    Statement("best", "(so it is with each run's best evaluation)", "best_accuracy", 1, _ALL),
    Statement(
        "equal passes",
        "(so it is above its base with as many backward passes)",
        "accuracy",
        1,
        _contrasts(pairs.as_many_passes()),
    ),
    Statement("drop", "compression costs SADDLe less than its base method", "accuracy", 1, _smaller_drops()),
    Statement("flatness", "SADDLe ends where lambda_max is lower", "lambda_max", -1, _ALL),
    Statement("sharper", "compressed models are sharper than others", "lambda_max", 1, _COMPRESSED),
    Statement(
        "model error", "the compression error of models is lower with SADDLe", "compression_error", -1, _QGM
    ),
    Statement("model updates", "what is compressed of models is smaller", "compression_input", -1, _QGM),
    Statement(
        "gradient error",
        "the compression error of gradients is lower with SADDLe",
        "gradient_compression_error",
        -1,
        _NGM,
    ),
    Statement("gradient norm", "gradients are smaller with SADDLe", "gradient_norm", -1, _ALL),
    Statement("efficient", "the compute-efficient variant is above QGM", "accuracy", 1, _efficient("qgm")),
    Statement("efficient loses", "it is below Q-SADDLe", "accuracy", -1, _efficient("q_saddle")),
    Statement(
        "efficient costs",
        "it takes fewer backward passes than Q-SADDLe (1.66 times)",
        "passes",
        -1,
        _efficient("q_saddle"),
    ),
)
