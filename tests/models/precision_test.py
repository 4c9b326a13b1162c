"""Products in another precision: right to its rounding, in the model alone, and float32 everywhere else."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import products

from saddle_jax import models
from saddle_jax.devices import policy
from saddle_jax.kernels import convolution
from saddle_jax.models.precision import PRECISIONS, check_precision, in_precision
from saddle_jax.tasks.supervised import cross_entropy

KEY = jax.random.key(0)
ULP = 2.0**-8  # of bfloat16: twice what rounding changes at most, relative to a number
CONV_IMPLS = [
    ("cpu", "fast"),
    ("cpu", "native"),
    ("cpu", "plain"),
    ("gpu", "fast"),
    ("gpu", "each"),
    ("gpu", "patches"),
]
MODELS = [("mlp", "evonorm"), ("cnn", "evonorm"), ("cnn", "groupnorm")]


def made(name, norm="evonorm", conv_impl="fast"):
    """A model, its parameters and a batch of small images."""
    model = models.functions(models.build(name, 10, norm=norm, conv_impl=conv_impl))
    params = models.init(model, (8, 8, 3), KEY)
    inputs = jax.random.normal(KEY, (16, 8, 8, 3))
    return model, params, {"inputs": inputs, "targets": jnp.arange(16) % 10, "mask": jnp.ones(16)}


def gradient_of(model, precision):
    return jax.grad(cross_entropy(in_precision(model, precision)), has_aux=True)


def distance(one, other):
    """The norm of a difference of trees, relative to the second."""
    norms = [
        np.sqrt(sum(np.sum(np.square(np.asarray(leaf, np.float64))) for leaf in jax.tree.leaves(tree)))
        for tree in (jax.tree.map(lambda a, b: a - b, one, other), other)
    ]
    return norms[0] / norms[1]


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_of_bfloat16_is_the_exact_one_rounded(stride):
    random = np.random.default_rng(0)
    size = 8 // stride
    shapes = ((2, 4, 8, 8, 3), (2, 3, 3, 3, 20), (2, 4, size, size, 20))  # two agents
    arrays = [jnp.asarray(random.normal(size=shape), jnp.bfloat16) for shape in shapes]

    def all_of(conv_impl, x, kernel, g):
        way = functools.partial(convolution.convolve, stride=stride, padding=1, conv_impl=conv_impl)
        y, pullback = jax.vjp(way, x, kernel)
        return y, *pullback(g)

    @jax.jit
    def by_all(*arrays):
        results = []
        for kind, conv_impl in CONV_IMPLS:
            with policy.targeting(kind):
                results.append(jax.vmap(functools.partial(all_of, conv_impl))(*arrays))
        return results

    with jax.enable_x64(True):
        exact = jax.jit(jax.vmap(functools.partial(all_of, "plain")))
        exact = jax.device_get(exact(*(jnp.asarray(a, jnp.float64) for a in arrays)))
    for (kind, conv_impl), ours in zip(CONV_IMPLS, by_all(*arrays), strict=True):
        # The gradient of patches adds up nine numbers that are rounded already.
        rounded = 2 * ULP if conv_impl == "patches" else 1e-5
        for one, other in zip(ours, exact, strict=True):
            assert one.dtype == jnp.bfloat16
            found, atol = np.asarray(one, np.float64), rounded * np.abs(other).max()
            np.testing.assert_allclose(found, other, rtol=ULP, atol=atol, err_msg=f"{kind} {conv_impl}")


@pytest.mark.parametrize(("name", "norm"), MODELS, ids=str)
def test_a_gradient_is_that_of_float32_up_to_rounding(name, norm):
    """It may differ about as much as that of rounded parameters and images does: a ReLU makes jumps of it."""
    model, params, batch = made(name, norm)
    in_float32 = jax.jit(gradient_of(model, "float32"))
    exact, _ = in_float32(params, batch)
    found, aux = jax.jit(gradient_of(model, "bfloat16"))(params, batch)
    assert {leaf.dtype for leaf in jax.tree.leaves((found, aux))} == {np.dtype(np.float32)}
    params, batch["inputs"] = jax.tree.map(
        lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), (params, batch["inputs"])
    )
    alone = distance(in_float32(params, batch)[0], exact)
    assert alone / 2 < distance(found, exact) < 2 * alone + ULP


def test_the_layers_of_a_linear_model_by_hand():
    model, params, batch = made("logistic")
    rounded = [
        np.asarray(a.astype(jnp.bfloat16), np.float64) for a in (batch["inputs"], *jax.tree.leaves(params))
    ]
    inputs, bias, kernel = rounded
    logits = inputs.reshape(16, -1) @ kernel + bias
    found = in_precision(model, "bfloat16").apply(params, batch["inputs"])
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, logits, rtol=0, atol=2 * ULP * np.abs(logits).max())


def test_everything_that_a_model_multiplies_has_the_precision():
    model, params, batch = made("cnn")
    expected = {
        ("cpu", "float32"): ("float32", None),
        ("gpu", "float32"): ("float32", "HIGHEST"),
        ("tpu", "float32"): ("float32", "HIGHEST"),
        ("gpu", "tf32"): ("float32", "HIGH"),
        ("gpu", "bfloat16"): ("bfloat16", "HIGHEST"),
    }
    for (kind, precision), each in expected.items():
        with policy.targeting(kind):
            found = products(gradient_of(model, precision), params, batch)
        assert len(found) >= 3 * 4 - 1  # of four layers; nobody asks for a gradient of the images
        assert set(found) == {each}, (kind, precision)


def test_a_cpu_convolves_bfloat16_in_float32_by_its_own_kernels():
    model, params, batch = made("cnn", conv_impl="native")
    traced = str(jax.make_jaxpr(gradient_of(model, "bfloat16"))(params, batch))
    assert traced.count("ffi_call[") == 3 * 3
    assert "bf16" in traced


def test_whole_numbers_stay_whole():
    model = models.functions((lambda key: {"w": jnp.zeros((300, 4))}, lambda params, x: params["w"][x]))
    params = {"w": jnp.arange(1200.0).reshape(300, 4)}
    found = in_precision(model, "bfloat16").apply(params, jnp.array([257, 299]))
    np.testing.assert_allclose(found, params["w"][jnp.array([257, 299])], rtol=ULP)


def test_equal_models_are_compiled_once():
    model, _, _ = made("mlp")
    again, _, _ = made("mlp")
    for precision in PRECISIONS:
        assert in_precision(model, precision) is in_precision(again, precision)


def test_tf32_is_refused_where_there_is_none(monkeypatch):
    class Device:
        compute_capability = "7.5"

    for precision in ("float32", "bfloat16"):
        check_precision(precision)
    message = "precision must be float32 or bfloat16 on this hardware, which has no TF32 .*, got 'tf32'"
    for kind in ("cpu", "tpu"):
        with policy.targeting(kind), pytest.raises(ValueError, match=message):
            check_precision("tf32")
    with policy.targeting("gpu"):
        check_precision("tf32")
    monkeypatch.setattr(policy.jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(policy.jax, "devices", lambda: [Device])
    for capability, has in (("7.5", False), ("8.6", True), ("9.0", True), ("gfx942", False)):
        Device.compute_capability = capability
        assert policy.has_tf32() == has
