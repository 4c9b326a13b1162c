"""EvoNorm-S0 by hand, and its derivative against autodiff."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers_by_hand import evonorm_by_hand

from saddle_jax.models import evonorm


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("gate", ["hard_sigmoid", "sigmoid"])
def test_evonorm_by_hand_and_its_derivative_against_autodiff(gate):
    random = np.random.default_rng(0)
    x = 4 * random.normal(size=(3, 5, 4, 16)) + 1
    scale, bias = random.normal(size=(2, 16))
    np.testing.assert_allclose(
        evonorm.evonorm(gate, x, scale, bias), evonorm_by_hand(x, scale, bias, gate), atol=1e-12
    )

    def pulled(run):
        y, pull = jax.vjp(lambda *arguments: run(gate, *arguments), x, scale, bias)
        return y, pull(jnp.cos(y))

    chex.assert_trees_all_close(pulled(evonorm.evonorm), pulled(evonorm.evonorm_plain), atol=1e-11)
    # and once more: the derivative of the derivative
    second = [
        jax.grad(
            lambda x, run=run: jnp.sum(jax.grad(lambda x: jnp.sum(run(gate, x, scale, bias) ** 2))(x) ** 2)
        )(x)
        for run in (evonorm.evonorm, evonorm.evonorm_plain)
    ]
    chex.assert_trees_all_close(*second, rtol=1e-9)


def test_a_constant_image_gives_no_nan():
    gradient = jax.grad(lambda x: jnp.sum(evonorm.evonorm("hard_sigmoid", x, jnp.ones(8), jnp.zeros(8))))
    chex.assert_tree_all_finite(gradient(jnp.full((1, 3, 3, 8), 2.0)))
