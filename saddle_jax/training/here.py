"""Whether a program can run on the hardware at hand, which a run that is only opened again need not."""

from saddle_jax.models.precision import check_precision
from saddle_jax.training import memory
from saddle_jax.training.program import Program


def check(program: Program) -> str | None:
    """Refuses what cannot be trained here, for want of memory or TF32; a warning if memory may be short."""
    check_precision(program.config.precision)
    return memory.check(program)
