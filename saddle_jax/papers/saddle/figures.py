"""The paper's figures that are drawn from runs of its tables: their runs and the commands to draw them."""

import dataclasses
from collections.abc import Sequence

from saddle_jax.base.checks import ArgumentError
from saddle_jax.methods import METHODS
from saddle_jax.papers.saddle.experiments import PAPER
from saddle_jax.papers.tables import Entry
from saddle_jax.settings.settings import Settings

READS_DATA = ("landscape", "sharpness", "data")  # the verbs that take --data_dir


def command_of(picture: str, output: str, epochs: Sequence[int], images: int) -> tuple[str, list[str]]:
    """Returns the verb that draws a picture, and its arguments before the runs' folders.

    Args:
      picture: the verb and its arguments, with the other arguments of this function in braces.
      output: the picture's path without an ending.
      epochs: the stages of training for measuring sharpness.
      images: the number of images for computing losses.
    """
    verb, *arguments = picture.split()
    fields = {"output": output, "epochs": ",".join(map(str, epochs)), "images": images}
    return verb, [argument.format(**fields) for argument in arguments]


# Pictures, see `command_of`. The directions of landscapes are "orthogonal Gaussian perturbations", as the
# appendix says.
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
    """Runs of a table, and the pictures drawn from them.

    Attributes:
      title: what it shows.
      table: the table with its runs; None if it needs none.
      rows: patterns for the names of the table's rows.
      pictures: see `command_of`.
      one_seed: whether a picture shows single models, from the runs of the first seed.
    """

    title: str
    table: str | None
    rows: Sequence[str]
    pictures: Sequence[str]
    one_seed: bool = False

    def entries(self) -> list[Entry]:
        """Returns the drawn rows, each method beside its SADDLe version, since landscapes show pairs."""
        entries = PAPER.choose(self.table, self.rows)
        return sorted(entries, key=lambda entry: (entry.compressor, "rho" in METHODS.options(entry.method)))


def three_stages(config: Settings) -> list[int]:
    """Returns three epochs with a checkpoint: early, before the learning rate first drops, and the last."""
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

# The paper's numbers. Figure 1 has pairs in a panel, and Figure 8 the same four models in a panel each: both
# are among the pictures of "landscape".
_IN_ORDER = "landscape compression graphs levels sharpness compression-ngm allocation landscape landscape-ngm"
NUMBERED = dict(zip("123456789", _IN_ORDER.split(), strict=True))


def named_figure(name: str) -> str:
    """Returns the name of a figure from its name or its number in the paper."""
    figure = NUMBERED.get(name, name)
    if figure not in FIGURES:
        raise ArgumentError(f"figure must be one of {', '.join(FIGURES)}, or 1 to 9, got {name!r}")
    return figure


def figure_rows() -> list[list[str]]:
    """Returns the list of all figures, each with its number in the paper."""
    rows = [["figure", "number", "runs of", "what"]]
    for name, figure in FIGURES.items():
        number = " and ".join(key for key, value in NUMBERED.items() if value == name)
        rows.append([name, number or "-", f"table {figure.table}" if figure.table else "none", figure.title])
    return rows
