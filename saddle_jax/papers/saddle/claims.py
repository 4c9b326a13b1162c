"""The paper's claims about its tables, and statements about its methods.

A claim is a number or a range that summarises differences between results: gains of SADDLe over its base,
drops by compression, losses by a smaller alpha. The same formula gives our number from runs. A statement says
which of two quantities is larger.
"""

import itertools
import math
from collections.abc import Sequence

from saddle_jax.papers.saddle.experiments import PAPER
from saddle_jax.papers.tables import Claim, Contrast, Entry, Statement, ends, mean

# Methods with and without SADDLe, and the tables of the main text with both, compressed and not.
_MAIN = (("q_saddle", "qgm", "1 2 5"), ("n_saddle", "ngm", "3 4 5"))


def _claim(
    place: str, text: str, stated: str, contrasts: Sequence[Contrast], least: float = -math.inf
) -> Claim:
    """Makes a claim about the mean of contrasts, or about their range where two numbers are stated."""
    numbers = tuple(stated.split())
    return Claim(place, text, numbers, contrasts, mean if len(numbers) == 1 else ends, least)


def _gain(place: str, text: str, stated: str, one: str, other: str, tables: str, dataset: str = "*") -> Claim:
    """Makes a claim about the mean gain of one method over another, uncompressed."""
    return _claim(place, text, stated, PAPER.gains(one, other, tables, dataset))


def _drop(place: str, text: str, stated: str, method: str, tables: str, dataset: str = "*") -> Claim:
    """Makes a claim about a method's drop by compression; in a range a gain is a drop of 0."""
    least = 0.0 if " " in stated else -math.inf
    return _claim(place, text, stated, PAPER.drops(method, tables, dataset), least)


def _main_gains(compressed: bool) -> tuple[Contrast, ...]:
    return tuple(pair for one in _MAIN for pair in PAPER.gains(*one, compressed=compressed))


def _by_alpha(method: str, table: str) -> tuple[Contrast, ...]:
    """Subtracts from uncompressed entries at alpha 0.01 those at 0.001."""
    every = [entry for entry in PAPER.rows(table, method) if entry.compressor == "none"]
    return tuple(
        Contrast(mild, strong)
        for mild in every
        for strong in every
        if (mild.alpha, strong.alpha) == (0.01, 0.001) and mild.agents == strong.agents
    )


def _efficient(method: str, *, compressed: bool = False) -> tuple[Contrast, ...]:
    """Compares the entries of the efficient variant with those of a method of Table 1."""
    return PAPER.gains("q_saddle", method, "efficient", compressed=compressed, base="1")


def _level(method: str, compressor: str) -> Entry:
    """Returns the entry of a method with a compressor in the figure of quantization levels."""
    (entry,) = (e for e in PAPER.rows("levels", method) if e.compressor == compressor)
    return entry


def _level_drop(method: str, compressor: str) -> tuple[Contrast, ...]:
    return (Contrast(_level(method, "none"), _level(method, compressor)),)


