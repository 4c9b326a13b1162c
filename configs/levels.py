"""The figure of varying compression levels.

    bin/saddle train --config=configs/levels.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=levels --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("levels", variant, "cifar10-ring10-alpha0.001-q_saddle-quantize8")
