"""Table 3: NGM and N-SADDLe on CIFAR-10 and CIFAR-100, 5 to 20 agents in a ring, 1-bit sign.

    bin/saddle train --config=configs/table3.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=3 --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("3", variant, "cifar10-ring10-alpha0.01-n_saddle-none")
