"""The paper's figures that are drawn from runs of its tables: which runs, and which commands draw them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from saddle_jax.base.checks import ArgumentError
from saddle_jax.methods import options_of
from saddle_jax.papers.common import Entry
from saddle_jax.papers.saddle.experiments import PAPER
from saddle_jax.settings.config import Config

Verb = Literal["landscape", "sharpness", "figure", "data", "topology"]
READS_DATA = ("landscape", "sharpness", "data")  # the verbs that take --data_dir


class Command(NamedTuple):
    """A verb of `saddle` with its arguments, before the runs' folders."""

    verb: Verb
    arguments: list[str]


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


Picture = Callable[[Place], Command]


def _landscape(place: Place) -> Command:
    directions = "--directions=orthogonal"  # "orthogonal Gaussian perturbations", as the appendix says
    return Command("landscape", [directions, f"--images={place.images}", f"--output={place.output}"])


def _sharpness(place: Place) -> Command:
    epochs = ",".join(map(str, place.epochs))
    return Command(
        "sharpness", [f"--epochs={epochs}", f"--images={place.images}", f"--output={place.output}.png"]
    )


def _compression(place: Place) -> Command:
    return Command("figure", ["compression", f"--output={place.output}.png"])


def _bits(place: Place) -> Command:
    return Command("figure", ["bits", f"--output={place.output}.png"])


def _radii(place: Place) -> Command:
    return Command("figure", ["rho", f"--output={place.output}.png"])


def _curves(x: str) -> Picture:
    def command(place: Place) -> Command:
        return Command("figure", ["curves", f"--x={x}", f"--output={place.output}-{x}.png"])

    return command


def _graph(kind: str, agents: int) -> Picture:
    def command(place: Place) -> Command:
        return Command("topology", [kind, str(agents), f"--output={place.output}-{kind}.png"])

    return command


def _allocation(alpha: str) -> Picture:
    def command(place: Place) -> Command:
        plot = f"--plot={place.output}-{alpha}.png"
        return Command("data", ["partition", "--dataset=cifar10", f"--alpha={alpha}", plot])

    return command


@dataclasses.dataclass(frozen=True)
class Figure:
    """Runs of a table, and what is drawn from them.

    Attributes:
      title: what it shows.
      table: the table whose runs it takes; None if it needs none.
      rows: parts of the names of the table's rows.
      pictures: for each picture, the command that draws it.
      is_of_one_seed: whether a picture is of single models, those of the first seed's runs.
    """

    title: str
    table: str | None
    rows: Sequence[str]
    pictures: Sequence[Picture]
    is_of_one_seed: bool = False

    def entries(self) -> list[Entry]:
        """Returns the rows that are drawn, a method beside its SADDLe version: landscapes show pairs."""
        entries = PAPER.choose(self.table, self.rows)
        return sorted(entries, key=lambda entry: (entry.compressor, "rho" in options_of(entry.method)))


def three_stages(config: Config) -> list[int]:
    """Returns epochs with a checkpoint: early, before the learning rate first drops, and at the end."""
    every = config.keep_every_epochs or config.epochs
    return sorted({every, min(2 * every, config.epochs), config.epochs})


_QGM, _NGM = "cifar10-ring10-alpha0.001-q*", "cifar10-ring10-alpha0.001-n*"

FIGURES = {
    "landscape": Figure(
        "loss landscapes of QGM and Q-SADDLe, plain and compressed",
        "1",
        [_QGM],
        [_landscape],
        is_of_one_seed=True,
    ),
    "landscape-ngm": Figure(
        "loss landscapes of NGM and N-SADDLe, plain and compressed",
        "3",
        [_NGM],
        [_landscape],
        is_of_one_seed=True,
    ),
    "sharpness": Figure(
        "largest eigenvalue of the Hessian at three stages of training",
        "1",
        [_QGM],
        [_sharpness],
        is_of_one_seed=True,
    ),
    "compression": Figure(
        "compression error and model updates of compressed QGM and Q-SADDLe",
        "compression",
        [],
        [_compression],
    ),
    "compression-ngm": Figure(
        "compression error and gradient norms of compressed NGM and N-SADDLe",
        "3",
        [f"{_NGM}-sign"],
        [_compression],
    ),
    "graphs": Figure(
        "the ring of 10 agents and the torus of 40", None, [], [_graph("ring", 10), _graph("torus", 40)]
    ),
    "levels": Figure("accuracy against the level of compression", "levels", [], [_bits]),
    "rho": Figure("accuracy against SAM's radius; not in the paper", "rho", [], [_radii]),
    "beyond": Figure("accuracy with fewer bits than in any table; not in the paper", "beyond", [], [_bits]),
    "curves": Figure(
        "loss and accuracy of QGM and Q-SADDLe against what they cost; not in the paper",
        "1",
        [_QGM],
        [_curves("epoch"), _curves("step"), _curves("bytes"), _curves("passes")],
    ),
    "allocation": Figure(
        "who holds which classes, at alpha 0.01 and 0.001",
        None,
        [],
        [_allocation("0.01"), _allocation("0.001")],
    ),
}

# The paper's numbers. Figure 1 has pairs in a panel and Figure 8 the same four models in one each: both are
# among the pictures of "landscape".
NUMBERED = {
    "1": "landscape",
    "2": "compression",
    "3": "graphs",
    "4": "levels",
    "5": "sharpness",
    "6": "compression-ngm",
    "7": "allocation",
    "8": "landscape",
    "9": "landscape-ngm",
}


def named_figure(name: str) -> str:
    """Returns a figure by its name or by the paper's number of it; others are an ArgumentError."""
    found = NUMBERED.get(name, name)
    if found not in FIGURES:
        raise ArgumentError(f"figure must be one of {', '.join(FIGURES)}, or 1 to 9, got {name!r}")
    return found


def figure_rows() -> list[list[str]]:
    """Lists all figures as text, each with its number in the paper."""
    listed = [["figure", "number", "runs of", "what"]]
    for name, figure in FIGURES.items():
        number = " and ".join(key for key, value in NUMBERED.items() if value == name)
        listed.append(
            [name, number or "-", f"table {figure.table}" if figure.table else "none", figure.title]
        )
    return listed
