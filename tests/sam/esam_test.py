"""ESAM: which tensors are perturbed, and which samples are descended on."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import Problem, run
from suited import PLAIN

import saddle_jax as sj
from saddle_jax.core.comm_cost import passes_per_step
from saddle_jax.sam.esam import rising, some_tensors


def batch(mask=None, size=8):
    numbered = {"inputs": jnp.arange(2.0 * size).reshape(size, 2), "targets": jnp.arange(size)}
    return numbered if mask is None else {**numbered, "mask": jnp.asarray(mask, jnp.float32)}


RISE = jnp.array([0.3, -0.1, 0.5, -0.2, 0.1, -0.3, 0.4, -0.4])  # in descending order: 2 6 0 4 1 3 5 7


@pytest.mark.parametrize(
    ("gamma", "expected"),
    [(0.5, [2, 6, 0, 4]), (0.3, [2, 6]), (0.13, [2]), (0.01, [2]), (0.99, [2, 6, 0, 4, 1, 3, 5])],
)
def test_exactly_so_many_samples_whose_loss_rose_most_are_chosen(gamma, expected):
    chosen = rising(batch(), RISE, gamma)
    np.testing.assert_array_equal(chosen["targets"], expected)
    np.testing.assert_array_equal(chosen["inputs"], batch()["inputs"][jnp.array(expected)])


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ([1] * 8, [2, 6, 0, 4]),
        ([1, 1, 0, 1, 0, 1, 0, 1], [0, 1]),  # a half of five, although their losses fell and others have 0
        ([0, 0, 0, 1, 0, 1, 0, 1], [3]),
        ([0, 0, 0, 0, 0, 0, 0, 1], [7]),
        ([0] * 8, []),
    ],
)
def test_samples_that_a_mask_leaves_out_are_not_chosen(mask, expected):
    """Their losses are zero at both points: they rose more than any that fell."""
    seen = jnp.where(jnp.asarray(mask) > 0, RISE, 0.0)
    chosen = jax.jit(rising, static_argnums=2)(batch(mask), seen, 0.5)
    assert len(chosen["targets"]) == 4
    assert [int(each) for each in chosen["targets"][chosen["mask"] > 0]] == expected


def test_a_mask_of_more_axes_is_data():
    words = {"words": jnp.ones((8, 3)), "mask": jnp.zeros((8, 3))}
    chex.assert_trees_all_equal_shapes(
        rising(words, RISE, 0.5), {"words": jnp.ones((4, 3)), "mask": jnp.ones((4, 3))}
    )


def test_the_descent_sees_the_mean_of_the_chosen_of_a_masked_batch():
    """One step by hand, of the loss that images have: sum(losses * mask) / max(sum(mask), 1)."""

    def losses(x, d):
        return (x[None] - d["inputs"][:, 0]) ** 2

    def loss_fn(x, d):
        return jnp.sum(losses(x, d) * d["mask"]) / jnp.maximum(jnp.sum(d["mask"]), 1)

    d = {"inputs": jnp.array([[1.0], [-2.0], [3.0], [-9.0]]), "mask": jnp.array([1.0, 1.0, 1.0, 0.0])}
    x = jnp.array(0.5)
    method = sj.saddle(sj.dpsgd(sj.isolated(1), 1.0, **PLAIN), sj.esam(0.25, 1.0, 0.7))
    stacked = jax.tree.map(lambda leaf: leaf[None], (x, d))
    new, _, metrics = method.step(loss_fn, stacked[0], method.init(stacked[0]), stacked[1], jax.random.key(0))
    # The gradient at 0.5 is -1/3: the climb leads to 0.25, and int(0.7 * 3) = 2 of three losses rose most.
    above, images = 0.25, np.array([1.0, -2.0, 3.0])
    chosen = np.argsort((0.5 - images) ** 2 - (above - images) ** 2)[:2]
    assert set(chosen) == {0, 2}
    np.testing.assert_allclose(new[0], 0.5 - np.mean(2 * (above - images[chosen])), rtol=1e-6)
    np.testing.assert_allclose(metrics["loss"], np.mean((0.5 - images) ** 2), rtol=1e-6)


def test_all_tensors_and_all_samples_are_sam():
    problem, base = Problem(5), sj.ngm(sj.ring(5), 0.1, weight_decay=0.0)
    sam, _, _ = run(sj.saddle(base, sj.sam(0.2)), problem)
    esam, _, _ = run(sj.saddle(base, sj.esam(0.2, 1.0, 1.0)), problem)
    chex.assert_trees_all_close(esam, sam, rtol=1e-6)


def test_a_tensor_is_kept_whole_with_its_probability():
    g = {"a": jnp.ones(3), "b": jnp.ones((2, 2))}
    masks = jax.vmap(lambda key: some_tensors(g, key, 0.6))(jax.random.split(jax.random.key(0), 2000))
    for leaf in jax.tree.leaves(masks):
        kept = leaf.reshape(2000, -1)
        np.testing.assert_array_equal(kept.min(axis=1), kept.max(axis=1))
        assert kept[:, 0].mean() == pytest.approx(0.6, abs=0.04)
    both = (masks["a"][:, 0] * masks["b"][:, 0, 0]).mean()
    assert both == pytest.approx(0.36, abs=0.04)  # each by itself


def test_a_model_of_which_no_tensor_is_chosen_is_not_perturbed():
    key = next(key for key in map(jax.random.key, range(100)) if not jax.random.bernoulli(key, 0.1, (1,))[0])
    np.testing.assert_array_equal(some_tensors({"a": jnp.ones(2)}, key, 0.1)["a"], 0)
    problem = Problem(1)
    method = sj.saddle(sj.dpsgd(sj.isolated(1), 0.1, **PLAIN), sj.esam(0.3, beta=1e-6, gamma=1.0))
    chex.assert_trees_all_close(
        run(method, problem)[0], run(sj.dpsgd(sj.isolated(1), 0.1, **PLAIN), problem)[0]
    )


def test_it_counts_a_part_of_a_batch_as_that_part():
    assert sj.esam(gamma=0.25).passes_per_step == 1.25
    assert passes_per_step(sj.saddle(sj.ngm(sj.ring(6), 0.1), sj.esam()), Problem(6).params) == 4.5


def test_arguments_that_make_no_sense_are_refused():
    for options, message in (
        ({"beta": 0}, "beta must be a number > 0 and <= 1, got 0"),
        ({"gamma": 1.5}, "gamma must be a number > 0 and <= 1, got 1.5"),
    ):
        with pytest.raises(sj.ArgumentError, match=f"^{message}$"):
            sj.esam(**options)
    with pytest.raises(sj.ArgumentError, match=r"^gamma must be a number when a step is compiled"):
        jax.jit(lambda gamma: sj.esam(gamma=gamma).cost(0))(0.5)
    method, x = sj.saddle(sj.dpsgd(sj.ring(3), 0.1, **PLAIN), sj.esam()), jnp.zeros(3)
    with pytest.raises(sj.ArgumentError, match=r"^batch must have samples for esam\(.*\), .* got \[\(\)\]"):
        method.step(lambda x, d: x * d, x, method.init(x), jnp.zeros(3), jax.random.key(0))
    with pytest.raises(sj.ArgumentError, match=r"^key must be given to a step with esam"):
        method.step(lambda x, d: x * d, x, method.init(x), jnp.zeros(3))
