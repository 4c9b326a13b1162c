"""How the gradient of one model is taken: one kind, one short file; here is the table of their names."""

from collections.abc import Callable
from typing import Any

from saddle_jax.base.tables import Table, load
from saddle_jax.core.ascent import Ascent

# A new ascent is a file in this folder and a line here.
ASCENTS: Table[Callable[..., Ascent[Any]]] = load(
    {
        "plain": "saddle_jax.core.ascent:plain",
        "sam": "saddle_jax.ascents.sam:sam",
        "asam": "saddle_jax.ascents.asam:asam",
        "looksam": "saddle_jax.ascents.looksam:looksam",
        "gsam": "saddle_jax.ascents.gsam:gsam",
        "esam": "saddle_jax.ascents.esam:esam",
        "lesam": "saddle_jax.ascents.lesam:lesam",
    }
).and_installed("saddle_jax.ascents")
