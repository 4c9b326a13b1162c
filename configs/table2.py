"""Table 2: QGM and Q-SADDLe on Imagenette (MobileNet-V2), 5 and 10 agents in a ring, 10 bits.

    bin/saddle train --config=configs/table2.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=2 --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("2", variant, "imagenette-ring10-alpha0.01-q_saddle-none")
