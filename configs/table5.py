"""Table 5: all methods on a torus of 40 agents, CIFAR-10, alpha 0.001.

    bin/saddle train --config=configs/table5.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=5 --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("5", variant, "cifar10-torus40-alpha0.001-q_saddle-none")
