"""The paper's settings by dataset: its table of hyper-parameters, and the sizes that costs follow from."""

import dataclasses
from typing import NamedTuple


@dataclasses.dataclass(frozen=True)
class Setting:
    """One column of the paper's table of hyper-parameters."""

    learning_rate: float
    rho: float
    epochs: int
    batch_size: int  # per agent
    model: str
    samples: int  # to train with
    classes: int
    image_size: int  # height and width that the model sees

    def steps(self, agents: int) -> int:
        """Returns T: epochs times the batches of an agent's share, with the last partial one."""
        return self.epochs * -(-(self.samples // agents) // self.batch_size)


SETTINGS = {
    "cifar10": Setting(0.1, 0.1, 200, 32, "resnet20", 50_000, 10, 32),
    "cifar100": Setting(0.1, 0.05, 100, 20, "resnet20", 50_000, 100, 32),
    "imagenette": Setting(0.01, 0.01, 100, 32, "mobilenet_v2", 9_469, 10, 32),
    "imagenet": Setting(0.01, 0.05, 60, 64, "resnet18", 1_281_167, 1_000, 224),
}


class AveragingRates(NamedTuple):
    """The averaging rates gamma of NGM and N-SADDLe on one problem (the paper's second table)."""

    plain: float  # of both methods, uncompressed
    ngm: float  # compressed
    n_saddle: float  # compressed


_RATES: dict[tuple[str, float | None], AveragingRates] = {
    ("cifar10", 0.01): AveragingRates(1.0, 0.5, 0.5),
    ("cifar10", 0.001): AveragingRates(1.0, 0.5, 0.5),
    ("cifar100", 0.01): AveragingRates(1.0, 0.5, 0.5),
    ("cifar100", 0.001): AveragingRates(1.0, 0.5, 0.5),
    ("imagenette", 0.01): AveragingRates(0.5, 0.1, 0.1),
    ("imagenette", 0.001): AveragingRates(0.5, 0.5, 0.5),
    ("imagenet", 0.01): AveragingRates(1.0, 0.5, 1.0),
    ("imagenet", 0.001): AveragingRates(1.0, 0.5, 1.0),
}


def averaging_rate(method: str, compressor: str, dataset: str, alpha: float | None) -> float:
    """Returns gamma as the paper tuned it; top-30 % (0.4) and the torus (0.5) have their own."""
    if method not in ("ngm", "n_saddle"):
        return 1.0
    rates = _RATES[dataset, alpha]
    if compressor == "none":
        return rates.plain
    return rates.ngm if method == "ngm" else rates.n_saddle
