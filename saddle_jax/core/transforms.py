"""The optax face: gossip as gradient transformations, rules made of chains, and chains made of rules.

A transform here works in two places. Alone, in anybody's `optax.chain` and training loop, it lives on
the graph that it was given. Inside a method, whose rule hands it the step as `step=`, it uses that step's
network, so that sharding, books and random numbers are the method's; the two graphs must be one.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Key, Operator, Params, Tree
from saddle_jax.core import gossip as ways
from saddle_jax.core import trees
from saddle_jax.core.gossip import Gossip, Order
from saddle_jax.core.gradients import Given
from saddle_jax.core.graphs import Cycle
from saddle_jax.core.method import Rule, Step
from saddle_jax.core.network import Form, Graphs, Network
from saddle_jax.core.topology import Topology
from saddle_jax.devices.lifting import on_shards


def rule_of(transform: optax.GradientTransformation, gradients: Literal["own", "pairs"] = "own") -> Rule:
    """A rule from an optax transform whose update contains the gossip.

    Args:
      transform: such as `optax.chain(optax.adam(1e-3), sj.gossip(topology))`. It is handed the step as
        `step=`, and `key=` where the method has one.
      gradients: what it is fed with: each agent's "own" gradient [A, ...], or the gradients of all "pairs"
        [A, K, ...], for chains that begin with `sj.neighbourhood_mean`.
    """
    checks.instance("transform", transform, optax.GradientTransformation, "sj.gossip(topology)")
    checks.choice("gradients", gradients, ("own", "pairs"))
    chain = optax.with_extra_args_support(transform)

    def step(s: Step, x: Params, state: Any) -> tuple[Params, Any]:
        fed = s.gradient(x) if gradients == "own" else s.cross_gradients(x)
        updates, state = chain.update(fed, state, x, step=s, key=s.network.key())
        _check_updates(updates, x)
        return optax.apply_updates(x, updates), state

    return Rule(transform.init, step)


class TransformState(NamedTuple):
    """State of a rule in a chain."""

    t: Array  # steps taken, int32 []; inside a method the method's own counter is read
    rule: Any


def transform_of(rule: Rule) -> optax.GradientTransformationExtraArgs:
    """An optax transform from a rule that asks for one gradient, at the models that the step began with."""

    def init_fn(params: Params) -> TransformState:
        return TransformState(jnp.zeros([], jnp.int32), rule.init(params))

    def update_fn(updates, state, params=None, *, step: Step | None = None, key: Key | None = None, **_):
        x = require_params(params)
        network = _Absent(key) if step is None else step.network
        inner = Step(state.t if step is None else step.t, x, network, Given(updates))  # type: ignore[arg-type]
        if step is not None:
            inner.diagnostics, inner.notes = step.diagnostics, step.notes
        new, rule_state = rule.step(inner, x, state.rule)
        return jax.tree.map(jnp.subtract, new, x), TransformState(state.t + 1, rule_state)

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


class _Absent(NamedTuple):
    """In place of a network, outside of a method: each transform of a chain then has its own."""

    random: Key | None


def gossip_of(transform: optax.GradientTransformation) -> Gossip:
    """A gossip from a transform that is handed x_{t+1/2} - x_t and returns x_{t+1} - x_t."""
    checks.instance("gossip", transform, optax.GradientTransformation, "sj.gossip(topology)")
    chain = optax.with_extra_args_support(transform)

    def mix(step: Step, x: Tree, state: Any) -> tuple[Tree, Any]:
        alone = isinstance(step.network, _Absent)
        extra = {"key": step.network.random, "t": step.t} if alone else {"step": step}
        moved, state = chain.update(jax.tree.map(jnp.subtract, x, step.x), state, step.x, **extra)
        return optax.apply_updates(step.x, moved), state

    return Gossip(transform.init, mix)


def gossip(
    topology: Graphs,
    gamma: Any = 1.0,
    *,
    of: Literal["updated", "current"] = "updated",
    form: Form = "auto",
) -> optax.GradientTransformationExtraArgs:
    """Adds one round of exact gossip to the updates; it comes after the learning rate in a chain.

    Args:
      topology: who hears whom.
      gamma: averaging rate in (0, 1].
      of: which models are averaged: "updated" ones, x_{t+1/2} = x_t + updates (D-PSGD line 8, QGM
        line 8), or the "current" ones, x_t (NGM line 16).
      form: "auto", "dense" or "table", see `mixing_form`.

    Returns:
      A transform of stacked updates [A, ...]; `optax.apply_updates` then gives x_{t+1}. Alone, on graphs
      that take turns, its update takes `t=`, the step.
    """
    checks.choice("of", of, ("updated", "current"))
    return _transform(topology, ways.exact(gamma, form), of)


def choco_gossip(
    topology: Graphs,
    compressor: Operator,
    gamma: Any = 1.0,
    order: Order = "choco",
    *,
    form: Form = "auto",
) -> optax.GradientTransformationExtraArgs:
    """Adds one round of compressed gossip to the updates; it comes after the learning rate.

    It travels as `core.gossip.choco` says, where x is x_{t+1/2} = x_t + updates.

    Args:
      topology: who hears whom.
      compressor: the operator Q, applied to each tensor of each agent.
      gamma: averaging rate in (0, 1]; strong compression needs a small one (the paper: 0.4 for
        30 % top-k).
      order: "choco" or "paper".
      form: "auto", "dense" or "table", see `mixing_form`.

    Returns:
      A transform of stacked updates [A, ...]. Alone, its update takes `key=` when the compressor draws
      random numbers, and `t=` on graphs that take turns.
    """
    return _transform(topology, ways.choco(compressor, gamma, order, form), "updated")


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

    def update_fn(updates, state, params=None, *, key: Key | None = None, step=None, **extra_args):
        del step  # one agent by itself meets nobody
        size = jax.tree.leaves(updates)[0].shape[0]
        keys = None if key is None else trees.agent_keys(key, size)

        def one_agent(updates, state, params, key):
            return inner.update(updates, state, params, key=key, **extra_args)

        return on_shards(jax.vmap(one_agent))(updates, state, params, keys)

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def at_step(step: Step | None, topology: Graphs, x: Params, key: Key | None = None, t: Any = None) -> Step:
    """The step that a transform on `topology` takes part in: the method's, or one of its own."""
    if step is None:
        if topology.period > 1 and t is None:
            raise ArgumentError(f"t must be given to update(..., t=step) on {topology.name}, got None")
        return Step(t or 0, x, Network(topology, 0 if t is None else t, key), Given(None))
    if step.network.topology is not topology:
        raise ArgumentError(
            f"a method has one topology: it is on {step.network.topology.name}, "
            f"got a transform on {topology.name}"
        )
    return step


