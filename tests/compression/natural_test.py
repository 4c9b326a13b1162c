"""Natural compression against its formula, and at the ends of each format."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import compiled

import saddle_jax as sj

compress = compiled(sj.natural().compress)
sent = compiled(lambda x, key: sj.natural().encode(x, key))
received = compiled(lambda payload: sj.natural().decode(payload))
many = compiled(jax.vmap(sj.natural().compress, in_axes=(None, 0)))
KEYS = jax.random.split(jax.random.key(1), 20_000)


def printed(t, u):
    """The paper's C_nat of one number: 2^floor with probability p = (2^ceil - |t|) / 2^floor, else 2^ceil."""
    if t == 0:
        return 0.0
    floor = math.frexp(abs(t))[1] - 1  # |t| = m 2^e with m in [0.5, 1)
    p = (2.0 ** (floor + 1) - abs(t)) / 2.0**floor
    return math.copysign(2.0 ** (floor if u >= 1 - p else floor + 1), t)


@pytest.mark.parametrize(
    ("dtype", "bits", "mantissa"), [("float32", 32, 23), ("float64", 64, 52), ("bfloat16", 16, 7)]
)
def test_it_is_the_papers_formula_with_the_same_random_numbers(dtype, bits, mantissa, x64):
    x = (jax.random.normal(jax.random.key(0), (200,)) * 10.0 ** jnp.linspace(-9, 9, 200)).astype(dtype)
    x = x.at[:4].set(jnp.array([0.0, 1.0, -2.0, 0.25], dtype))
    key = jax.random.key(7)
    drawn = np.asarray(jax.random.bits(key, (200,), f"uint{bits}") >> (bits - mantissa), np.float64)
    expected = [printed(float(t), u / 2.0**mantissa) for t, u in zip(x, drawn, strict=True)]
    np.testing.assert_array_equal(np.asarray(compress(x, key), np.float64), expected)


def test_it_is_unbiased_and_its_variance_is_an_eighth_at_most():
    x = jnp.array([3.0, -0.7, 4 / 3, 1e-20, 1e20, 1.999, -1.001])
    samples = np.asarray(many(x, KEYS), np.float64) / np.asarray(x, np.float64)
    deviation = math.sqrt(1 / 8 / len(KEYS))
    assert np.abs(samples.mean(axis=0) - 1).max() < 5 * deviation
    variance = np.mean((samples - 1) ** 2, axis=0)
    assert variance.max() <= (1 + 0.05) / 8
    assert variance[2] == pytest.approx(1 / 8, rel=0.05)  # 4/3 is where the bound is attained


def test_numbers_below_the_smallest_normal_one_are_unbiased_too():
    # Bits are compared, for arithmetic may flush such numbers to zero.
    tiny = np.float32(2.0**-128)
    assert tiny.view(np.uint32) == 1 << 21
    drawn = np.asarray(many(jnp.asarray(np.array([tiny, -tiny])), KEYS)).view(np.uint32)
    smallest = np.float32(2.0**-126).view(np.uint32)
    assert set(drawn[:, 0].tolist()) == {0, int(smallest)}
    assert set(drawn[:, 1].tolist()) == {0, int(smallest) + 2**31}
    assert np.abs((drawn != 0).mean(axis=0) - 0.25).max() < 5 * math.sqrt(0.25 * 0.75 / len(KEYS))


@pytest.mark.parametrize(
    ("dtype", "largest", "tiny"),
    [
        ("float32", 2.0**127, 2.0**-126),
        ("float64", 2.0**1023, 2.0**-1022),
        ("bfloat16", 2.0**127, 2.0**-126),
        ("float16", 2.0**15, 2.0**-14),
    ],
)
def test_the_ends_of_each_format(dtype, largest, tiny, x64):
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, tiny, -tiny, largest, -largest * 1.75], np.float64)
    expected = np.array([np.inf, -np.inf, np.nan, 0, 0, tiny, -tiny, largest, -largest])
    x = jnp.asarray(x).astype(dtype)
    for seed in range(3):
        key = jax.random.key(seed)
        payload = sent(x, key)
        assert 8 * payload.data.size == sj.natural().bits(x.shape, dtype)
        for result in (compress(x, key), received(payload)):
            assert result.dtype == dtype
            np.testing.assert_array_equal(np.asarray(result, np.float64), expected)
