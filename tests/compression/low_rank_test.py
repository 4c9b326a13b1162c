"""Low-rank compression against PowerSGD's formula, its projection, and what is sent whole."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import compiled

import saddle_jax as sj
from saddle_jax.core.comm_cost import comm_cost
from saddle_jax.core.gossip import compress_stacked

compress = compiled(lambda operator, x, key: operator.compress(x, key), static_argnums=0)


def gaussian(shape, seed=0, dtype=None):
    return jax.random.normal(jax.random.key(seed), shape, dtype)


def printed(matrix, start):
    """One step of PowerSGD's power iteration, its columns made orthonormal one after the other."""
    columns = []
    for p in (matrix @ start).T:
        for before in columns:
            p = p - (before @ p) * before
        columns.append(p / math.sqrt(p @ p))
    basis = np.stack(columns, axis=1)
    return basis @ (matrix.T @ basis).T


@pytest.mark.parametrize("shape", [(9, 7), (3, 2, 4, 8), (7, 30)], ids=str)
@pytest.mark.parametrize("rank", [1, 3])
def test_it_is_the_papers_formula_from_the_same_start(shape, rank, x64):
    x, key = gaussian(shape, 1, jnp.float64), jax.random.key(3)
    matrix = np.asarray(x).reshape(math.prod(shape[:-1]), shape[-1])
    start = np.asarray(jax.random.normal(key, (shape[-1], rank), jnp.float64))
    expected = printed(matrix, start).reshape(shape)
    np.testing.assert_allclose(compress(sj.low_rank(rank), x, key), expected, rtol=1e-10, atol=1e-10)


def test_it_is_a_projection_that_keeps_matrices_of_its_rank():
    operator, x = sj.low_rank(2), gaussian((12, 9))
    kept = compress(operator, x, jax.random.key(0))
    assert np.linalg.matrix_rank(np.asarray(kept), tol=1e-4) == 2
    lost = float(jnp.sum((x - kept) ** 2))
    assert lost == pytest.approx(float(jnp.sum(x**2) - jnp.sum(kept**2)), rel=1e-5)
    thin = gaussian((12, 2)) @ gaussian((2, 9), seed=1)
    np.testing.assert_allclose(compress(operator, thin, jax.random.key(1)), thin, atol=1e-5)
    single = jnp.outer(gaussian((12,)), gaussian((9,), seed=1))  # of rank 1: the second column is free
    np.testing.assert_allclose(compress(operator, single, jax.random.key(1)), single, atol=1e-5)


def test_equal_singular_values_attain_the_contraction_and_others_do_better():
    operator, keys = sj.low_rank(2), jax.random.split(jax.random.key(0), 200)
    lost = compiled(jax.vmap(lambda x, key: jnp.sum((operator.compress(x, key) - x) ** 2), in_axes=(None, 0)))
    assert operator.contraction((6, 8)) == 2 / 6
    np.testing.assert_allclose(lost(jnp.eye(6, 8), keys), 4.0, rtol=1e-4)
    steep = jnp.eye(6, 8) * 2.0 ** -jnp.arange(8)[None]
    assert float(lost(steep, keys).mean() / jnp.sum(steep**2)) < (1 - 2 / 6) / 2


@pytest.mark.parametrize(
    ("shape", "rank", "numbers"),
    [
        ((), 1, 1),
        ((1,), 1, 1),
        ((50,), 1, 50),
        ((1, 50), 1, 50),
        ((50, 1), 1, 50),
        ((4, 4), 2, 16),  # the factors would take as much
        ((4, 5), 2, 18),
        ((4, 5), 3, 20),
        ((3, 3, 4, 8), 2, 2 * (36 + 8)),
        ((3, 3, 4, 8), 99, 288),
    ],
)  # fmt: skip
def test_a_tensor_is_sent_whole_where_factors_are_not_smaller(shape, rank, numbers):
    operator, x, key = sj.low_rank(rank), gaussian(shape), jax.random.key(0)
    assert operator.bits(shape) == operator.paper_bits(shape) == 32 * numbers
    assert operator.bits(shape, jnp.bfloat16) == 16 * numbers
    assert operator.encode(x, key).data.size == 4 * numbers
    if numbers == x.size:
        np.testing.assert_array_equal(operator.compress(x, key), x)
        assert operator.contraction(shape) == 1.0


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("rank", [1, 4])
def test_the_receiver_gets_the_senders_numbers_bit_for_bit(dtype, rank, x64):
    operator, x, key = sj.low_rank(rank), gaussian((3, 3, 8, 16)).astype(dtype), jax.random.key(4)
    # As programs are compiled elsewhere, not as fast as possible.
    payload = jax.jit(operator.encode)(x, key)
    received = jax.jit(operator.decode)(payload)
    np.testing.assert_array_equal(received, jax.jit(operator.compress)(x, key))
    assert received.dtype == dtype


def test_large_and_small_numbers_neither_overflow_nor_vanish():
    x, key = gaussian((6, 8)), jax.random.key(0)
    expected = compress(sj.low_rank(2), x, key)
    for scale in (1e30, 1e-30):
        np.testing.assert_allclose(
            compress(sj.low_rank(2), x * scale, key) / scale, expected, rtol=1e-3, atol=1e-5
        )


def test_a_number_that_is_not_finite_shows():
    for bad in (np.nan, np.inf):
        x = gaussian((6, 8)).at[2, 3].set(bad)
        assert not np.isfinite(compress(sj.low_rank(2), x, jax.random.key(0))).all()


def models(agents):
    kernels = {"kernel": gaussian((agents, 3, 3, 4, 8)), "dense": gaussian((agents, 10, 6))}
    return {**kernels, "bias": gaussian((agents, 8)), "scale": gaussian((agents,))}


def test_an_agents_axis_is_no_part_of_the_matrix():
    operator, tree, key = sj.low_rank(2), models(4), jax.random.key(2)
    stacked = compiled(lambda tree, key: compress_stacked(operator, tree, key))(tree, key)
    np.testing.assert_array_equal(stacked["bias"], tree["bias"])
    np.testing.assert_array_equal(stacked["scale"], tree["scale"])
    for i in range(4):
        for name, rows in (("kernel", 36), ("dense", 10)):
            matrix = np.asarray(stacked[name][i]).reshape(rows, -1)
            assert np.linalg.matrix_rank(matrix, tol=1e-4) == 2


def test_the_books_charge_both_factors_of_every_tensor():
    method = sj.dpsgd(sj.ring(4), 0.1, compressor=sj.low_rank(2), gamma=0.2)
    cost = comm_cost(method, models(4))
    numbers = 2 * (36 + 8) + 2 * (10 + 6) + 8 + 1
    one = jax.tree.map(lambda leaf: leaf[0], models(4))
    sent = sum(sj.low_rank(2).encode(x, jax.random.key(0)).data.size for x in jax.tree.leaves(one))
    assert sent == 4 * numbers
    assert cost.wire_bytes == (2 * sent,) * 4
    assert cost.paper_bits == (2 * 32 * numbers,) * 4
