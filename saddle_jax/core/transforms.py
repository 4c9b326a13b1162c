"""For users of optax: gossip as gradient transformations, rules made of chains, and chains made of rules.

A transform here works in two places. Alone, in anybody's `optax.chain` and training loop, it uses the graph
that it was given. Inside a method, whose rule passes the step to it as `step=`, it uses the network of that
step: sharding, the books and random numbers are the method's. Both graphs must be equal, up to the idle
agents that a run on several devices puts behind them.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Array, Key, Operator, Params, State, Tree
from saddle_jax.core import gossip as ways
from saddle_jax.core import trees
from saddle_jax.core.gossip import Gossip, Order
from saddle_jax.core.gradients import FixedGradients
from saddle_jax.core.graphs import TimeVarying
from saddle_jax.core.mixing import Graphs, Mixing
from saddle_jax.core.network import Network
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Topology
from saddle_jax.devices.lifting import on_shards


def rule_of(transform: optax.GradientTransformation, gradients: Literal["own", "pairs"] = "own") -> Rule[Any]:
    """Makes a rule from an optax transform whose update contains the gossip.

    Args:
      transform: an optax transform, such as `optax.chain(optax.adam(1e-3), sj.gossip(topology))`. Its update
        gets the step as `step=`, and `key=` if the method has a key.
      gradients: its input: each agent's "own" gradient [A, ...], or the gradients of all "pairs"
        [A, K, ...], for chains that begin with `sj.neighbourhood_mean`.

    >>> graph = sj.complete(2)
    >>> method = sj.Method("mine", graph, sj.rule_of(optax.chain(optax.sgd(0.1), sj.gossip(graph))))
    >>> x = jnp.array([0.0, 2.0])
    >>> method.step(lambda x, d: x * d, x, method.init(x), jnp.array([10.0, 0.0]))[0]  # (0 - 1 + 2) / 2
    Array([0.5, 0.5], dtype=float32)
    """
    checks.instance("transform", transform, optax.GradientTransformation, "sj.gossip(topology)")
    checks.choice("gradients", gradients, ("own", "pairs"))
    chain = optax.with_extra_args_support(transform)

    def step(s: Step, x: Params, state: Any) -> tuple[Params, Any]:
        g = s.gradient(x) if gradients == "own" else s.cross_gradients(x)
        updates, state = chain.update(g, state, x, step=s, key=s.network.key())
        _check_updates(updates, x)
        return optax.apply_updates(x, updates), state

    return Rule(transform.init, step)


class TransformState(NamedTuple):
    """A transform made of a rule counts its steps and keeps the rule's state."""

    t: Array  # steps taken, int32 []; inside a method the method's own counter is read
    rule: Any  # the rule's state


def transform_of(rule: Rule[Any]) -> optax.GradientTransformationExtraArgs:
    """Makes an optax transform from a rule that asks for one gradient, at the models the step began with."""

    def init_fn(params: Params) -> TransformState:
        return TransformState(jnp.zeros([], jnp.int32), rule.init(params))

    def update_fn(
        updates: Params, state: TransformState, params: Params | None = None, **extra: Any
    ) -> tuple[Params, TransformState]:
        x, step = require_params(params), extra.get("step")
        network = _Absent(extra.get("key")) if step is None else step.network
        inner = Step(state.t if step is None else step.t, x, network, FixedGradients(updates))  # type: ignore[arg-type]
        if step is not None:
            inner.diagnostics, inner.notes = step.diagnostics, step.notes
        new, rule_state = rule.step(inner, x, state.rule)
        return jax.tree.map(jnp.subtract, new, x), TransformState(state.t + 1, rule_state)

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


class _Absent(NamedTuple):
    """Outside of a method there is no common network: each transform of a chain then makes its own."""

    random: Key | None


def gossip_of(transform: optax.GradientTransformation) -> Gossip[Any]:
    """Makes a gossip from a transform that turns x_{t+1/2} - x_t into x_{t+1} - x_t."""
    checks.instance("gossip", transform, optax.GradientTransformation, "sj.gossip(topology)")
    chain = optax.with_extra_args_support(transform)

    def mix(step: Step, x: Tree, state: Any) -> tuple[Tree, Any]:
        alone = isinstance(step.network, _Absent)
        extra = {"key": step.network.random, "t": step.t} if alone else {"step": step}
        updates, state = chain.update(jax.tree.map(jnp.subtract, x, step.x), state, step.x, **extra)
        return optax.apply_updates(step.x, updates), state

    return Gossip(transform.init, mix)


def gossip(
    topology: Graphs,
    gamma: Any = 1.0,
    *,
    of: Literal["updated", "current"] = "updated",
    mixing: Mixing = "auto",
) -> optax.GradientTransformationExtraArgs:
    """Adds one round of exact gossip to the updates; it comes after the learning rate in a chain.

    Args:
      topology: who hears whom.
      gamma: averaging rate in (0, 1].
      of: which models are averaged: "updated" ones, x_{t+1/2} = x_t + updates (D-PSGD line 8, QGM
        line 8), or the "current" ones, x_t (NGM line 16).
      mixing: "auto", "dense" or "table", see `sj.mixing_form`.

    Returns:
      A transform of stacked updates [A, ...]; `optax.apply_updates` then gives x_{t+1}. Outside of a method,
      on graphs that take turns, its update takes `t=`, the step.

    >>> x, average = jnp.array([0.0, 2.0]), sj.gossip(sj.complete(2))
    >>> updates, state = average.update(jnp.array([-1.0, 0.0]), average.init(x), x)
    >>> optax.apply_updates(x, updates)
    Array([0.5, 0.5], dtype=float32)
    """
    checks.choice("of", of, ("updated", "current"))
    return _transform(topology, ways.exact(gamma, mixing), of)


