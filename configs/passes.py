"""Methods without SAM for twice the epochs: as many backward passes as SADDLe takes.

    bin/saddle train --config=configs/passes.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=passes --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("passes", variant, "cifar10-ring10-alpha0.001-qgm-none-times2")
