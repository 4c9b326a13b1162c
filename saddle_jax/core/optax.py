"""optax: methods and gossip as gradient transformations, rules made of transforms, and gradient functions.

A transform here works in two places. Alone, in any `optax.chain` and training loop, it uses the graph that it
was given. Inside a method, whose rule passes the step to it as `step=`, it uses the network of that step, so
that sharding, recorded bytes and random numbers are the method's. Both graphs must be equal, up to the idle
agents that a run on several devices appends.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from saddle_jax.base import checks
from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.types import Batch, Key, LossFn, Operator, Params, State, Tree
from saddle_jax.core import trees
from saddle_jax.core.gossip import Gossip, Order, choco, exact, gossip_of
from saddle_jax.core.gradients import FixedGradients, GradientEstimator, Gradients, plain_gradient
from saddle_jax.core.method import Method, MethodState
from saddle_jax.core.network import Mixing, Network
from saddle_jax.core.rule import Rule, Step
from saddle_jax.core.topology import Graphs, Links, Topology, check_topology
from saddle_jax.devices.lifting import on_shards


def rule_of(transform: optax.GradientTransformation, gradients: Literal["own", "pairs"] = "own") -> Rule[Any]:
    """Makes a rule of an optax transform whose update contains the gossip.

    Args:
      transform: an optax transform, such as `optax.chain(optax.adam(1e-3), sj.gossip(topology))`. Its update
        gets the step as `step=`, and `key=` if the method has a key.
      gradients: its input: each agent's "own" gradient [A, ...], or the cross-gradients of all "pairs"
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


def as_optax(method: Method) -> optax.GradientTransformationExtraArgs:
    """Converts a method to an optax transform from gradients [A, ...] to updates that include the gossip.

    Momentum, gossip, faults and kinds of steps are the method's own. The caller computes the gradients,
    sharpness-aware ones by `sj.local_gradients(loss_fn, sj.sam(0.05))`.

    Args:
      method: one with plain gradients and without timing, which asks for one gradient in a step, at the
        models that the step began with. Others raise an error, some of them in the transform's `init`.

    Returns:
      A transform of stacked gradients [A, ...]; its update takes `key=` if the method draws random numbers.

    >>> method = sj.dpsgd(sj.complete(2), 0.5, beta=0.0, weight_decay=0.0)
    >>> tx = optax.chain(optax.clip(1.0), sj.as_optax(method))
    >>> x = jnp.array([0.0, 2.0])
    >>> updates, state = tx.update(jnp.array([10.0, 0.0]), tx.init(x), x)
    >>> optax.apply_updates(x, updates)  # (0 - 0.5 + 2) / 2
    Array([0.75, 0.75], dtype=float32)
    """
    checks.instance("method", method, Method, "sj.qgm(topology, 0.1)")
    if method.gradient.name != plain_gradient().name:
        raise ArgumentError(
            "method must have plain gradients to be an optax transform: others are taken outside of it, by "
            f"sj.local_gradients(loss_fn, {method.gradient}), got {method!r}"
        )
    if method.timing is not None:
        raise ArgumentError(f"timing must be None for an optax transform, got {method.timing!r}")

    def init_fn(params: Params) -> MethodState:
        on_rows = dataclasses.replace(method, topology=method.topology.padded(_rows(params, method.topology)))
        state = on_rows.init(params)
        # An abstract step: it raises an error if the method asks for gradients that there will not be.
        jax.eval_shape(
            functools.partial(_taken, on_rows), params, state, params, jax.eval_shape(jax.random.key, 0)
        )
        return state

    def update_fn(
        updates: Params,
        state: MethodState,
        params: Params | None = None,
        *,
        key: Key | None = None,
        step: Step | None = None,
        **_: Any,
    ) -> tuple[Params, MethodState]:
        x = jax.tree.map(jnp.asarray, require_params(params))
        if step is None:
            trees.check_params("params", x, method.topology.size)
            new, state = _taken(method, updates, state, x, key)
        else:
            _check_within(method, step)
            given = FixedGradients(updates, x, method.name)
            within = dataclasses.replace(step, x=x, oracle=given, kind=method.rule.all_kinds[0])
            now = method.hyperparams.now(method, x, state)[0] if method.hyperparams else method
            new, rule = now.rule.step(within, x, state.rule)
            state = state._replace(t=state.t + 1, rule=rule)
        return jax.tree.map(jnp.subtract, new, x), state

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def _taken(
    method: Method, gradients: Params, state: MethodState, x: Params, key: Key | None
) -> tuple[Params, MethodState]:
    """Returns models and state after a step with these gradients [A, ...], taken at the models x."""
    new, state, _ = method.step_with(lambda network: FixedGradients(gradients, x, method.name), x, state, key)
    return new, state


