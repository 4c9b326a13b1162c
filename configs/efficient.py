"""Table 6: compute-efficient Q-SADDLe, the ascent in every fifth step.

    bin/saddle train --config=configs/efficient.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=efficient --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("efficient", variant, "cifar10-ring10-alpha0.01-q_saddle-none-every5")
