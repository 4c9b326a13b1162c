"""Lifting what was written for one model over the agents."""

from typing import Any

import jax
import optax

from saddle_jax.trees import agent_keys
from saddle_jax.types import Key, Params


def per_agent(transform: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """An optax transform written for one model, run on each agent's slice by itself.

    Element-wise transforms (scale, adam, trace) work on stacked trees as they are. Those that
    reduce over the tree, such as `optax.clip_by_global_norm`, would take one norm over all agents:
    wrap them in this. The state gets a leading agent axis, counters included; `key=` becomes one
    key per agent.
    """
    inner = optax.with_extra_args_support(transform)

    def init_fn(params: Params) -> Any:
        return jax.vmap(inner.init)(params)

    def update_fn(updates, state, params=None, *, key: Key | None = None, metrics=None, **extra_args):
        del metrics  # notes cannot leave the vmap
        size = jax.tree.leaves(updates)[0].shape[0]
        keys = None if key is None else agent_keys(key, size)

        def one_agent(updates, state, params, key):
            return inner.update(updates, state, params, key=key, **extra_args)

        return jax.vmap(one_agent)(updates, state, params, keys)

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)
