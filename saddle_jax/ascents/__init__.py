"""How the gradient of one model is taken: one kind, one short file."""

from saddle_jax.ascents.sam import sam as sam
from saddle_jax.core.ascent import plain as plain
