"""The words and types used everywhere.

Axes, in every docstring and comment:

    A   agents: the leading axis of every stacked array
    B   samples per agent and step
    K   neighbours of an agent, itself included (slot 0 is the agent itself)

A *stacked* tree is the tree of one model (or of one batch) whose every leaf has a leading axis A.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import optax

Array: TypeAlias = jax.Array
Key: TypeAlias = jax.Array  # jax.random.key(seed), or the raw uint32 form
Params: TypeAlias = Any  # one model's parameters, or the stacked ones: the docstring says which
Batch: TypeAlias = Any
Tree: TypeAlias = Any  # any tree of arrays; the docstring says which axes its leaves have
ScalarOrSchedule: TypeAlias = optax.ScalarOrSchedule

# The user's function: loss of ONE agent on its own batch, no agent axis. Returns a scalar, or
# (scalar, aux) with any tree of arrays as aux.
LossFn: TypeAlias = Callable[[Params, Batch], Any]


@runtime_checkable
class Operator(Protocol):
    """What the core asks of a compression operator Q on one tensor; `sj.Compressor` is the class of them."""

    @property
    def stochastic(self) -> bool:
        """Whether Q draws random numbers, and so needs a key."""

    def compress(self, x: Array, key: Key | None = None) -> Array:
        """Q(x), of the shape and dtype of x."""

    def bits(self, shape: Sequence[int], dtype: Any = ...) -> int:
        """The exact length of an encoded tensor in bits."""

    def paper_bits(self, shape: Sequence[int]) -> int:
        """What the paper's cost tables count for a tensor."""
