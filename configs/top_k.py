"""Appendix: QGM and Q-SADDLe that send the largest 30 % of each layer's update.

    bin/saddle train --config=configs/top_k.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=top-k --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("top-k", variant, "cifar10-ring10-alpha0.01-q_saddle-top_k0.3")