CLAIMS = (
    _claim("abstract", "SADDLe gains 1-20 % (if uncompressed runs are meant)", "1 20", _main_gains(False)),
    _claim("abstract", "SADDLe gains 1-20 % (if compressed runs are meant)", "1 20", _main_gains(True)),
    _claim(
        "introduction",
        "SADDLe drops by 1 %, the average of Tables 1 to 4",
        "1",
        (*PAPER.drops("q_saddle", "1 2"), *PAPER.drops("n_saddle", "3 4")),
    ),
    _claim(
        "introduction",
        "baselines drop by 4.3 % on average (if Tables 1 and 3 are meant)",
        "4.3",
        (*PAPER.drops("qgm", "1"), *PAPER.drops("ngm", "3")),
    ),
    _claim(
        "introduction",
        "baselines drop by 4.3 % on average (if Tables 1 to 4 are meant)",
        "4.3",
        (*PAPER.drops("qgm", "1 2"), *PAPER.drops("ngm", "3 4")),
    ),
    _gain("Table 1", "CIFAR-10: 8.4 % better", "8.4", "q_saddle", "qgm", "1", "cifar10"),
    _drop("Table 1", "CIFAR-10: QGM drops 1-6 %", "1 6", "qgm", "1", "cifar10"),
    _drop("Table 1", "CIFAR-10: Q-SADDLe drops 0-1.5 %", "0 1.5", "q_saddle", "1", "cifar10"),
    _gain("Table 1", "CIFAR-100: ~6 % better", "6", "q_saddle", "qgm", "1", "cifar100"),
    _drop("Table 1", "CIFAR-100: QGM drops 1-8 %", "1 8", "qgm", "1", "cifar100"),
    _drop("Table 1", "CIFAR-100: Q-SADDLe drops 0-1.8 %", "0 1.8", "q_saddle", "1", "cifar100"),
    _gain("Table 2", "Imagenette: ~12 % better", "12", "q_saddle", "qgm", "2"),
    _drop("Table 2", "Imagenette: Q-SADDLe drops 0-2 %", "0 2", "q_saddle", "2"),
    _drop("Table 2", "Imagenette: QGM drops 4-9 %", "4 9", "qgm", "2"),
    _claim("Table 2", "QGM loses 8.5 % from alpha 0.01 to 0.001", "8.5", _by_alpha("qgm", "2")),
    _claim("Table 2", "Q-SADDLe nearly retains its accuracy", "0", _by_alpha("q_saddle", "2")),
    _gain("Table 3", "CIFAR-10: 2.3 % better", "2.3", "n_saddle", "ngm", "3", "cifar10"),
    _gain("Table 3", "CIFAR-100: 4.2 % better", "4.2", "n_saddle", "ngm", "3", "cifar100"),
    _drop("Table 3", "CIFAR-10: NGM drops ~1-8 %", "1 8", "ngm", "3", "cifar10"),
    _drop("Table 3", "CIFAR-10: N-SADDLe drops 0-0.3 %", "0 0.3", "n_saddle", "3", "cifar10"),
    _drop("Table 3", "CIFAR-100: NGM drops ~2-11 %", "2 11", "ngm", "3", "cifar100"),
    _drop("Table 3", "CIFAR-100: N-SADDLe drops 0-1.7 %", "0 1.7", "n_saddle", "3", "cifar100"),
    _gain("Table 4", "Imagenette: 1.7 % better", "1.7", "n_saddle", "ngm", "4", "imagenette"),
    _drop("Table 4", "Imagenette: N-SADDLe drops 1.4 %", "1.4", "n_saddle", "4", "imagenette"),
    _drop("Table 4", "Imagenette: NGM drops 3.7 %", "3.7", "ngm", "4", "imagenette"),
    _gain("Table 4", "ImageNet: 4.2 % better", "4.2", "n_saddle", "ngm", "4", "imagenet"),
    _drop("Table 4", "ImageNet: NGM drops 13 %", "13", "ngm", "4", "imagenet"),
    _drop("Table 4", "ImageNet: N-SADDLe drops about 1.5 %", "1.5", "n_saddle", "4", "imagenet"),
    _gain("Table 5", "torus: Q-SADDLe 12 % better", "12", "q_saddle", "qgm", "5"),
    _drop("Table 5", "torus: Q-SADDLe drops ~5 %", "5", "q_saddle", "5"),
    _drop("Table 5", "torus: QGM drops ~11 %", "11", "qgm", "5"),
    _gain("Table 5", "torus: N-SADDLe 0.7 % better", "0.7", "n_saddle", "ngm", "5"),
    Claim(
        "Figure 4",
        "QGM drops from about 79 % to 73 %",
        ("79", "73"),
        (Contrast(_level("qgm", "none")), Contrast(_level("qgm", "quantize(8)"))),
        tuple,
    ),
    _claim("Figure 4", "Q-SADDLe drops ~0.7 %", "0.7", _level_drop("q_saddle", "quantize(8)")),
    _claim("Figure 4", "NGM drops ~7 %", "7", _level_drop("ngm", "sign")),
    _claim(
        "Table 6",
        "efficient: 1.75 % below Q-SADDLe",
        "1.75",
        [Contrast(full, entry) for entry, full, _ in _efficient("q_saddle") if full],
    ),
    _claim("Table 6", "efficient: about 10 % above QGM", "10", _efficient("qgm")),
    _gain("Table 7", "CIFAR-10: D-SADDLe 10 % better", "10", "d_saddle", "dpsgd", "dpsgd", "cifar10"),
    _gain("Table 7", "CIFAR-100: D-SADDLe 5.4 % better", "5.4", "d_saddle", "dpsgd", "dpsgd", "cifar100"),
    _drop("Table 8", "top-30 %: QGM drops ~5-57 %", "5 57", "qgm", "top-k"),
    _drop("Table 8", "top-30 %: Q-SADDLe drops ~0.6-18.5 %", "0.6 18.5", "q_saddle", "top-k"),
    _drop("Table 9", "2 bits: NGM drops 4.4 % on average", "4.4", "ngm", "2-bit"),
    _drop("Table 9", "2 bits: N-SADDLe drops 1.2 % on average", "1.2", "n_saddle", "2-bit"),
)

