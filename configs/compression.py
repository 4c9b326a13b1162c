"""The figure of compression errors; the learning rate falls by 0.981 every epoch.

    bin/saddle train --config=configs/compression.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=compression --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("compression", variant, "cifar10-ring10-alpha0.001-q_saddle-quantize8-exponential")
