import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples_of import one_of_each
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from problem import compiled

import saddle_jax as sj
from saddle_jax import testing
from saddle_jax.compression import COMPRESSORS
from saddle_jax.compression.selection import largest
from saddle_jax.core.gossip import compress_stacked
from saddle_jax.testing.compressors import check_contraction, check_payload

OPERATORS = [
    sj.identity(),
    sj.quantize(1),
    sj.quantize(10),
    sj.quantize(2, biased=True),
    sj.top_k(0.3),
    sj.top_k(0.01),
    sj.random_k(0.3),
    sj.sign(),
    sj.low_rank(1),
    sj.low_rank(2),
]
OPERATORS += [operator for operator in one_of_each(COMPRESSORS).values() if operator not in OPERATORS]
SHAPES = [(), (7,), (3, 3, 2), (2, 0, 3)]
every_operator = pytest.mark.parametrize("operator", OPERATORS, ids=str)

# Few shapes: each one is compiled for each operator.
tensors = hnp.arrays(
    np.float32,
    st.sampled_from([(), (7,), (4, 5)]),
    elements=st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False),
)


compress = compiled(lambda operator, x, key: operator.compress(x, key), static_argnums=0)


def gaussian(shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


@every_operator
def test_every_invariant_holds(operator):
    results = testing.check_compressor(lambda: operator)
    silent = {each.invariant for each in results if each.status == "does not apply"}
    assert silent == ({"it contracts as it promises"} if operator.contraction((7,)) is None else set())


@every_operator
@settings(deadline=None, max_examples=25)
@given(tensors)
def test_payloads_and_contraction_are_right_whatever_a_tensor_holds(operator, x):
    check_payload(operator, jnp.asarray(x), jax.random.key(3))
    check_contraction(operator, x)


# ---- what each operator is, on numbers that one can check by eye ----


def test_top_k_by_eye():
    x = jnp.array([0.1, -5.0, 3.0, -3.0, 0.0, 3.0, 1.0, 0.2, 0.0, 0.5])
    np.testing.assert_array_equal(sj.top_k(0.1).compress(x), [0, -5, 0, 0, 0, 0, 0, 0, 0, 0])
    # three entries tie for the second and third place: the first ones win
    np.testing.assert_array_equal(sj.top_k(0.3).compress(x), [0, -5, 3, -3, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(sj.top_k(0.01).compress(x), [0, -5, 0, 0, 0, 0, 0, 0, 0, 0])  # at least one
    np.testing.assert_array_equal(sj.top_k(1.0).compress(x), x)


def test_sign_by_eye():
    x = jnp.array([3.0, -1.0, 0.0, -0.0])
    np.testing.assert_array_equal(sj.sign().compress(x), [1, -1, 1, 1])


def test_quantize_by_eye():
    # ||x|| = 5 and s = 1: levels are |x| / 5, so 0.6 and 0.8 are rounded to 0 or 1
    drawn = {
        tuple(np.asarray(sj.quantize(1).compress(jnp.array([3.0, -4.0]), jax.random.key(seed))).tolist())
        for seed in range(50)
    }
    assert drawn == {(0.0, 0.0), (5.0, 0.0), (0.0, -5.0), (5.0, -5.0)}
    # one entry holds all the norm: no rounding is left, whatever the seed
    single = jnp.array([0.0, -0.3, 0.0])
    np.testing.assert_allclose(sj.quantize(8).compress(single, jax.random.key(0)), single, rtol=1e-6)
    # biased: divided by tau = 1 + min(3 / 255^2, sqrt(3) / 255)
    biased = sj.quantize(8, biased=True).compress(single, jax.random.key(0))
    np.testing.assert_allclose(biased, single / (1 + 3 / 255**2), rtol=1e-6)


def test_quantize_neither_overflows_nor_vanishes():
    x = jnp.array([3.0, -4.0, 1.0])
    for scale in (1e30, 1e-30):
        result = sj.quantize(8).compress(x * scale, jax.random.key(0)) / scale
        np.testing.assert_allclose(result, x, atol=0.03)


# ---- selection ----


@settings(deadline=None, max_examples=150)
@given(hnp.arrays(np.uint32, 23, elements=st.integers(0, 2**32 - 1) | st.integers(0, 3)), st.integers(1, 23))
def test_largest_marks_exactly_the_k_largest_the_first_among_equals(ranks, k):
    expected = np.zeros(ranks.size, bool)
    expected[np.argsort(-ranks.astype(np.int64), kind="stable")[:k]] = True
    np.testing.assert_array_equal(jax.jit(largest)(ranks, k), expected)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (100,), (3, 3, 64, 64)], ids=str)
@pytest.mark.parametrize("fraction", [0.01, 0.29, 0.3, 1.0])
@pytest.mark.parametrize("make", [sj.top_k, sj.random_k])
def test_exactly_k_entries_are_kept(make, fraction, shape):
    k = max(1, math.floor(fraction * math.prod(shape)))
    x = gaussian(shape)
    compressed = compress(make(fraction), x, jax.random.key(1))
    assert np.count_nonzero(compressed) == k
    np.testing.assert_array_equal(np.where(compressed != 0, x, 0), compressed)
    if make is sj.top_k and k < x.size:
        assert np.abs(compressed[compressed != 0]).min() >= np.abs(x[compressed == 0]).max()


def test_random_k_draws_every_entry_equally_often():
    n, draws = 20, 4000
    keys = jax.random.split(jax.random.key(0), draws)
    frequency = jax.vmap(lambda key: sj.random_k(0.25).compress(jnp.ones(n), key))(keys).mean(axis=0)
    deviation = math.sqrt(0.25 * 0.75 / draws)
    assert np.abs(frequency - 0.25).max() < 5 * deviation


# ---- theory ----


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_quantization_is_unbiased_within_its_variance(bits):
    draws, x = 20_000, gaussian((12,), seed=2)
    keys = jax.random.split(jax.random.key(1), draws)
    samples = np.asarray(jax.vmap(sj.quantize(bits).compress, in_axes=(None, 0))(x, keys), np.float64)
    # each entry is norm / s times a level that is off by at most one: variance <= (norm / s)^2 / 4
    deviation = np.linalg.norm(x) / (2**bits - 1) / 2 / math.sqrt(draws)
    assert np.abs(samples.mean(axis=0) - x).max() < 5 * deviation
    tau = sj.quantize(bits, biased=True)
    biased = np.asarray(jax.vmap(tau.compress, in_axes=(None, 0))(x, keys), np.float64)
    shrink = 1 + min(12 / (2**bits - 1) ** 2, math.sqrt(12) / (2**bits - 1))
    np.testing.assert_allclose(biased * shrink, samples, rtol=1e-5)


@pytest.mark.parametrize("size", [64, 65])
def test_numbers_that_share_a_random_word_are_rounded_independently(size):
    # one large entry sets the norm; the others are at half a level: each rounds up in half of the draws
    draws, x = 4000, jnp.full(size, 0.5 / 255).at[-1].set(math.sqrt(1 - (size - 1) * (0.5 / 255) ** 2))
    keys = jax.random.split(jax.random.key(4), draws)
    drawn = np.asarray(jax.vmap(sj.quantize(8).compress, in_axes=(None, 0))(x, keys))[:, :-1] > 0
    assert np.abs(drawn.mean(axis=0) - 0.5).max() < 5 * 0.5 / math.sqrt(draws)
    correlation = np.corrcoef(drawn.T) - np.eye(size - 1)
    assert np.abs(correlation).max() < 5.5 / math.sqrt(draws)


def test_quantization_below_its_bits_is_known_not_to_contract():
    largest_of_resnet20 = (3, 3, 64, 64)
    assert sj.quantize(8).contraction(largest_of_resnet20) == pytest.approx(1 - 36_864 / 255**2)
    assert sj.quantize(7).contraction(largest_of_resnet20) is None
    x = gaussian(largest_of_resnet20)
    for bits, relative in ((8, 0.096), (6, 1.44)):  # measured on Gaussian vectors before this project began
        error = sj.quantize(bits).compress(x, jax.random.key(1)) - x
        assert float(jnp.sum(error**2) / jnp.sum(x**2)) == pytest.approx(relative, rel=0.03)


# ---- cost ----


def test_costs_by_hand():
    shape, size = (3, 3, 64, 64), 36_864
    k = math.floor(0.3 * size)
    assert sj.identity().bits(shape) == sj.identity().paper_bits(shape) == 32 * size
    assert sj.quantize(8).bits(shape) == 32 + 9 * size
    assert sj.quantize(8).paper_bits(shape) == 8 * size
    assert sj.sign().bits(shape) == 32 + size
    assert sj.sign().paper_bits(shape) == size
    assert sj.top_k(0.3).bits(shape) == size + 32 * k  # a bitmap is shorter than k indices of 16 bits
    assert sj.top_k(0.3).paper_bits(shape) == (32 + 16) * k
    assert sj.top_k(0.001).bits(shape) == (32 + 16) * 36  # indices are shorter than a bitmap
    assert sj.random_k(0.3).bits(shape) == 64 + 32 * k  # the seed is sent, not the positions
    assert sj.sign().bits((9,)) == 32 + 16  # the last byte is filled up
    assert sj.natural().bits(shape) == sj.natural().paper_bits(shape) == 9 * size
    assert sj.natural().bits(shape, jnp.float64) == 12 * size
    assert sj.natural().bits(()) == 16
    assert sj.ternary().bits(shape) == 32 + 8 * 7_373  # five numbers in a byte
    assert sj.ternary().paper_bits(shape) == 2 * size
    assert sj.low_rank(2).bits(shape) == sj.low_rank(2).paper_bits(shape) == 32 * 2 * (576 + 64)
    assert sj.low_rank(2).bits(shape, jnp.bfloat16) == 16 * 2 * (576 + 64)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize(
    "operator", [sj.quantize(8), sj.quantize(2, biased=True), sj.sign(), sj.low_rank(1)], ids=str
)
def test_norms_and_sums_beyond_the_largest_number_stay_finite_and_travel(operator, dtype):
    largest, key = float(jnp.finfo(dtype).max), jax.random.key(0)
    for row in ([1, 1, 1], [-1, -1, -1], [1, -0.5, 0]):
        x = largest * jnp.broadcast_to(jnp.array(row, dtype), (4, 3))
        compressed = operator.compress(x, key)
        assert bool(jnp.isfinite(compressed).all())
        np.testing.assert_array_equal(operator.decode(operator.encode(x, key)), compressed)
        assert bool((jnp.sign(compressed) * jnp.sign(x) >= 0).all())
    assert not bool(jnp.isfinite(operator.compress(x.at[0, 0].set(jnp.inf), key)).all())  # is not hidden


# ---- all agents ----


def test_no_two_agents_or_tensors_share_their_random_numbers():
    same = {"a": jnp.ones((3, 64)), "b": jnp.ones((3, 64))}
    drawn = compress_stacked(sj.random_k(0.5), same, jax.random.key(0))
    rows = {tuple(np.asarray(row).tolist()) for leaf in drawn.values() for row in leaf}
    assert len(rows) == 6


BAD = {
    "bits": (lambda: sj.quantize(0), "bits must be an integer >= 1 and <= 16, got 0"),
    "half bits": (lambda: sj.quantize(2.5), "bits must be .* got 2.5"),
    "many bits": (lambda: sj.quantize(32), "bits must be .* got 32"),
    "fraction 0": (lambda: sj.top_k(0.0), r"fraction must be a number > 0 and <= 1, got 0.0"),
    "fraction 2": (lambda: sj.random_k(2), r"fraction must be .* got 2"),
    "fraction nan": (lambda: sj.top_k(float("nan")), r"fraction must be .* got nan"),
    "rank 0": (lambda: sj.low_rank(0), "rank must be an integer >= 1, got 0"),
    "half rank": (lambda: sj.low_rank(1.5), "rank must be .* got 1.5"),
    "key": (
        lambda: sj.quantize(8).compress(jnp.ones(3)),
        r"key must be given to quantize\(bits=8.* got None",
    ),
    "eight bits": (
        lambda: sj.sign().compress(jnp.ones(3, jnp.float8_e4m3fn)),
        "at least 16 bits per number to be compressed, got float8_e4m3fn",
    ),
    "integers": (lambda: sj.sign().compress(jnp.arange(3)), "floating-point tensor .* got int32"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named_with_their_value(name):
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        make()
