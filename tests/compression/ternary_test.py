"""TernGrad against its formula, its variance and its bytes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import compiled

import saddle_jax as sj

compress = compiled(sj.ternary().compress)
encode = compiled(sj.ternary().encode)
decode = compiled(lambda payload: sj.ternary().decode(payload))
many = compiled(jax.vmap(sj.ternary().compress, in_axes=(None, 0)))
KEYS = jax.random.split(jax.random.key(1), 20_000)


def printed(x, u):
    """The paper's equations 1 to 3, with a uniform number for each Bernoulli draw."""
    s = max(abs(value) for value in x)
    return [
        s * math.copysign(1.0, value) * (1.0 if draw < abs(value) / s else 0.0)
        for value, draw in zip(x, u, strict=True)
    ]


def test_it_is_the_papers_formula_with_the_same_random_numbers(x64):
    x, key = jax.random.normal(jax.random.key(0), (101,), jnp.float64), jax.random.key(5)
    u = np.asarray(jax.random.uniform(key, (101,), jnp.float64))
    result = compress(x, key)
    np.testing.assert_array_equal(result, printed(np.asarray(x).tolist(), u.tolist()))
    assert 10 < np.count_nonzero(result) < 90


def test_it_is_unbiased_with_the_variance_of_theory():
    x = np.asarray(jax.random.normal(jax.random.key(2), (12,)), np.float64)
    samples = np.asarray(many(jnp.asarray(x, jnp.float32), KEYS), np.float64)
    peak = np.abs(x).max()
    assert np.abs(samples.mean(axis=0) - x).max() < 5 * peak / 2 / math.sqrt(len(KEYS))
    variance = np.mean((samples - x) ** 2, axis=0).sum()
    assert variance == pytest.approx(peak * np.abs(x).sum() - (x**2).sum(), rel=0.03)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_contraction_is_that_of_the_worst_vector(size):
    zeta = sj.ternary().contraction((size,))
    x = jnp.full(size, 1 / (1 + math.sqrt(size))).at[0].set(1.0)
    errors = jnp.sum((many(x, KEYS) - x[None]) ** 2, axis=1) / jnp.sum(x**2)
    assert float(errors.mean()) == pytest.approx(1 - zeta, rel=0.03)


def test_nine_numbers_or_more_are_not_contracted():
    assert sj.ternary().contraction((3, 3)) is None
    assert sj.ternary().contraction(()) == 1.0


def test_five_numbers_share_a_byte():
    payload = encode(jnp.array([-2.0, 0.0, 2.0, 2.0, -2.0, 2.0]), jax.random.key(0))
    scale = np.frombuffer(np.float32(2.0).tobytes(), np.uint8).tolist()
    assert payload.data.tolist() == [*scale, 0 + 1 * 3 + 2 * 9 + 2 * 27 + 0 * 81, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_is_not_finite_shows_everywhere(bad):
    x, key = jnp.array([1.0, bad, -2.0, 0.0]), jax.random.key(0)
    assert not np.isfinite(compress(x, key)).any()
    assert not np.isfinite(decode(encode(x, key))).any()
