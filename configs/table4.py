"""Table 4: NGM and N-SADDLe on Imagenette and ImageNet (ResNet-18), 10 agents in a ring, 1-bit sign.

    bin/saddle train --config=configs/table4.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=4 --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("4", variant, "imagenet-ring10-alpha0.01-n_saddle-none")
