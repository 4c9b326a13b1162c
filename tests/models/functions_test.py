"""Any model as two functions: linen, nnx and plain functions compute what they compute by themselves."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from saddle_jax import models
from saddle_jax.models import functions

KEY, X = jax.random.key(0), jnp.linspace(-1, 1, 8).reshape(2, 4)


class Linen(nn.Module):
    width: int = 3

    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.relu(nn.Dense(self.width)(x)))


class Nnx(nnx.Module):
    def __init__(self, rngs, width=3):
        self.hidden, self.out = nnx.Linear(4, width, rngs=rngs), nnx.Linear(width, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.hidden(x)))


def test_a_linen_module():
    model = functions(Linen())
    params = model.init(KEY, X)
    chex.assert_trees_all_equal(params, Linen().init(KEY, X)["params"])
    np.testing.assert_array_equal(model.apply(params, X), Linen().apply({"params": params}, X))
    assert model.name == "Linen"
    assert functions(Linen()) is functions(Linen())  # equal modules are compiled once
    assert functions(Linen(4)) is not functions(Linen())


@pytest.mark.parametrize("model", [Nnx, lambda rngs: Nnx(rngs, width=5)], ids=["class", "function"])
def test_an_nnx_module_is_made_anew_for_every_key(model):
    made = functions(model)
    params = made.init(KEY, X)
    by_itself = model(rngs=nnx.Rngs(KEY))
    np.testing.assert_allclose(made.apply(params, X), by_itself(X), rtol=1e-6)
    assert isinstance(params, dict)
    assert np.abs(made.init(jax.random.key(1), X)["out"]["kernel"] - params["out"]["kernel"]).max() > 0.1
    # as the agents of a run: a leading axis, and gradients
    stacked = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), params)
    together = jax.vmap(made.apply, in_axes=(0, None))(stacked, X)
    np.testing.assert_allclose(together[1], made.apply(jax.tree.map(lambda x: 2 * x, params), X), rtol=1e-6)
    gradient = jax.grad(lambda p: made.apply(p, X).sum())(params)
    chex.assert_trees_all_equal_structs(gradient, params)


def test_an_nnx_object_brings_its_weights():
    module = Nnx(nnx.Rngs(7))
    model = functions(module)
    for key in (KEY, jax.random.key(1)):
        np.testing.assert_array_equal(model.apply(model.init(key, X), X), module(X))


def test_plain_functions():
    def init(key):
        return {"w": jax.random.normal(key, (4,))}

    def apply(params, x):
        return x @ params["w"]

    model = functions((init, apply))
    params = model.init(KEY, X)
    np.testing.assert_array_equal(model.apply(params, X), X @ init(KEY)["w"])
    sized = functions((lambda key, x: {"w": jnp.ones(x.shape[1])}, apply))
    assert sized.init(KEY, X)["w"].shape == (4,)


class Stateful(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.BatchNorm(use_running_average=False)(x)


class Dropped(nnx.Module):
    def __init__(self, rngs):
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.drop(x)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (Stateful(), "parameters alone, which agents average, got batch_stats in Stateful"),
        (Dropped, "parameters alone, which agents average, got RngCount, RngKey in Dropped"),
        (lambda rngs: 3, "model must be a flax module .* got 3 from <lambda>"),
    ],
)
def test_models_that_keep_more_are_refused(model, told):
    with pytest.raises(ValueError, match=told):
        functions(model).init(KEY, X)


@pytest.mark.parametrize("model", [3, "net", (1, 2), nn.Dense, len], ids=str)
def test_what_is_no_model_is_one_line(model):
    with pytest.raises(
        ValueError, match=r"^model must be a flax module \(linen or nnx\), a torch module, or a pair"
    ):
        functions(model)


def test_an_opened_run_reads_no_weights_but_its_own():
    weights = "'/etc/passwd.pt'"
    for inner in ("resnet20", "net.py:small", "mlp(hidden=[8])", "auto"):
        assert models.without_weights(inner) == inner
        if inner != "auto":
            assert (
                models.without_weights(f"pretrained(pretrained({inner}, {weights}), file={weights})") == inner
            )
