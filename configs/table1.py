"""Table 1: QGM and Q-SADDLe on CIFAR-10 and CIFAR-100, 5 to 40 agents in a ring, 8 bits.

    bin/saddle train --config=configs/table1.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=1 --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("1", variant, "cifar10-ring10-alpha0.01-q_saddle-none")
