"""The words and types used everywhere.

Axes, in every docstring and comment:

    A   agents: the leading axis of every stacked array
    B   samples per agent and step
    K   neighbours of an agent, itself included (slot 0 is the agent itself)

A *stacked* tree is the tree of one model (or of one batch) whose every leaf has a leading axis A.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import optax

Array: TypeAlias = jax.Array
Key: TypeAlias = jax.Array  # jax.random.key(seed), or the raw uint32 form
Params: TypeAlias = Any  # one model's parameters, or the stacked ones: the docstring says which
Batch: TypeAlias = Any
Metrics: TypeAlias = dict[str, Any]
ScalarOrSchedule: TypeAlias = optax.ScalarOrSchedule

# The user's function: loss of ONE agent on its own batch, no agent axis. Returns a scalar, or
# (scalar, aux) with any tree of arrays as aux.
LossFn: TypeAlias = Callable[[Params, Batch], Any]
