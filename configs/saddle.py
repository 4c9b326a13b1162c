"""Any run of the SADDLe paper, by the name of its row and the scale: [SCALE/][ROW].

    bin/saddle train --config=configs/saddle.py:cpu/cifar10-ring10-alpha0.01-qgm-quantize8

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=1 --list` names the rows of a table.
"""

from saddle_jax.papers.saddle.experiments import PAPER
from saddle_jax.settings.settings import Settings


def get_config(variant: str = "") -> Settings:
    return PAPER.variant(variant, default="cifar10-ring10-alpha0.01-q_saddle-none")
