"""The words and types that every room uses.

Axes, in every docstring and comment:

    A   agents: the leading axis of every stacked array
    B   samples per agent and step
    K   neighbours of an agent, itself included (slot 0 is the agent itself)

A *stacked* tree is the tree of one model (or of one batch) whose every leaf has a leading axis A. Examples
in docstrings use `sj` for `saddle_jax`, `jnp` for `jax.numpy`, `np` for `numpy`, and `jax` and `optax`.

Python cannot spell "a tree of arrays", and a tree of one model and a stacked one are the same type. So the
aliases below say what a tree holds, every docstring says which axes its leaves have, and
`tests/core/axes_test.py` holds the docstrings to it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import jax
import optax

Array: TypeAlias = jax.Array
Key: TypeAlias = jax.Array  # jax.random.key(seed), or the raw uint32 form
Tree: TypeAlias = Any  # any tree of arrays
Params: TypeAlias = Tree  # floating-point leaves: a model's [...], stacked [A, ...], or of pairs [A, K, ...]
Batch: TypeAlias = Tree  # samples: one agent's [B, ...], or stacked [A, B, ...]
ScalarOrSchedule: TypeAlias = optax.ScalarOrSchedule

# What an algorithm remembers from one step to the next, a tree that its `init` makes and its step returns
# again: a type checker sees that both mean the same one. Of a rule every leaf is [A, ...], [A, K, ...] or a
# scalar, which `Method.init` checks.
State = TypeVar("State")

# The user's function: the loss of ONE agent on its own batch, without an agent axis. It returns a scalar, or
# (scalar, aux) with any tree of arrays as aux.
LossFn: TypeAlias = Callable[[Params, Batch], Any]


@runtime_checkable
class Operator(Protocol):
    """An operator Q compresses one tensor; `sj.Compressor` is the base class of all of ours."""

    @property
    def stochastic(self) -> bool:
        """Whether the operator draws random numbers, and so needs a key."""

    def compress(self, x: Array, key: Key | None = None) -> Array:
        """Returns Q(x), of the shape and dtype of x."""

    def bits(self, shape: Sequence[int], dtype: Any = ...) -> int:
        """Returns the exact length of an encoded tensor in bits."""

    def paper_bits(self, shape: Sequence[int]) -> int:
        """Returns the bits that the paper's cost tables count for a tensor."""
