"""What the docstrings say each operator is suited for: compressed gossip and error feedback, or not."""

import math

import jax
import jax.numpy as jnp
import pytest
from problem import compiled

import saddle_jax as sj

SHAPE = (16, 16)


def distance_after_gossip(operator, gamma, rounds=120):
    """Consensus distance after rounds of CHOCO on a ring of eight, as a share of that at the start."""
    gossip = sj.choco(operator, gamma)
    method = sj.Method("average", sj.ring(8), sj.Rule(gossip.init, gossip.mix))
    x = jax.random.normal(jax.random.key(0), (8, *SHAPE))

    def body(carry, key):
        return method.step(lambda x, d: 0.0, *carry, jnp.zeros(8), key)[:2], None

    keys = jax.random.split(jax.random.key(1), rounds)
    (last, _), _ = compiled(lambda x: jax.lax.scan(body, (x, method.init(x)), keys))(x)
    return float(sj.consensus_distance(last) / sj.consensus_distance(x))


@pytest.mark.parametrize(
    ("operator", "gamma"),
    [(sj.natural(), 1.0), (sj.low_rank(4), 0.5), (sj.low_rank(2), 0.2), (sj.random_k(0.3), 0.2)],
    ids=str,
)
def test_gossip_agrees_with_operators_that_contract(operator, gamma):
    assert distance_after_gossip(operator, gamma) < 0.01


@pytest.mark.parametrize(
    ("operator", "gamma"), [(sj.ternary(), 0.1), (sj.low_rank(2), 0.5), (sj.random_k(0.3), 1.0)], ids=str
)
def test_gossip_diverges_where_gamma_is_too_large_for_the_operator(operator, gamma):
    assert not distance_after_gossip(operator, gamma) < 2  # it may be NaN by then


def error_after_feedback(operator, shape=SHAPE, steps=300):
    """The norm of what error feedback holds back of a constant gradient, as a share of the gradient's."""
    g = jax.random.normal(jax.random.key(0), shape)

    def body(error, key):
        p = g + error
        return p - operator.compress(p, key), None

    keys = jax.random.split(jax.random.key(1), steps)
    error, _ = compiled(lambda g: jax.lax.scan(body, jnp.zeros_like(g), keys))(g)
    return float(jnp.sqrt(jnp.sum(error**2) / jnp.sum(g**2)))


@pytest.mark.parametrize(
    "operator", [sj.natural(), sj.low_rank(1), sj.low_rank(4), sj.random_k(0.3)], ids=str
)
def test_error_feedback_holds_back_a_bounded_error(operator):
    zeta = operator.contraction(SHAPE)
    assert error_after_feedback(operator) < 2 / zeta  # the bound of Karimireddy et al., 2019, lemma 3


@pytest.mark.parametrize("size", [256, 4096])
def test_error_feedback_with_ternary_holds_back_about_the_root_of_the_size(size):
    # The largest magnitude keeps the error bounded, though ternary() does not contract.
    assert error_after_feedback(sj.ternary(), (size,)) / math.sqrt(size) == pytest.approx(0.35, abs=0.1)


def test_error_feedback_diverges_with_few_bits_that_do_not_contract():
    assert sj.quantize(1).contraction(SHAPE) is None
    assert not error_after_feedback(sj.quantize(1)) < 1e6
