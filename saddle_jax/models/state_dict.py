"""A model's parameters as a state_dict of PyTorch.

Names and layouts are torch's: kernels [outputs, inputs, h, w], called weight. Networks of ours have the names
of the code that the paper builds on (github.com/aparna-aketi/neighborhood_gradient_clustering), as far as it
has them: their `torch_names`.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Params

Arrays = Mapping[str, np.ndarray]
# (pattern, replacement) for the path of a parameter, one after another: "stem/" -> "conv1/".
Names = Sequence[tuple[str, str | Callable[[re.Match[str]], str]]]

_LEAVES = {"kernel": "weight", "scale": "weight", "embedding": "weight"}
_TO_TORCH = {2: (1, 0), 3: (2, 1, 0), 4: (3, 2, 0, 1)}  # of a kernel with its outputs last, by its axes


@dataclasses.dataclass(frozen=True)
class TreeLayout:
    """How a tree of parameters is named and laid out in torch.

    Attributes:
      names: other names than the tree's own.
      norm_shape: the shape of scales and biases of norms.
    """

    names: Names = ()
    norm_shape: tuple[int, ...] = (-1,)

    def state_dict(self, params: Params) -> dict[str, np.ndarray]:
        """Returns one model's parameters as the arrays of a state_dict."""
        return {
            self._name(path): self._in_torch(path, np.asarray(leaf)) for path, leaf in named(params).items()
        }

    def arrays(self, params: Params) -> dict[str, np.ndarray]:
        """Returns one model's parameters by the tree's own paths."""
        return {path: np.asarray(leaf) for path, leaf in named(params).items()}

    def params(self, arrays: Arrays, like: Params) -> Params:
        """Returns the arrays of a state_dict, or of a file with the tree's own paths, as such a tree."""
        shapes = named(like)
        if set(arrays) == set(shapes):
            found = {path: checked(path, arrays[path], shape) for path, shape in shapes.items()}
        else:
            names = {path: self._name(path) for path in shapes}
            check_names(arrays, names.values())
            found = {
                path: checked(names[path], self._from_torch(path, arrays[names[path]]), shape)
                for path, shape in shapes.items()
            }
        return jax.tree.unflatten(jax.tree.structure(like), [found[path] for path in shapes])

    def _name(self, path: str) -> str:
        for pattern, replacement in self.names:
            path = re.sub(pattern, replacement, path)
        *layers, leaf = path.split("/")
        return ".".join([*layers, _LEAVES.get(leaf, leaf)])

    def _in_torch(self, path: str, array: np.ndarray) -> np.ndarray:
        if _is_kernel(path) and array.ndim in _TO_TORCH:
            return np.ascontiguousarray(array.transpose(_TO_TORCH[array.ndim]))
        return array.reshape(self.norm_shape) if "norm/" in path else array

    def _from_torch(self, path: str, array: np.ndarray) -> np.ndarray:
        if _is_kernel(path) and array.ndim in _TO_TORCH:
            return array.transpose(np.argsort(_TO_TORCH[array.ndim]))
        return array.reshape(-1) if "norm/" in path else array


def named(params: Params) -> dict[str, Any]:
    """Returns the leaves of a tree by their paths, "stem/kernel"."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree.leaves_with_path(params)
    }


def _is_kernel(path: str) -> bool:
    return path.rpartition("/")[2] == "kernel"


def check_names(found: Iterable[str], wanted: Iterable[str]) -> None:
    """Raises an error unless a file has exactly the names that are wanted."""
    found, wanted = {*found}, {*wanted}
    missing, others = sorted(wanted - found), sorted(found - wanted)
    if missing or others:
        raise ArgumentError(
            f"file must have the weights of the model, got none for {', '.join(missing[:3]) or 'no name'}, "
            f"and others for {', '.join(others[:3]) or 'no name'}"
        )


def checked(name: str, array: np.ndarray, like: Any) -> np.ndarray:
    """Returns weights from a file in the type of a parameter, whose shape they must have."""
    if array.shape != like.shape:
        raise ArgumentError(
            f"file must have {name} of shape {list(like.shape)}, outputs last, got {list(array.shape)}"
        )
    return np.ascontiguousarray(array, like.dtype)
