"""Fewer bits and smaller shares than in any table of the paper.

    bin/saddle train --config=configs/beyond.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=beyond --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("beyond", variant, "cifar10-ring10-alpha0.001-q_saddle-quantize6")
