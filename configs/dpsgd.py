"""Appendix: D-PSGD and D-SADDLe, with data dealt at random beside the skewed.

    bin/saddle train --config=configs/dpsgd.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=dpsgd --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("dpsgd", variant, "cifar10-ring10-alpha0.01-d_saddle-none")
