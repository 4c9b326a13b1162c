"""The paper's figures that are drawn from runs of its tables: which runs, and which commands draw them."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Figure:
    """Runs of a table, and what is drawn from them.

    Attributes:
      title: what it shows.
      table: whose runs; None: none are needed.
      rows: parts of the names of its rows.
      commands: for each picture, a verb of `saddle` with its arguments, before the runs' folders.
        {output} stands for the picture's name without an ending, {epochs} for three stages of training,
        {images} for how many the scale takes losses on.
      is_of_one_seed: whether a picture is of single models, of the first seed's runs.
    """

    title: str
    table: str | None
    rows: Sequence[str]
    commands: Sequence[Sequence[str]]
    is_of_one_seed: bool = False


_QGM, _NGM = "cifar10-ring10-alpha0.001-q*", "cifar10-ring10-alpha0.001-n*"

FIGURES = {
    "landscape": Figure(
        "loss landscapes of QGM and Q-SADDLe, plain and compressed",
        "1",
        [_QGM],
        [["landscape", "--images={images}", "--output={output}"]],
        is_of_one_seed=True,
    ),
    "landscape-ngm": Figure(
        "loss landscapes of NGM and N-SADDLe, plain and compressed",
        "3",
        [_NGM],
        [["landscape", "--images={images}", "--output={output}"]],
        is_of_one_seed=True,
    ),
    "sharpness": Figure(
        "largest eigenvalue of the Hessian at three stages of training",
        "1",
        [_QGM],
        [["sharpness", "--epochs={epochs}", "--images={images}", "--output={output}.png"]],
        is_of_one_seed=True,
    ),
    "compression": Figure(
        "compression error and model updates of compressed QGM and Q-SADDLe",
        "1",
        [f"{_QGM}-quantize8"],
        [["figure", "compression", "--output={output}.png"]],
    ),
    "compression-ngm": Figure(
        "compression error and gradient norms of compressed NGM and N-SADDLe",
        "3",
        [f"{_NGM}-sign"],
        [["figure", "compression", "--output={output}.png"]],
    ),
    "levels": Figure(
        "accuracy against the level of compression",
        "levels",
        [],
        [["figure", "bits", "--output={output}.png"]],
    ),
    "allocation": Figure(
        "who holds which classes, at alpha 0.01 and 0.001",
        None,
        [],
        [
            ["data", "partition", "--dataset=cifar10", f"--alpha={alpha}", f"--plot={{output}}-{alpha}.png"]
            for alpha in ("0.01", "0.001")
        ],
    ),
}
