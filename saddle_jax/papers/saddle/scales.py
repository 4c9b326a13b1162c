"""At which size an experiment is run: the one place that says what each scale means."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from saddle_jax.methods import options_of
from saddle_jax.settings.config import Config


@dataclasses.dataclass(frozen=True)
class Scale:
    """A size of the paper's experiments: same method, graph, alpha and hyper-parameters, less work.

    Attributes:
      name: the value of --scale.
      meaning: what is smaller than in the paper, which every output of `saddle reproduce` states.
      changes: the settings that differ from the paper's.
      cross_gradient_changes: more of these, for the methods with cross-gradients (NGM, N-SADDLe).
      batches_per_agent: number of batches per agent in the subset to train on; 0 leaves the subset alone.
      images: number of images on which sharpness and landscapes are measured.
      is_comparable: whether the paper's accuracies mean anything beside it.
    """

    name: str
    meaning: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cross_gradient_changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    batches_per_agent: int = 0
    images: int = 1024
    is_comparable: bool = True

    def apply(self, config: Config, times: int = 1) -> Config:
        """Returns the settings of a run at this size, or of one that lasts so many times as long."""
        changes = dict(self.changes)
        if "self_gradient" in options_of(config.method):
            changes |= self.cross_gradient_changes
        if self.batches_per_agent:
            batch_size = changes.get("batch_size", config.batch_size)
            changes["subset"] = self.batches_per_agent * batch_size * config.agents
        if "epochs" in changes:
            changes["epochs"] *= times
        return dataclasses.replace(config, **changes)


_CPU_IMAGES, _CPU_EPOCHS = 5_000, 10
# Half as many with cross-gradients: on a ring each step takes three times the gradients.
_CPU_CROSS_EPOCHS = 5

_LONG_EPOCHS = 40
_STUDY_IMAGES, _STUDY_EPOCHS = 5_000, 200

SCALES = {
    "full": Scale("full", "as the paper has it"),
    # The paper's network on all images, for as long as two cores can run QGM and Q-SADDLe in an hour.
    "long": Scale(
        "long",
        f"as the paper has it, but {_LONG_EPOCHS} epochs, with the drops of the learning rate at the same "
        "shares of them",
        changes={"epochs": _LONG_EPOCHS, "eval_every_epochs": 1},
    ),
    "cpu": Scale(
        "cpu",
        f"resnet8 instead of the paper's model, a random subset of {_CPU_IMAGES:,} training images, "
        f"{_CPU_EPOCHS} epochs ({_CPU_CROSS_EPOCHS} for NGM and N-SADDLe); method, graph, alpha and "
        "hyper-parameters as the paper has them. Accuracies are far below the paper's; compare methods.",
        changes={
            "model": "resnet8",
            "subset": _CPU_IMAGES,
            "epochs": _CPU_EPOCHS,
            "keep_every_epochs": _CPU_EPOCHS // 4,
            "eval_every_epochs": 2,
            "eval_agents": "never",
        },
        cross_gradient_changes={"epochs": _CPU_CROSS_EPOCHS, "keep_every_epochs": _CPU_CROSS_EPOCHS // 4},
        images=256,
    ),
    # Small enough for three seeds of some thirty cells in a few hours on two cores, and long enough: a step
    # of ten agents takes 1/30 of ResNet-20's time, so that all 200 epochs can be run, with 1,600 steps before
    # the schedule's first drop and 800 after each of the two.
    "study": Scale(
        "study",
        f"strided_cnn, a network of three convolutions, instead of the paper's model, and a random subset of "
        f"{_STUDY_IMAGES:,} training images; {_STUDY_EPOCHS} epochs, method, graph, alpha and "
        "hyper-parameters as the paper has them. Accuracies are below the paper's; compare methods.",
        changes={
            "model": "strided_cnn",
            "subset": _STUDY_IMAGES,
            "epochs": _STUDY_EPOCHS,
            "keep_every_epochs": _STUDY_EPOCHS // 4,
            "eval_every_epochs": 10,
            "eval_agents": "never",
        },
        images=1024,
    ),
    "smoke": Scale(
        "smoke",
        "two steps of logistic regression on made-up clusters: shows that it runs, and nothing else",
        changes={
            "dataset": "synthetic",
            "model": "logistic",
            "batch_size": 8,
            "epochs": 1,
            "keep_every_epochs": 0,
            "eval_every_epochs": 1,
            "eval_agents": "never",
        },
        batches_per_agent=2,  # fewer, and the Dirichlet partition may never come out even
        images=64,
        is_comparable=False,
    ),
}