def _check_within(method: Method, step: Step) -> None:
    """Checks that a method can run as a transform inside the rule of another, on that one's network."""
    _check_same(step.network.topology, method.topology)
    if len(method.rule.all_kinds) > 1 or method.faults is not None:
        raise ArgumentError(
            "method must have steps of one kind and no faults of its own inside the chain of another method, "
            f"got {method!r}"
        )


def decentralize(
    optimizer: optax.GradientTransformation, topology: Graphs, gossip: Gossip[Any] | None = None
) -> optax.GradientTransformationExtraArgs:
    """Makes an optax optimizer decentralized: each agent takes its own step, followed by a round of gossip.

    The optimizer is applied to each agent separately, so that norms, such as that of
    `optax.clip_by_global_norm`, are per agent. It is
    `optax.chain(sj.per_agent(optimizer), sj.gossip(topology))`.

    Args:
      optimizer: any optax optimizer.
      topology: the communication graph.
      gossip: such as `sj.choco(sj.top_k(0.3), 0.4)`; None is `sj.exact()`.

    Returns:
      A transform of stacked gradients [A, ...]. Its update takes `key=` if a compressor draws random numbers.

    >>> tx, x = sj.decentralize(optax.sgd(0.1), sj.complete(2)), jnp.array([0.0, 2.0])
    >>> updates, state = tx.update(jnp.array([10.0, 0.0]), tx.init(x), x)
    >>> optax.apply_updates(x, updates)  # (0 - 1 + 2) / 2
    Array([0.5, 0.5], dtype=float32)
    """
    checks.instance("optimizer", optimizer, optax.GradientTransformation, "optax.adam(1e-3)")
    check_topology(topology)
    gossip = gossip_of(topology, gossip, None, 1.0)
    chain = optax.chain(per_agent(optimizer), _transform(topology, gossip, "updated"))
    return as_optax(Method("decentralize", topology, rule_of(chain)))  # which counts the steps


def local_gradients(
    loss_fn: LossFn, estimator: GradientEstimator[Any] | None = None
) -> Callable[..., Params]:
    """Makes a function that computes every agent's gradient of its own loss at its own model.

    Args:
      loss_fn: (params, batch) -> scalar loss of ONE agent, or (loss, aux); no agent axis.
      estimator: a gradient estimator without state, such as `sj.sam(0.05)`; None is the plain gradient.

    Returns:
      A function of stacked params [A, ...] and batch [A, B, ...] that returns gradients [A, ...]. It takes
      `key=` if the estimator draws random numbers, and `t=`, the step, if its steps are of several kinds.

    >>> gradients = sj.local_gradients(lambda x, d: 0.5 * jnp.sum(x * x * d))
    >>> gradients(jnp.array([1.0, 2.0]), jnp.array([3.0, 5.0]))
    Array([ 3., 10.], dtype=float32)
    """
    oracle = _oracle_of(loss_fn, estimator)

    def gradients(params: Params, batch: Batch, key: Key | None = None, t: Any = 0) -> Params:
        size = np.shape(jax.tree.leaves(params)[0])[0]
        alone = Topology("alone", size, lambda: Links(np.arange(size), np.arange(size), np.ones(size)))
        return oracle(alone, params, batch, key, t).own(params)

    return gradients


