"""Whether the parts of a method fit together, and whether a rule returns what it must: one line for each."""

from typing import Any

import jax
import jax.numpy as jnp

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Tree
from saddle_jax.core.faults import Faults
from saddle_jax.core.mixing import Graphs
from saddle_jax.core.rule import Rule
from saddle_jax.core.topology import Stochasticity

_MEANING: dict[Stochasticity, str] = {
    "doubly": "the agents' average (W doubly stochastic)",
    "row": "agreement (rows of W sum to one)",
    "column": "the agents' sum (columns of W sum to one)",
}


def check_stochasticity(name: str, required: Stochasticity | None, topology: Graphs) -> None:
    """Checks that a graph keeps what a rule demands of it."""
    stochasticity = topology.stochasticity
    if required is not None and stochasticity not in (required, "doubly"):
        raise ArgumentError(
            f"{name} needs a topology that keeps {_MEANING[required]}, "
            f"got {topology.name}, which keeps {_MEANING[stochasticity]}"
        )


def check_faults(faults: Faults, topology: Graphs, rule: Rule[Any]) -> None:
    """Checks that what goes wrong has a meaning on this graph and with this rule."""
    if topology.stochasticity == "column":
        if faults.lost_weight != "self":
            raise ArgumentError(
                f"lost_weight must be 'self' on {topology.name}, whose senders keep what they cannot "
                f"deliver, got {faults.lost_weight!r}"
            )
        if faults.delay and faults.has_absences:
            raise ArgumentError(
                f"delay must be 0 on {topology.name} where agents are away: what is under way to them would "
                f"take mass away, got {faults.delay}"
            )
    if faults.burst is not None and not topology.has_fixed_links:
        raise ArgumentError(
            f"burst must be None on {topology.name}, whose links are others in every step, got {faults.burst}"
        )
    if faults.delay and not topology.has_fixed_links:
        raise ArgumentError(
            f"delay must be 0 on {topology.name}, whose links are others in every step, got {faults.delay}"
        )
    if faults.delay and len(rule.comm_kinds) > 1:
        raise ArgumentError(
            f"delay must be 0 for a method with {len(rule.comm_kinds)} kinds of steps that communicate, "
            f"got {faults.delay}"
        )


def check_state(name: str, state: Any, size: int) -> None:
    """Checks that every leaf of a rule's state is [A, ...] or a scalar."""
    for path, leaf in jax.tree.leaves_with_path(state):
        if jnp.ndim(leaf) and jnp.shape(leaf)[0] != size:
            raise ArgumentError(
                f"state{jax.tree_util.keystr(path)} of {name} must be a scalar or have leading axis "
                f"A = {size}, got shape {jnp.shape(leaf)}"
            )


def check_alike(what: str, new: Tree, old: Tree) -> None:
    """Checks that a rule returned a tree of the same structure, shapes and dtypes as it was given."""
    given: Any = jax.tree.structure(old)
    returned: Any = jax.tree.structure(new)
    if returned != given:
        raise ArgumentError(
            f"the rule must return {what} of the structure that it got, {given}, got {returned}"
        )
    for (path, x), y in zip(jax.tree.leaves_with_path(new), jax.tree.leaves(old), strict=True):
        if jnp.shape(x) != jnp.shape(y) or jnp.result_type(x) != jnp.result_type(y):
            raise ArgumentError(
                f"the rule must return {what} of the shapes and dtypes that it got, "
                f"{jnp.result_type(y)}{list(jnp.shape(y))} for {what}{jax.tree_util.keystr(path)}, "
                f"got {jnp.result_type(x)}{list(jnp.shape(x))}"
            )
