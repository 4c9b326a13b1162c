import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import saddle_jax as sj
from saddle_jax.core import trees

TREE = {"a": jnp.array([[3.0, 0.0], [1.0, 1.0]]), "b": jnp.array([4.0, 1.0])}  # two agents


def test_norms_stay_within_an_agent():
    np.testing.assert_allclose(sj.agent_norms(TREE), [5.0, np.sqrt(3.0)])
    np.testing.assert_allclose(trees.inner_products(TREE, {"a": TREE["a"] * 2, "b": TREE["b"]}), [34.0, 5.0])
    pairs = {"a": jnp.ones((2, 3, 4)), "b": jnp.ones((2, 3))}
    np.testing.assert_allclose(sj.agent_norms(pairs, axes=2), np.full((2, 3), np.sqrt(5.0)), rtol=1e-6)


def test_consensus_and_its_distance():
    chex.assert_trees_all_close(sj.consensus(TREE), {"a": jnp.array([2.0, 0.5]), "b": jnp.array(2.5)})
    # both agents are (1, -0.5, 1.5) away from the average, up to the sign
    np.testing.assert_allclose(sj.consensus_distance(TREE), np.sqrt(1 + 0.25 + 2.25), rtol=1e-6)
    assert sj.consensus_distance(sj.replicate({"w": jnp.ones(3)}, 4)) == 0


def test_idle_agents_count_neither_in_the_mean_nor_in_the_distance():
    params = {"w": jnp.array([[0.0, 0.0], [6.0, 8.0], [90.0, 90.0]])}
    present, among = jnp.array([True, True, False]), {"w": params["w"][:2]}
    chex.assert_trees_all_equal(sj.consensus(params, present), sj.consensus(among))
    chex.assert_trees_all_equal(
        sj.consensus_distance(params, present), sj.consensus_distance(among), jnp.float32(5)
    )


def test_replicate_stacks_equal_copies():
    stacked = sj.replicate({"w": np.arange(3.0), "n": 1.0}, 2)
    chex.assert_trees_all_close(stacked, {"w": jnp.array([[0.0, 1, 2], [0, 1, 2]]), "n": jnp.ones(2)})
    with pytest.raises(ValueError, match="size must be an integer >= 1, got 0"):
        sj.replicate({"w": jnp.ones(3)}, 0)


def test_in_memory_is_the_tree_itself_and_computed_once():
    def shifted(x, keep):
        y = keep(2.5 * x)
        return y[np.array([1, 2, 0])], y[np.array([2, 0, 1])]

    x = jnp.arange(12.0).reshape(3, 4)
    once, twice = (jax.jit(lambda x, f=f: shifted(x, f)) for f in (trees.in_memory, lambda y: y))
    chex.assert_trees_all_equal(once(x), twice(x))
    assert once.lower(x).compile().as_text().count(" multiply(") == 1  # it is 2 without help
    nested = {"x": x, "none": None, "empty": jnp.zeros((3, 0))}
    chex.assert_trees_all_equal(jax.vmap(trees.in_memory)(nested), nested)
    gradient = jax.grad(lambda x: jnp.sum(trees.in_memory({"x": x})["x"] ** 2))(x)
    np.testing.assert_array_equal(gradient, 2 * x)


def test_agent_keys_do_not_depend_on_the_number_of_agents():
    few, many = (jax.random.key_data(trees.agent_keys(jax.random.key(0), n)) for n in (3, 50))
    np.testing.assert_array_equal(few, many[:3])
    assert len(np.unique(many, axis=0)) == 50


def test_per_agent_clips_each_agent_by_its_own_norm():
    clip = optax.clip_by_global_norm(1.0)
    lifted = sj.per_agent(clip)
    updates, _ = lifted.update(TREE, lifted.init(TREE), TREE)
    np.testing.assert_allclose(sj.agent_norms(updates), [1.0, 1.0], rtol=1e-6)
    together, _ = clip.update(TREE, clip.init(TREE))  # what happens without: one norm over both agents
    assert sj.agent_norms(together)[1] < 0.5


def test_per_agent_keeps_one_state_per_agent_and_hands_out_keys():
    noise = optax.GradientTransformationExtraArgs(
        lambda params: optax.EmptyState(),
        lambda u, s, p=None, *, key, **_: (jax.tree.map(lambda x: jax.random.normal(key, x.shape), u), s),
    )
    lifted = sj.per_agent(optax.chain(optax.scale_by_adam(), noise))
    state = lifted.init(TREE)
    assert optax.tree.get(state, "count").shape == (2,)
    drawn, _ = lifted.update(TREE, state, TREE, key=jax.random.key(0), metrics={})
    assert not np.array_equal(drawn["a"][0], drawn["a"][1])
