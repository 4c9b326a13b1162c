"""The main job: Q-SADDLe on ten agents in a ring, embedded digits, Dirichlet alpha 0.1, the small CNN.

    bin/saddle train --config=configs/default.py

Consensus test accuracy above 93 % in about a minute on two cores, compilation included.
"""

from saddle_jax.settings.settings import Settings


def get_config() -> Settings:
    return Settings()
