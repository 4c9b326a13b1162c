"""A model that starts from weights in a file."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import short_line
from saddle_jax.base.types import Key, Params
from saddle_jax.models.functions import Functions, functions

_WRAPPED = "module."  # what DistributedDataParallel puts before every name


def pretrained(model: Any, file: str) -> Functions:
    """Returns a model that starts from the weights in a file: pretrained(resnet20, 'model.safetensors').

    Args:
      model: any model.
      file: .safetensors or .pt, as `saddle export` writes them, or a state_dict of the same network in torch.
        Only tensors are read: nothing else is unpickled.
    """
    base, arrays = functions(model), read_weights(file)

    def init(key: Key, inputs: Any) -> Params:
        like = jax.eval_shape(base.init, key, inputs)
        try:
            return jax.tree.map(jnp.asarray, base.layout.params(arrays, like))
        except ArgumentError as error:
            raise ArgumentError(f"{file}: {error}") from error

    return base._replace(init=init)


def read_weights(file: str) -> dict[str, np.ndarray]:
    """Reads named arrays from a file .safetensors, or of torch: .pt, .pth, .bin."""
    path = pathlib.Path(file).expanduser()
    if path.suffix not in (".safetensors", ".pt", ".pth", ".bin"):
        raise ArgumentError(f"file must be .safetensors or .pt, got {file!r}")
    if not path.is_file():  # reading a pipe could block
        raise ArgumentError(f"file must be a file that exists, got {file!r}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            return dict(load_file(path))
        import torch

        found = torch.load(path, map_location="cpu", weights_only=True)
        found = found.get("state_dict", found)  # as training scripts save it, beside an optimizer's state
        return {name.removeprefix(_WRAPPED): tensor.detach().numpy() for name, tensor in found.items()}
    except ImportError as error:
        raise ArgumentError(f"{file} needs {error.name}: pip install {error.name}") from error
    except Exception as error:  # pickle, zipfile and both libraries have errors of their own
        raise ArgumentError(f"{file} cannot be read as weights alone: {short_line(error)}") from error