def cross_gradients(
    loss_fn: LossFn, topology: Graphs, estimator: GradientEstimator[Any] | None = None
) -> Callable[..., Params]:
    """Makes a function that computes every agent's gradients at its own model on its neighbours' batches.

    Args:
      loss_fn: the loss of one agent, as in `sj.local_gradients`.
      topology: the communication graph.
      estimator: a gradient estimator, as in `sj.local_gradients`.

    Returns:
      A function of stacked params [A, ...] and batch [A, B, ...], as of `sj.local_gradients`, that returns
      cross-gradients [A, K, ...]: [i, k] is grad F_j(x_i; d_j) with j = topology.neighbours[i, k].
      `sj.neighbourhood_mean` averages them.

    >>> gradients = sj.cross_gradients(lambda x, d: 0.5 * jnp.sum(x * x * d), sj.complete(2))
    >>> gradients(jnp.array([1.0, 2.0]), jnp.array([3.0, 5.0]))  # own data first
    Array([[ 3.,  5.],
           [10.,  6.]], dtype=float32)
    """
    check_undirected(topology)
    oracle = _oracle_of(loss_fn, estimator)

    def gradients(params: Params, batch: Batch, key: Key | None = None, t: Any = 0) -> Params:
        return oracle(topology, params, batch, key, t).pairs(params, None)

    return gradients


def _oracle_of(loss_fn: LossFn, estimator: GradientEstimator[Any] | None) -> Callable[..., Gradients]:
    estimator = plain_gradient() if estimator is None else estimator
    checks.instance("estimator", estimator, GradientEstimator, "sj.sam(0.05)")

    def oracle(topology: Graphs, params: Params, batch: Batch, key: Key | None, t: Any) -> Gradients:
        trees.check_params("params", params, topology.size)
        trees.check_stacked("batch", batch, topology.size)
        if estimator.keeps_state(jax.tree.map(lambda leaf: leaf[0], params)):
            raise ArgumentError(
                "estimator must remember nothing where gradients are taken alone, and this one does: "
                f"sj.saddle(method, {estimator}), got {estimator}"
            )
        batch, network = jax.tree.map(jnp.asarray, batch), Network(topology, t, key)
        kind = estimator.kind(t) if isinstance(t, int) else None
        return Gradients(loss_fn, estimator, batch, network, t, states=[], kind=kind)

    return oracle


def gossip(
    topology: Graphs,
    gamma: Any = 1.0,
    *,
    of: Literal["updated", "current"] = "updated",
    mixing: Mixing = "auto",
) -> optax.GradientTransformationExtraArgs:
    """Adds one round of exact gossip to the updates; it comes after the learning rate in a chain.

    Args:
      topology: the communication graph.
      gamma: averaging rate, a number or a function of the step, see `sj.exact`.
      of: which models are averaged: "updated" ones, x_{t+1/2} = x_t + updates (D-PSGD line 8, QGM
        line 8), or the "current" ones, x_t (NGM line 16).
      mixing: "auto", "dense" or "table", see `sj.mixing_form`.

    Returns:
      A transform of stacked updates [A, ...]; `optax.apply_updates` then gives x_{t+1}. Outside of a method
      its update takes `t=`, the step, if the graph or gamma varies with it.

    >>> x, average = jnp.array([0.0, 2.0]), sj.gossip(sj.complete(2))
    >>> updates, state = average.update(jnp.array([-1.0, 0.0]), average.init(x), x)
    >>> optax.apply_updates(x, updates)
    Array([0.5, 0.5], dtype=float32)
    """
    checks.choice("of", of, ("updated", "current"))
    check_topology(topology)
    return _transform(topology, gossip_of(topology, exact(gamma, mixing), None, 1.0), of)