# ---- statements ----

# Methods with and without SADDLe, and the tables with both.
_METHODS = (
    ("d_saddle", "dpsgd", "dpsgd"),
    ("q_saddle", "qgm", "1 2 5 top-k"),
    ("n_saddle", "ngm", "3 4 5 2-bit"),
)


def _gains(compressed: bool, methods: Sequence[str] = tuple(PAPER.bases)) -> tuple[Contrast, ...]:
    """Compares SADDLe with its base method."""
    pairs = [PAPER.gains(*names, compressed=compressed) for names in _METHODS if names[0] in methods]
    return tuple(itertools.chain(*pairs))


def _drops(method: str, tables: str) -> list[Contrast]:
    """Compares compressed runs of a method with uncompressed ones."""
    return [Contrast(drop.entries[1], drop.one) for drop in PAPER.drops(method, tables)]


def _smaller_drops() -> tuple[Contrast, ...]:
    """Compares SADDLe's drop by compression with that of the base method."""
    return tuple(
        Contrast(saddle.one, base.one, (saddle.entries[1], base.entries[1]))
        for one, other, tables in _METHODS
        for saddle in _drops(one, tables)
        for base in _drops(other, tables)
        if (base.one.problem, base.one.compressor) == (saddle.one.problem, saddle.one.compressor)
    )


def _as_many_passes() -> tuple[Contrast, ...]:
    """Compares SADDLe with its base method for twice the epochs."""
    pairs = [PAPER.gains(one, other, "dpsgd 1 3", base="passes") for one, other in PAPER.bases.items()]
    return tuple(itertools.chain(*pairs))


_ALL = (*_gains(False), *_gains(True))
_QGM = (*_gains(True, ["q_saddle"]), *PAPER.gains("q_saddle", "qgm", "compression", compressed=True))
_NGM = _gains(True, ["n_saddle"])
_COMPRESSED = tuple(
    drop for *methods, tables in _METHODS for method in methods for drop in _drops(method, tables)
)
_EFFICIENT = {
    method: (*_efficient(method), *_efficient(method, compressed=True)) for method in ("qgm", "q_saddle")
}

STATEMENTS = (
    Statement("accuracy", "SADDLe is above its base method", "accuracy", 1, _ALL),
    Statement("best", "(so it is with each run's best evaluation)", "best_accuracy", 1, _ALL),
    Statement(
        "equal passes",
        "(so it is above its base with as many backward passes)",
        "accuracy",
        1,
        _as_many_passes(),
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
    Statement("efficient", "the compute-efficient variant is above QGM", "accuracy", 1, _EFFICIENT["qgm"]),
    Statement("efficient loses", "it is below Q-SADDLe", "accuracy", -1, _EFFICIENT["q_saddle"]),
    Statement(
        "efficient costs",
        "it takes fewer backward passes than Q-SADDLe (1.66 times)",
        "passes",
        -1,
        _EFFICIENT["q_saddle"],
    ),
)
