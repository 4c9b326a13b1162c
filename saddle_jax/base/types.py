"""Type aliases, and the names of axes.

Axes, in every docstring and comment:

    A   agents: the leading axis of every stacked array
    B   samples per agent and step
    K   neighbours of an agent, itself included (slot 0 is the agent itself)

A *stacked* tree is the tree of one model (or of one batch) whose every leaf has a leading axis A. Examples
in docstrings use `sj` for `saddle_jax`, `jnp` for `jax.numpy`, `np` for `numpy`, and `jax` and `optax`.

Python's types cannot express trees of arrays, nor tell one model from a stacked tree. So the aliases below
say what a tree holds, docstrings say which axes its leaves have, and `tests/core/axes_test.py` checks them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import jax
import optax

Array: TypeAlias = jax.Array
Key: TypeAlias = jax.Array  # jax.random.key(seed), or the raw uint32 form
Tree: TypeAlias = Any  # any tree of arrays
Params: TypeAlias = Tree  # floating-point leaves: a model's [...], stacked [A, ...], or of pairs [A, K, ...]
Batch: TypeAlias = Tree  # samples: one agent's [B, ...], or stacked [A, B, ...]
ScalarOrSchedule: TypeAlias = optax.ScalarOrSchedule

# The state that an algorithm's `init` returns, and that its step takes and returns. The leaves of a rule's
# state are [A, ...], [A, K, ...] or scalars, which `Method.init` checks.
State = TypeVar("State")

# The user's loss function of ONE agent on its own batch, without an agent axis. It returns a scalar, or
# (scalar, aux) with any tree of arrays as aux.
LossFn: TypeAlias = Callable[[Params, Batch], Any]


@runtime_checkable
class Operator(Protocol):
    """A compression operator Q of one tensor; `sj.Compressor` is the base class of the package's own."""

    @property
    def stochastic(self) -> bool:
        """Whether the operator draws random numbers, for which it needs a key."""

    def compress(self, x: Array, key: Key | None = None) -> Array:
        """Returns Q(x), of the shape and dtype of x."""

    def bits(self, shape: Sequence[int], dtype: Any = ...) -> int:
        """Returns the exact length of an encoded tensor in bits."""

    def paper_bits(self, shape: Sequence[int]) -> int:
        """Returns the bits that the paper's cost tables count for a tensor."""


class About(NamedTuple):
    """The citation of a method or gradient estimator, and the assumptions of its convergence theorem."""

    citation: str  # such as "Lian et al., NeurIPS 2017"
    exact: bool = False  # whether a constant learning rate reaches the optimum on heterogeneous data
    requires: str = ""  # conditions on the graph beyond `Rule.requires`; other graphs are refused
    theory: str = ""  # further assumptions of the theorem; other graphs run, without a guarantee
