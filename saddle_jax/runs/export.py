"""A model as one file of named arrays, for other programs."""

import jax
import numpy as np

from saddle_jax.base.types import Params

FORMATS = ("safetensors", "msgpack")


def encode(model: Params, form: str, about: dict[str, str]) -> bytes:
    """Encodes one model in one of FORMATS; safetensors also hold `about` as their metadata."""
    arrays = jax.tree.map(np.asarray, model)
    if form == "msgpack":
        from flax.serialization import to_bytes

        return to_bytes(arrays)
    from safetensors.numpy import save

    named = {"/".join(str(key.key) for key in path): leaf for path, leaf in jax.tree.leaves_with_path(arrays)}
    return save(named, metadata=about)
