"""Q-SADDLe with other radii rho than the paper chose.

    bin/saddle train --config=configs/rho.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=rho --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("rho", variant, "cifar10-ring10-alpha0.001-q_saddle-none")
