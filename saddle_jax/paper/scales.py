"""At which size an experiment is run: the one place that says what each scale means."""

import dataclasses

from saddle_jax.training.config import Config


@dataclasses.dataclass(frozen=True)
class Scale:
    """What is smaller than in the paper; every output of `saddle reproduce` states `meaning`."""

    name: str
    meaning: str
    images: int = 1024  # on which sharpness and landscapes are measured
    is_comparable: bool = True  # whether the paper's accuracies mean anything beside it

    def apply(self, config: Config) -> Config:
        """The settings at this size: same method, graph, alpha and hyper-parameters."""
        if self.name == "cpu":
            epochs = _CPU_EPOCHS[config.method in ("ngm", "n_saddle")]
            return dataclasses.replace(
                config,
                model="resnet8",
                subset=_CPU_IMAGES,
                epochs=epochs,
                keep_every_epochs=epochs // 4,
                eval_every_epochs=2,
                eval_agents="never",
            )
        if self.name == "smoke":
            return dataclasses.replace(
                config,
                dataset="synthetic",
                model="logistic",
                # Two batches each; but not so few that the Dirichlet deal never comes out even.
                subset=2 * _SMOKE_BATCH * config.agents,
                batch_size=_SMOKE_BATCH,
                epochs=1,
                keep_every_epochs=0,
                eval_every_epochs=1,
                eval_agents="never",
            )
        return config


_CPU_IMAGES = 5_000
# Of NGM and N-SADDLe half as many: on a ring each of their steps takes three times the gradients.
_CPU_EPOCHS = {False: 10, True: 5}
_SMOKE_BATCH = 8

SCALES = {
    "full": Scale("full", "as the paper has it"),
    "cpu": Scale(
        "cpu",
        f"resnet8 instead of the paper's model, a random subset of {_CPU_IMAGES:,} training images, "
        f"{_CPU_EPOCHS[False]} epochs ({_CPU_EPOCHS[True]} for NGM and N-SADDLe); method, graph, alpha and "
        "hyper-parameters as the paper has them. Accuracies are far below the paper's; compare methods.",
        images=256,
    ),
    "smoke": Scale(
        "smoke",
        "two steps of logistic regression on made-up clusters: shows that it runs, and nothing else",
        images=64,
        is_comparable=False,
    ),
}