def choco_gossip(
    topology: Graphs,
    compressor: Operator,
    gamma: Any = 1.0,
    order: Order = "choco",
    *,
    mixing: Mixing = "auto",
) -> optax.GradientTransformationExtraArgs:
    """Adds one round of compressed gossip to the updates; it comes after the learning rate in a chain.

    The models x_{t+1/2} = x_t + updates are averaged as in `sj.choco`, which explains the other arguments.
    Returns a transform of stacked updates [A, ...]. Outside of a method its update takes `key=` if the
    compressor draws random numbers, and `t=`, the step, if the graph or gamma varies with it.

    >>> x, average = jnp.array([[0.0, 1.0], [2.0, 0.0]]), sj.choco_gossip(sj.complete(2), sj.top_k(0.5))
    >>> average.update(jnp.zeros((2, 2)), average.init(x), x)[0]  # only 1 and 2 are sent
    Array([[ 1. , -0.5],
           [-1. ,  0.5]], dtype=float32)
    """
    check_topology(topology)
    way = gossip_of(topology, choco(compressor, gamma, order, mixing), None, 1.0)
    return _transform(topology, way, "updated")


def per_agent(transform: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """Maps an optax transform over the agents: each slice is one model to it.

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
        extra.pop("step", None)  # a single agent has no network
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
    needs_t: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """Makes a transform whose update is given a step: the method's, or outside of a method its own.

    Args:
      topology: the communication graph.
      init: x [A, ...] -> state.
      update: (step, updates, state, params) -> (updates, state).
      pairs: whether the updates are gradients of pairs [A, K, ...], which `update` returns over the links.
      needs_t: whether it depends on the number of the step, besides the graph.
    """

    def init_fn(params: Params) -> State:
        trees.check_params("params", params, _rows(params, topology))
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
            if (topology.period > 1 or needs_t) and t is None:
                raise ArgumentError(f"t must be given to update(..., t=step) on {topology.name}, got None")
            if params is not None:
                trees.check_params("params", params, topology.size)
            t = 0 if t is None else t
            step = Step(t, params, Network(topology, t, key), FixedGradients(None, params, "a transform"))
            if pairs:
                step.network.expect_return(updates)
        else:
            _check_same(step.network.topology, topology)
        return update(step, updates, state, params)

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def _rows(params: Params, topology: Graphs) -> int:
    """Returns the number of agents, with the idle ones that only the models' shapes show."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(params)]
    return max([topology.size, *(int(shape[0]) for shape in shapes[:1] if shape)])


def _check_same(graph: Graphs, own: Graphs) -> None:
    """Checks that a method's graph is that of a transform in it, up to idle agents at the end."""
    if graph is not own and (graph.size < own.size or graph != own.padded(graph.size)):
        raise ArgumentError(
            f"a method has one topology: it is on {graph.name}, got a transform on {own.name}"
        )


def require_params(params: Params | None) -> Params:
    """Returns the current models [A, ...], or raises an error if update was called without them."""
    if params is None:
        raise ArgumentError("params must be given to update(updates, state, params), got None")
    return params


def check_undirected(topology: Any) -> None:
    """Checks that a graph is undirected: cross-gradients return over the link that the model came on."""
    check_topology(topology)
    if topology.is_directed:
        raise ArgumentError(f"topology must be undirected to exchange cross-gradients, got {topology.name}")


def _transform(
    topology: Graphs, way: Gossip[Any], of: Literal["updated", "current"]
) -> optax.GradientTransformationExtraArgs:
    def update(s: Step, updates: Params, state: Any, params: Params | None) -> tuple[Params, Any]:
        x = require_params(params)
        models = optax.apply_updates(x, updates) if of == "updated" else x
        new, state = way.mix(s, models, state)
        change = jax.tree.map(jnp.subtract, new, x)
        return change if of == "updated" else jax.tree.map(jnp.add, updates, change), state

    varies = way.options is not None and callable(way.options.gamma)
    return on_network(topology, way.init, update, needs_t=varies)


def _check_updates(updates: Tree, params: Params) -> None:
    """Checks the updates' shapes: cross-gradients [A, K, ...] that were not averaged would broadcast."""
    for (path, update), x in zip(jax.tree.leaves_with_path(updates), jax.tree.leaves(params), strict=True):
        if update.shape != x.shape:
            raise ArgumentError(
                f"the transform must return updates of the parameters' shapes, got {update.shape} for "
                f"params{jax.tree_util.keystr(path)} {x.shape}: is sj.neighbourhood_mean missing?"
            )
