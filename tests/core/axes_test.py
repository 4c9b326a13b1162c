"""The axes that docstrings promise: A agents, B samples, K slots, checked leaf by leaf by jaxtyping.

Within one call A, K and each tensor's own axes must be the same sizes in all arguments and in the result.
"""

import beartype
import chex
import jax
import jax.numpy as jnp
import jaxtyping
import pytest
from jaxtyping import Array, Bool, Float, Int, PyTree
from problem import Problem, compiled

import saddle_jax as sj
from saddle_jax.core import trees

checked = jaxtyping.jaxtyped(typechecker=beartype.beartype)

RING = sj.ring(5)
AGENTS, SLOTS = 5, 3
PROBLEM = Problem(AGENTS, batch=4)

# "*?rest" are the axes of each tensor by itself, the same ones in all trees of a call.
OneModel = PyTree[Float[Array, "*?rest"], "T"]
Stacked = PyTree[Float[Array, "A *?rest"], "T"]
Pairs = PyTree[Float[Array, "A K *?rest"], "T"]
Batch = PyTree[Float[Array, "A B ..."]]
Number = Float[Array, ""]
Counter = Int[Array, ""]
PerAgent = Float[Array, " A"]
PerPair = Float[Array, "A K"]
Occupied = Bool[Array, "A K"]
PerLayer = Float[Array, " L"]
PerLayerAndPair = Float[Array, "L A K"]


def models():
    return PROBLEM.params


def pairs():
    return trees.zeros_of_pairs(models(), SLOTS)


def network():
    return sj.Network(RING)


@checked
def keeps_axes(function, x: Stacked) -> Stacked:
    """One slice per agent in, one out."""
    return function(x)


@checked
def opens_slots(function, x: Stacked, weights: PerPair) -> Pairs:
    """One slice per agent in, one per agent and slot out."""
    del weights
    return function(x)


@checked
def keeps_slots(function, x: Pairs) -> Pairs:
    """One slice per agent and slot in, one out."""
    return function(x)


@checked
def closes_slots(function, x: Pairs) -> Stacked:
    """One slice per agent and slot in, one per agent out."""
    return function(x)


def gossip_of(make):
    def run(x):
        step = sj.Step(0, x, network(), oracle=None)
        return make().mix(step, x, make().init(x))[0]

    return run


@pytest.mark.parametrize(
    "function",
    [
        lambda x: network().mix(x),
        lambda x: network().correction(x),
        lambda x: sj.mix(RING, x, mixing="dense"),
        gossip_of(sj.exact),
        gossip_of(lambda: sj.choco(sj.sign())),
        trees.zeros_like,
        lambda x: trees.tree_map(jnp.negative, x),
        lambda x: trees.scale_slices(x, jnp.ones(AGENTS)),
    ],
    ids=["mix", "correction", "sj.mix", "exact", "choco", "zeros_like", "tree_map", "scale_slices"],
)
def test_one_slice_per_agent_stays_one(function):
    chex.assert_trees_all_equal_shapes(keeps_axes(function, models()), models())


def test_rounds_over_single_links_have_a_slot_axis():
    weights = network().weights
    opens_slots(network().gather, models(), weights)
    opens_slots(lambda x: trees.zeros_of_pairs(x, SLOTS), models(), weights)
    keeps_slots(network().send, pairs())
    closes_slots(network().average, pairs())

    @checked
    def tables(net: sj.Network) -> tuple[PerPair, Occupied]:
        return net.weights, net.occupied

    tables(network())


@checked
def measures(x: Stacked) -> tuple[PerAgent, PerAgent, Number, OneModel]:
    return sj.agent_norms(x), trees.inner_products(x, x), sj.consensus_distance(x), sj.consensus(x)


@checked
def measures_pairs(x: Pairs) -> tuple[PerPair, PerLayerAndPair, PerLayer]:
    layers = trees.layer_norms(x, axes=2)
    return sj.agent_norms(x, axes=2), layers, trees.mean_by_layer(layers)


@checked
def replicates(x: OneModel) -> Stacked:
    return sj.replicate(x, AGENTS)


def test_trees_reduce_within_each_agent():
    assert measures(models())[0].shape == (AGENTS,)
    assert measures_pairs(pairs())[0].shape == (AGENTS, SLOTS)
    chex.assert_trees_all_equal_shapes(replicates(sj.consensus(models())), models())


@checked
def local(x: Stacked, batch: Batch) -> Stacked:
    return sj.local_gradients(Problem.loss_fn)(x, batch)


@checked
def cross(x: Stacked, batch: Batch, weights: PerPair) -> Pairs:
    del weights
    return sj.cross_gradients(Problem.loss_fn, RING)(x, batch)


def test_gradients_have_the_axes_of_models_or_pairs():
    batch = PROBLEM.batch(0)
    chex.assert_trees_all_equal_shapes(local(models(), batch), models())
    chex.assert_trees_all_equal_shapes(cross(models(), batch, network().weights), pairs())


@checked
def begins(method: sj.Method, x: Stacked) -> tuple[Stacked, Pairs, Counter]:
    """Momentum like the models, errors of every pair, one counter."""
    state = method.init(x)
    return state.rule.m, state.rule.error, state.t


@checked
def steps(
    method: sj.Method, x: Stacked, batch: Batch
) -> tuple[Stacked, Stacked, Pairs, PerAgent, PerPair, Number]:
    def step(x, batch):
        return method.step(Problem.loss_fn, x, method.init(x), batch, diagnostics=True)

    x, state, metrics = compiled(step)(x, batch)
    measured = metrics["loss"], metrics["gradient_norm"], metrics["consensus_distance"]
    return x, state.rule.m, state.rule.error, *measured


def test_a_method_keeps_the_axes_of_models_and_states():
    method = sj.ngm(RING, 0.1, compressor=sj.sign())
    chex.assert_trees_all_equal_shapes(begins(method, models())[:2], (models(), pairs()))
    chex.assert_trees_all_equal_shapes(
        steps(method, models(), PROBLEM.batch(0))[:3], (models(), models(), pairs())
    )


def without_an_agent(x):
    return jax.tree.map(lambda leaf: leaf[:-1], x)


def tensor_turned(x):
    return {**x, "w": jnp.swapaxes(x["w"], 1, 2)}


def tensor_dropped(x):
    return {"w": x["w"]}


@pytest.mark.parametrize("wrong", [sj.consensus, without_an_agent, tensor_turned, tensor_dropped])
def test_a_wrong_axis_is_caught(wrong):
    with pytest.raises(jaxtyping.TypeCheckError):
        keeps_axes(wrong, models())


def test_slots_in_place_of_agents_are_caught():
    swapped = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), pairs())
    with pytest.raises(jaxtyping.TypeCheckError):
        keeps_slots(lambda x: swapped, pairs())
    with pytest.raises(jaxtyping.TypeCheckError):
        opens_slots(lambda x: swapped, models(), network().weights)
    with pytest.raises(jaxtyping.TypeCheckError):
        closes_slots(lambda x: jax.tree.map(lambda leaf: leaf.mean(axis=0), x), pairs())
