"""Appendix: NGM and N-SADDLe with gradients quantized to 2 bits.

    bin/saddle train --config=configs/two_bit.py[:[SCALE/]ROW]

SCALE is full, long, cpu, study or smoke; `bin/saddle reproduce --table=2-bit --list` names the rows.
"""

from saddle_jax.papers.saddle.overlays import overlay
from saddle_jax.settings.config import Config


def get_config(variant: str = "") -> Config:
    return overlay("2-bit", variant, "cifar10-ring10-alpha0.01-n_saddle-quantize2_biased")
