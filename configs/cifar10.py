"""The paper's main setting: CIFAR-10, ResNet-20, a ring, Dirichlet alpha 0.01 (Table 1).

    bin/saddle train --config=configs/cifar10.py --config.data_dir=DIR
    bin/saddle train --config=configs/cifar10.py:cpu --config.data_dir=DIR

The first is a job for GPUs: ten agents, 200 epochs. The second, resnet8 on 10,000 images for 30 epochs,
takes some ten to twenty minutes on two cores.
"""

import dataclasses

from saddle_jax.config import Config

PAPER = Config(
    method="q_saddle",
    dataset="cifar10",
    model="resnet20",
    agents=10,
    alpha=0.01,
    epochs=200,
    batch_size=32,
    learning_rate=0.1,
    rho=0.1,
)


def get_config(variant: str = "paper") -> Config:
    if variant == "cpu":
        return dataclasses.replace(PAPER, model="resnet8", subset=10_000, epochs=30)
    if variant == "paper":
        return PAPER
    raise ValueError(f"variant must be paper or cpu, got {variant!r}")
