"""Networks on text: their values by hand, that they do not look ahead, and their derivatives."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import saddle_jax as sj
from saddle_jax.core.trees import tree_map
from saddle_jax.models import count
from saddle_jax.models.small import CausalMLP

MODEL = CausalMLP(num_classes=11, context=3, embedding=4, width=6)
TOKENS = jax.random.randint(jax.random.key(1), (2, 7), 0, 11).astype(jnp.uint8)


apply = jax.jit(MODEL.apply)


def params_of(model, tokens=TOKENS):
    return jax.jit(model.init)(jax.random.key(0), tokens)["params"]


def loss_fn(params, batch):
    logits = MODEL.apply({"params": params}, batch["inputs"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]).mean()


@pytest.mark.usefixtures("x64")
def test_logits_by_hand():
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params_of(MODEL))
    logits = apply({"params": params}, TOKENS)
    assert logits.shape == (2, 7, 11)
    tokens = np.asarray(TOKENS)
    for row in range(2):
        for place in range(7):
            seen = [tokens[row, at] if at >= 0 else None for at in range(place - 2, place + 1)]
            x = np.concatenate([np.zeros(4) if c is None else params["embedding"][int(c)] for c in seen])
            hidden = np.maximum(x @ params["hidden1"]["kernel"] + params["hidden1"]["bias"], 0)
            first = (hidden - hidden.mean()) / np.sqrt(hidden.var() + 1e-6)
            first = first * params["norm"]["scale"] + params["norm"]["bias"]
            second = np.maximum(first @ params["hidden2"]["kernel"] + params["hidden2"]["bias"], 0)
            both = np.concatenate([first, second])
            expected = both @ params["linear"]["kernel"] + params["linear"]["bias"]
            np.testing.assert_allclose(logits[row, place], expected, atol=1e-10)


def test_no_place_sees_the_characters_behind_it():
    params = params_of(MODEL)
    changed = np.array(TOKENS)
    changed[:, 4] = (changed[:, 4] + 1) % 11
    before, after = (np.asarray(apply({"params": params}, tokens)) for tokens in (TOKENS, changed))
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert np.abs(before[:, 4] - after[:, 4]).max() > 1e-3


def test_the_embedded_text_has_a_model_of_the_stated_size():
    params = jax.eval_shape(lambda: params_of(CausalMLP(num_classes=76), jnp.zeros((1, 64), jnp.uint8)))
    assert count(params) == 76 * 24 + (8 * 24 + 1) * 160 + 2 * 160 + 161 * 160 + 321 * 76 == 83_180


def test_agents_have_gradients_of_their_own():
    stacked = tree_map(lambda x: jnp.stack([x, 1.1 * x, 0.9 * x]), params_of(MODEL))
    batch = {"inputs": jnp.stack([TOKENS] * 3), "targets": jnp.stack([(TOKENS + 1) % 11] * 3)}
    gradients = jax.jit(sj.local_gradients(loss_fn, sj.sam(0.1)))
    lifted = gradients(stacked, batch)
    for agent in range(3):
        own = jax.tree.map(lambda x, agent=agent: x[agent : agent + 1], (stacked, batch))
        alone = gradients(*own)
        chex.assert_trees_all_close(jax.tree.map(lambda x, a=agent: x[a : a + 1], lifted), alone, atol=1e-5)


def test_hessian_vector_products_are_symmetric():
    params, batch = params_of(MODEL), {"inputs": TOKENS, "targets": (TOKENS + 3) % 11}

    @jax.jit
    def product(vector):
        return jax.jvp(lambda p: jax.grad(loss_fn)(p, batch), (params,), (vector,))[1]

    u, v = (optax.tree.random_like(jax.random.key(seed), params) for seed in (1, 2))
    left, right = optax.tree.vdot(u, product(v)), optax.tree.vdot(v, product(u))
    assert abs(left) > 1e-3
    assert abs(left - right) < 1e-4 * optax.tree.norm(u) * optax.tree.norm(product(v))