def choco_gossip(
    topology: Graphs,
    compressor: Operator,
    gamma: Any = 1.0,
    order: Order = "choco",
    *,
    mixing: Mixing = "auto",
) -> optax.GradientTransformationExtraArgs:
    """Adds one round of compressed gossip to the updates; it comes after the learning rate in a chain.

    The models x_{t+1/2} = x_t + updates travel as `sj.choco` says, which explains the other arguments.
    Returns a transform of stacked updates [A, ...]. Outside of a method its update takes `key=` if the
    compressor draws random numbers, and `t=` on graphs that take turns.

    >>> x, average = jnp.array([[0.0, 1.0], [2.0, 0.0]]), sj.choco_gossip(sj.complete(2), sj.top_k(0.5))
    >>> average.update(jnp.zeros((2, 2)), average.init(x), x)[0]  # only 1 and 2 travel
    Array([[ 1. , -0.5],
           [-1. ,  0.5]], dtype=float32)
    """
    return _transform(topology, ways.choco(compressor, gamma, order, mixing), "updated")


def per_agent(transform: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """Runs an optax transform that is written for one model on each agent's slice by itself.

    Element-wise transforms (scale, adam, trace) work on stacked trees as they are. Those that
    reduce over the tree, such as `optax.clip_by_global_norm`, would take one norm over all agents:
    wrap them in this. The state gets a leading agent axis, counters included; `key=` becomes one
    key per agent.

    >>> clip = sj.per_agent(optax.clip_by_global_norm(1.0))
    >>> x = jnp.array([[3.0, 4.0], [0.3, 0.4]])
    >>> clip.update(x, clip.init(x))[0].round(3)
    Array([[0.6, 0.8],
           [0.3, 0.4]], dtype=float32)
    """
    inner = optax.with_extra_args_support(transform)

    def init_fn(params: Params) -> Any:
        return jax.vmap(inner.init)(params)

    def update_fn(updates: Params, state: Any, params: Params | None = None, **extra: Any) -> Any:
        extra.pop("step", None)  # an agent by itself meets nobody
        key = extra.pop("key", None)
        size = jax.tree.leaves(updates)[0].shape[0]
        keys = None if key is None else trees.agent_keys(key, size)

        def one_agent(updates: Params, state: Any, params: Params | None, key: Key | None) -> Any:
            return inner.update(updates, state, params, key=key, **extra)

        return on_shards(jax.vmap(one_agent))(updates, state, params, keys)

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def on_network(
    topology: Graphs,
    init: Callable[[Params], State],
    update: Callable[[Step, Tree, State, Params | None], tuple[Tree, State]],
    *,
    pairs: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """Makes a transform whose update is handed a step: the method's, or outside of a method one of its own.

    Args:
      topology: who hears whom.
      init: x [A, ...] -> state.
      update: (step, updates, state, params) -> (updates, state).
      pairs: whether the updates are gradients of pairs [A, K, ...], which `update` returns over the links.
    """

    def init_fn(params: Params) -> State:
        # The method's graph may have idle agents besides, which only a step tells.
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(params)]
        trees.check_params(params, max([topology.size, *(shape[0] for shape in shapes[:1] if shape)]))
        return init(params)

    def update_fn(
        updates: Tree,
        state: State,
        params: Params | None = None,
        *,
        step: Step | None = None,
        key: Key | None = None,
        t: Any = None,
        **_: Any,
    ) -> tuple[Tree, State]:
        if step is None:
            if topology.period > 1 and t is None:
                raise ArgumentError(f"t must be given to update(..., t=step) on {topology.name}, got None")
            t = 0 if t is None else t
            step = Step(t, params, Network(topology, t, key), FixedGradients(None))
            if pairs:
                step.network.expect_return(updates)
        elif not _is_padded(step.network.topology, topology):
            raise ArgumentError(
                f"a method has one topology: it is on {step.network.topology.name}, "
                f"got a transform on {topology.name}"
            )
        return update(step, updates, state, params)

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def _is_padded(graph: Graphs, own: Graphs) -> bool:
    """Tells whether a graph is one's own, or one's own with idle agents behind it."""
    return graph is own or (graph.size >= own.size and graph == own.padded(graph.size))


def require_params(params: Params | None) -> Params:
    """Returns the current models [A, ...], without which there is nothing to average."""
    if params is None:
        raise ArgumentError("params must be given to update(updates, state, params), got None")
    return params


def check_topology(topology: Any) -> None:
    """Checks that an argument is a graph."""
    checks.instance("topology", topology, (Topology, TimeVarying), "sj.ring(10)")


def _transform(
    topology: Graphs, gossip: Gossip[Any], of: Literal["updated", "current"]
) -> optax.GradientTransformationExtraArgs:
    check_topology(topology)

    def update(s: Step, updates: Params, state: Any, params: Params | None) -> tuple[Params, Any]:
        x = require_params(params)
        models = optax.apply_updates(x, updates) if of == "updated" else x
        trees.check_params(models, s.network.topology.size)
        new, state = gossip.mix(s, models, state)
        change = jax.tree.map(jnp.subtract, new, x)
        return change if of == "updated" else jax.tree.map(jnp.add, updates, change), state

    return on_network(topology, gossip.init, update)


def _check_updates(updates: Tree, params: Params) -> None:
    """Checks the updates' shapes: gradients of pairs that nobody averaged would broadcast."""
    for (path, update), x in zip(jax.tree.leaves_with_path(updates), jax.tree.leaves(params), strict=True):
        if update.shape != x.shape:
            raise ArgumentError(
                f"the transform must return updates of the parameters' shapes, got {update.shape} for "
                f"params{jax.tree_util.keystr(path)} {x.shape}: is sj.neighbourhood_mean missing?"
            )
