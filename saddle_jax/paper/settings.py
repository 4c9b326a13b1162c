"""The paper's settings by dataset: its table of hyper-parameters, and the sizes that costs follow from."""

import dataclasses
from typing import Any


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
        """T: epochs times the batches of an agent's share, the last partial one included."""
        return self.epochs * -(-(self.samples // agents) // self.batch_size)


SETTINGS = {
    "cifar10": Setting(0.1, 0.1, 200, 32, "resnet20", 50_000, 10, 32),
    "cifar100": Setting(0.1, 0.05, 100, 20, "resnet20", 50_000, 100, 32),
    "imagenette": Setting(0.01, 0.01, 100, 32, "mobilenet_v2", 9_469, 10, 32),
    "imagenet": Setting(0.01, 0.05, 60, 64, "resnet18", 1_281_167, 1_000, 224),
}

# gamma of NGM and N-SADDLe, plain and compressed; of the latter by alpha (the paper's second table).
_NGM_RATES: dict[str, dict[str, Any]] = {
    "cifar10": {"none": 1.0, "ngm": 0.5, "n_saddle": 0.5},
    "cifar100": {"none": 1.0, "ngm": 0.5, "n_saddle": 0.5},
    "imagenette": {"none": 0.5, "ngm": {0.01: 0.1, 0.001: 0.5}, "n_saddle": {0.01: 0.1, 0.001: 0.5}},
    "imagenet": {"none": 1.0, "ngm": 0.5, "n_saddle": 1.0},
}


def averaging_rate(method: str, compressor: str, dataset: str, alpha: float | None) -> float:
    """gamma as the paper tuned it; top-30 % (0.4) and the torus (0.5) have their own."""
    if method not in ("ngm", "n_saddle"):
        return 1.0
    rate = _NGM_RATES[dataset]["none" if compressor == "none" else method]
    return rate[alpha] if isinstance(rate, dict) else rate
