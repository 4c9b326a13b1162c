"""What reaches whom in a step, measured: one agent is changed, and the others are watched."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saddle_jax.base.types import Tree
from saddle_jax.testing.trial import AGENTS, Moment, batch_of, distance, key_of, row

StepFn = Callable[[Moment, Any, Any], Moment]  # (moment, batch, key) -> moment

_UNTOUCHED = 1e-13  # far below what a changed agent would do, above nothing at all
_SMALL_STEP = 1e-5  # of a central difference, whose error is its square
_RANK = 1e-6  # singular values below this share of the largest are rounding


def changes_elsewhere(step: StepFn, moment: Moment, t: int, watched: Sequence[int] | None = None) -> str:
    """Says what else changes in step t if agent 0 has another model, state and batch; "" if nothing does.

    Numbers that all agents share must not change either: they would tell everybody of agent 0.
    """
    batch, key = batch_of(t), key_of(t)
    ascent, rule = jax.tree.map(_scaled, (moment.state.ascent, moment.state.rule))
    changed = Moment(_altered(moment.params), moment.state._replace(ascent=ascent, rule=rule))
    before, after = step(moment, batch, key), step(changed, _altered(batch), key)
    for agent in range(1, AGENTS) if watched is None else watched:
        ends = [_of((end.params, end.state.ascent, end.state.rule), agent) for end in (before, after)]
        if (gap := distance(*ends)) > _UNTOUCHED:
            return f"agent {agent} by {gap:.1e}"
    shared = [
        [leaf for leaf in jax.tree.leaves((end.state.ascent, end.state.rule)) if not jnp.ndim(leaf)]
        for end in (before, after)
    ]
    gap = distance(*shared)
    return f"a number that all agents share by {gap:.1e}" if gap > _UNTOUCHED else ""


def arrivals(step: StepFn, moment: Moment, t: int) -> int:
    """Counts the numbers of agent 1 that reach agent 0 in step t.

    That is the rank of the derivative of agent 0's model and its part of the rule's state after the step with
    respect to agent 1's model and batch. What agent 1 remembers is left out: its neighbours may know it from
    earlier messages. So are the ascent's states: those of a pair are, in a network, with who has the batch.
    """
    batch, key = batch_of(t), key_of(t)
    given = {"params": moment.params, "batch": batch}
    columns = []
    for name, leaf in _named_leaves(given):
        for place in np.ndindex(leaf.shape[1:]):
            ends = []
            for sign in (1, -1):
                moved = leaf.at[(1, *place)].add(sign * _SMALL_STEP)
                other = _replaced(given, name, moved)
                end = step(Moment(other["params"], moment.state), other["batch"], key)
                ends.append(_flat(_of((end.params, end.state.rule), 0)))
            columns.append((ends[0] - ends[1]) / (2 * _SMALL_STEP))
    values = np.linalg.svd(np.stack(columns), compute_uv=False)
    return int(np.sum(values > _RANK * max(values[0], 1e-3)))


def _of(stacked: Tree, agent: int) -> Tree:
    """Returns what an agent has of stacked trees; what all share is left out."""
    return row([leaf for leaf in jax.tree.leaves(stacked) if jnp.ndim(leaf)], agent)


def _altered(tree: Tree) -> Tree:
    return jax.tree.map(lambda leaf: leaf.at[0].multiply(1.3).at[0].add(0.1), tree)


def _scaled(leaf: Any) -> Any:
    """Returns a leaf of a state with the first agent's numbers scaled; they may have to stay positive."""
    if not jnp.ndim(leaf) or not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    return leaf.at[0].multiply(1.3)


def _named_leaves(tree: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(path, leaf) for path, leaf in jax.tree.leaves_with_path(tree)]


def _replaced(tree: Tree, path: Any, leaf: Any) -> Tree:
    return jax.tree.map_with_path(lambda other, old: leaf if other == path else old, tree)


def _flat(tree: Tree) -> np.ndarray:
    floating = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in floating])
