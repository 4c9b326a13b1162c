"""ASAM: which parameters are weights, and that rescaling a network changes nothing."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax import models
from saddle_jax.sam.asam import weights


def test_weights_are_found_by_their_names():
    params = models.init(models.build("cnn", 10), (8, 8, 1), jax.random.key(0))
    found = jax.tree.leaves_with_path(weights(params))
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): is_weight for path, is_weight in found}
    assert {is_weight for name, is_weight in named.items() if name.endswith("kernel")} == {True}
    assert {is_weight for name, is_weight in named.items() if name.endswith("bias")} == {False}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"weights": {"bias": jnp.ones((2, 2))}, "norm": {"scale": jnp.ones(2)}}, [True, False]),
        ({"b": jnp.ones(2), "w": jnp.ones((3, 2))}, [False, True]),  # no such name: by their axes
        (jnp.ones(3), [False]),
        ([jnp.ones((2, 2)), jnp.ones(2)], [True, False]),
    ],
)
def test_weights_of_other_trees(params, expected):
    assert jax.tree.leaves(weights(params)) == expected


@pytest.mark.usefixtures("x64")
def test_rescaling_a_network_rescales_the_perturbation():
    """f(x) = u v d does not change under u -> 3 u, v -> v / 3: nor does f at the perturbed point."""
    seen = []

    def grad(x, d):
        seen.append(x)
        return jax.grad(lambda x: jnp.sum(jnp.tanh(x["u"]["kernel"] * x["v"]["kernel"]) * d))(x)

    u, v, d = (jnp.asarray(np.random.default_rng(i).normal(size=4)) for i in range(3))
    for scale in (1.0, 3.0):
        x = {"u": {"kernel": scale * u}, "v": {"kernel": v / scale}}
        sj.asam(0.5, eta=0.0).gradient(grad, x, d, (), 0)
    _, climbed, _, rescaled = [x["u"]["kernel"] * x["v"]["kernel"] for x in seen]
    chex.assert_trees_all_close(climbed, rescaled, atol=1e-12)
    assert np.abs(climbed - u * v).max() > 1e-2


def test_arguments_that_make_no_sense_are_refused():
    with pytest.raises(sj.ArgumentError, match=r"^eta must be a number >= 0, got -1$"):
        sj.asam(0.5, eta=-1)