def require_params(params: Params | None) -> Params:
    """The current models, without which there is nothing to average."""
    if params is None:
        raise ArgumentError("params must be given to update(updates, state, params), got None")
    return params


def check_topology(topology: Any) -> None:
    """Checks that an argument is a graph."""
    checks.instance("topology", topology, (Topology, Cycle), "sj.ring(10)")


def _transform(
    topology: Graphs, way: Gossip, of: Literal["updated", "current"]
) -> optax.GradientTransformationExtraArgs:
    check_topology(topology)

    def init_fn(params: Params) -> Any:
        trees.check_params(params, topology.size)
        return way.init(params)

    def update_fn(updates, state, params=None, *, step: Step | None = None, key=None, t=None, **_):
        x = require_params(params)
        s = at_step(step, topology, x, key, t)
        models = optax.apply_updates(x, updates) if of == "updated" else x
        trees.check_params(models, topology.size)
        new, state = way.mix(s, models, state)
        moved = jax.tree.map(jnp.subtract, new, x)
        return moved if of == "updated" else jax.tree.map(jnp.add, updates, moved), state

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def _check_updates(updates: Tree, params: Params) -> None:
    """Gradients of pairs that nobody averaged would broadcast against the models."""
    for (path, update), x in zip(jax.tree.leaves_with_path(updates), jax.tree.leaves(params), strict=True):
        if update.shape != x.shape:
            raise ArgumentError(
                f"the transform must return updates of the parameters' shapes, got {update.shape} for "
                f"params{jax.tree_util.keystr(path)} {x.shape}: is sj.neighbourhood_mean missing?"
            )
