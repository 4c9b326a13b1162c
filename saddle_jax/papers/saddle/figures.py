"""The paper's figures that are drawn from runs of its tables: which runs, and which commands draw them."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from saddle_jax.base.checks import ArgumentError
from saddle_jax.methods import METHODS
from saddle_jax.papers.common import Entry
from saddle_jax.papers.saddle.experiments import PAPER
from saddle_jax.settings.config import Config

READS_DATA = ("landscape", "sharpness", "data")  # the verbs that take --data_dir


class Place(NamedTuple):
    """What a picture depends on beside its runs.

    Attributes:
      output: the picture's path without an ending.
      epochs: the stages of training at which sharpness is measured.
      images: number of images that losses are computed on.
    """

    output: str
    epochs: Sequence[int]
    images: int


def command_of(picture: str, place: Place) -> tuple[str, list[str]]:
    """Returns the verb of `saddle` that draws a picture, and its arguments before the runs' folders."""
    fields = {**place._asdict(), "epochs": ",".join(map(str, place.epochs))}
    verb, *arguments = picture.split()
    return verb, [argument.format(**fields) for argument in arguments]


# Pictures: a verb and its arguments, with the fields of `Place` in braces. The directions of landscapes are
# "orthogonal Gaussian perturbations", as the appendix says.
_LANDSCAPE = "landscape --directions=orthogonal --images={images} --output={output}"
_SHARPNESS = "sharpness --epochs={epochs} --images={images} --output={output}.png"
_COMPRESSION = "figure compression --output={output}.png"
_BITS = "figure bits --output={output}.png"
_RADII = "figure rho --output={output}.png"
_CURVES = [f"figure curves --x={x} --output={{output}}-{x}.png" for x in ("epoch", "step", "bytes", "passes")]
_GRAPHS = [
    f"topology {graph} {agents} --output={{output}}-{graph}.png"
    for graph, agents in (("ring", 10), ("torus", 40))
]
_ALLOCATION = [
    f"data partition --dataset=cifar10 --partition=dirichlet({alpha}) --plot={{output}}-{alpha}.png"
    for alpha in ("0.01", "0.001")
]


@dataclasses.dataclass(frozen=True)
class Figure:
    """Runs of a table, and what is drawn from them.

    Attributes:
      title: what it shows.
      table: the table whose runs it takes; None if it needs none.
      rows: parts of the names of the table's rows.
      pictures: see `command_of`.
      one_seed: whether a picture is of single models, those of the first seed's runs.
    """

    title: str
    table: str | None
    rows: Sequence[str]
    pictures: Sequence[str]
    one_seed: bool = False

    def entries(self) -> list[Entry]:
        """Returns the rows that are drawn, a method beside its SADDLe version: landscapes show pairs."""
        entries = PAPER.choose(self.table, self.rows)
        return sorted(entries, key=lambda entry: (entry.compressor, "rho" in METHODS.options(entry.method)))


def three_stages(config: Config) -> list[int]:
    """Returns epochs with a checkpoint: early, before the learning rate first drops, and at the end."""
    every = config.keep_every_epochs or config.epochs
    return sorted({every, min(2 * every, config.epochs), config.epochs})


_QGM, _NGM = "cifar10-ring10-alpha0.001-q*", "cifar10-ring10-alpha0.001-n*"

FIGURES = {
    "landscape": Figure(
        "loss landscapes of QGM and Q-SADDLe, plain and compressed", "1", [_QGM], [_LANDSCAPE], one_seed=True
    ),
    "landscape-ngm": Figure(
        "loss landscapes of NGM and N-SADDLe, plain and compressed", "3", [_NGM], [_LANDSCAPE], one_seed=True
    ),
    "sharpness": Figure(
        "largest eigenvalue of the Hessian at three stages of training",
        "1",
        [_QGM],
        [_SHARPNESS],
        one_seed=True,
    ),
    "compression": Figure(
        "compression error and model updates of compressed QGM and Q-SADDLe",
        "compression",
        [],
        [_COMPRESSION],
    ),
    "compression-ngm": Figure(
        "compression error and gradient norms of compressed NGM and N-SADDLe",
        "3",
        [f"{_NGM}-sign"],
        [_COMPRESSION],
    ),
    "graphs": Figure("the ring of 10 agents and the torus of 40", None, [], _GRAPHS),
    "levels": Figure("accuracy against the level of compression", "levels", [], [_BITS]),
    "rho": Figure("accuracy against SAM's radius; not in the paper", "rho", [], [_RADII]),
    "beyond": Figure("accuracy with fewer bits than in any table; not in the paper", "beyond", [], [_BITS]),
    "curves": Figure(
        "loss and accuracy of QGM and Q-SADDLe against what they cost; not in the paper", "1", [_QGM], _CURVES
    ),
    "allocation": Figure("who holds which classes, at alpha 0.01 and 0.001", None, [], _ALLOCATION),
}

# The paper's numbers. Figure 1 has pairs in a panel and Figure 8 the same four models in one each: both are
# among the pictures of "landscape".
_IN_ORDER = "landscape compression graphs levels sharpness compression-ngm allocation landscape landscape-ngm"
NUMBERED = dict(zip("123456789", _IN_ORDER.split(), strict=True))


def named_figure(name: str) -> str:
    """Returns a figure by its name or by the paper's number of it; others are an ArgumentError."""
    figure = NUMBERED.get(name, name)
    if figure not in FIGURES:
        raise ArgumentError(f"figure must be one of {', '.join(FIGURES)}, or 1 to 9, got {name!r}")
    return figure


def figure_rows() -> list[list[str]]:
    """Lists all figures as text, each with its number in the paper."""
    rows = [["figure", "number", "runs of", "what"]]
    for name, figure in FIGURES.items():
        number = " and ".join(key for key, value in NUMBERED.items() if value == name)
        rows.append([name, number or "-", f"table {figure.table}" if figure.table else "none", figure.title])
    return rows
