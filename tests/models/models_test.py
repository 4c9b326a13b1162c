"""The networks: their sizes, their values by hand, their derivatives, and models of one's own."""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from layers_by_hand import convolve_by_hand, evonorm_by_hand, groupnorm_by_hand

import saddle_jax as sj
from saddle_jax import data, models, testing
from saddle_jax.devices.compilations import compilations
from saddle_jax.models.layers import Linear
from saddle_jax.models.mobilenet import Block as MobileBlock
from saddle_jax.models.resnet import Block as ResNetBlock
from saddle_jax.testing.models import INVARIANTS, SHAPES

IMAGE = {"resnet18": 32, "mobilenet_v2": 8}
LEARNS = {"causal_mlp": "characters", "linear": "convex"}  # what is not of images
LARGE = ("resnet20", "resnet18", "mobilenet_v2", "resnet8")
KEY = jax.random.key(0)


def loss_of(model):
    def loss_fn(params, batch):
        logits = model.apply({"params": params}, batch["x"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()

    return loss_fn


def coloured(size):
    """Images [H, W, 3] of seven classes."""
    images = np.random.default_rng(0).normal(size=(7, size, size, 3)).astype(np.float32)
    return data.from_samples((images, np.arange(7)), (images, np.arange(7)))


@pytest.mark.parametrize("name", models.NAMES)
def test_every_invariant_holds(name):
    dataset = coloured(IMAGE.get(name, 8))
    if name in LEARNS:
        dataset = data.load(LEARNS[name])
    model = functools.partial(models.build, name)
    # The largest would be compiled for minutes; derivatives are compared below.
    tried = SHAPES if name in LARGE else INVARIANTS
    results = testing.check_model(model, dataset=dataset, invariants=tried)
    assert [each for each in results if each.status != "holds"] == []


@pytest.mark.parametrize(
    ("name", "classes", "size", "count", "tensors"),
    [
        ("resnet20", 10, 32, 272_474, 65),
        ("resnet20", 100, 32, 278_324, 65),
        ("mobilenet_v2", 10, 32, 2_296_922, 173),
        ("resnet18", 1000, 224, 11_689_512, 62),
    ],
)
def test_parameter_counts_are_those_of_the_papers_cost_tables(name, classes, size, count, tensors):
    model = models.build(name, num_classes=classes)
    images = jnp.zeros((2, size, size, 3))
    params = jax.eval_shape(model.init, KEY, images)["params"]
    assert models.count(params) == count
    assert len(jax.tree.leaves(params)) == tensors
    assert jax.eval_shape(lambda p: model.apply({"params": p}, images), params).shape == (2, classes)
    # 30 % of each tensor, floored: what the paper's top-k table counts for ResNet-20
    if (name, classes) == ("resnet20", 10):
        bits = sum(sj.top_k(0.3).paper_bits(leaf.shape) for leaf in jax.tree.leaves(params))
        assert bits == 48 * 81_711


def batch_for(name, lead=(), dtype=jnp.float32):
    size = IMAGE.get(name, 8)
    x = jax.random.normal(jax.random.key(1), (*lead, 2, size, size, 3), dtype)
    return {"x": x, "y": jnp.broadcast_to(jnp.array([1, 7]), (*lead, 2))}


@pytest.mark.parametrize(("name", "norm"), [("resnet8", "evonorm_sigmoid"), ("cnn", "groupnorm")])
def test_fast_and_plain_networks_are_the_same_function_of_the_same_parameters(name, norm):
    fast = models.build(name, 10, norm=norm)
    plain = models.build(name, 10, norm=norm, conv_impl="plain")
    params = [models.init(fast, (8, 8, 3), jax.random.key(agent)) for agent in range(3)]
    chex.assert_trees_all_equal(params[0], models.init(plain, (8, 8, 3), jax.random.key(0)))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    batch = batch_for(name, lead=(3,))
    grads = [
        jax.jit(sj.local_gradients(loss_of(model), sj.sam(0.1)))(stacked, batch) for model in (fast, plain)
    ]
    chex.assert_trees_all_close(*grads, rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", ["evonorm", "groupnorm"])
def test_resnet8_by_hand(kind):
    """The whole network in NumPy: where the non-linearities are, and where they are not."""
    model = models.build("resnet8", 10, norm=kind)
    params = jax.tree.map(np.asarray, models.init(model, (8, 8, 3), KEY))
    params = jax.tree.map(lambda x: x + 0.1 * np.random.default_rng(0).normal(size=x.shape), params)
    images = np.random.default_rng(1).normal(size=(2, 8, 8, 3))

    def conv(x, kernel, stride=1):
        return convolve_by_hand(x, kernel["kernel"], stride, kernel["kernel"].shape[0] // 2, 1)

    def norm(x, of):
        if kind == "groupnorm":
            return groupnorm_by_hand(x, of["norm"]["scale"], of["norm"]["bias"])
        return evonorm_by_hand(x, of["norm"]["scale"], of["norm"]["bias"], "hard_sigmoid")

    def relu(x):  # EvoNorm has a non-linearity of its own
        return np.maximum(x, 0) if kind == "groupnorm" else x

    x = relu(norm(conv(images, params["stem"]), params["stem_norm"]))
    for stage in (1, 2, 3):
        block = params[f"stage{stage}_block1"]
        stride = 1 if stage == 1 else 2
        y = relu(norm(conv(x, block["conv1"], stride), block["norm1"]))
        y = norm(conv(y, block["conv2"]), block["norm2"])
        if stage > 1:
            x = norm(conv(x, block["shortcut"], stride), block["shortcut_norm"])
        x = relu(x + y)
    logits = x.mean(axis=(1, 2)) @ params["linear"]["kernel"] + params["linear"]["bias"]
    np.testing.assert_allclose(jax.jit(model.apply)({"params": params}, images), logits, atol=1e-10)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("stride", [1, 2])
def test_a_block_of_mobilenet_with_groupnorm_by_hand(stride):
    model = MobileBlock(features=6, expansion=2, stride=stride, norm="groupnorm", conv_impl="fast")
    images = np.random.default_rng(1).normal(size=(2, 6, 6, 4))
    params = jax.tree.map(np.asarray, jax.jit(model.init)(KEY, images)["params"])
    params = jax.tree.map(lambda x: x + 0.1 * np.random.default_rng(0).normal(size=x.shape), params)

    def layer(x, name, stride=1, groups=1):
        kernel, of = params[name]["kernel"], params[f"{name}_norm"]["norm"]
        y = convolve_by_hand(x, kernel, stride, kernel.shape[0] // 2, groups)
        return groupnorm_by_hand(y, of["scale"], of["bias"])

    y = np.maximum(layer(images, "expand"), 0)
    y = np.maximum(layer(y, "depthwise", stride, groups=8), 0)
    y = layer(y, "project")
    y = y + layer(images, "shortcut") if stride == 1 else y
    np.testing.assert_allclose(jax.jit(model.apply)({"params": params}, images), y, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "conv_impl"),
    [
        ("cnn", "native"),
        ("cnn", "fast"),
        ("resnet8", "plain"),
        ("mlp", "auto"),
        ("linear", "auto"),
        # the same blocks as resnet8, or a minute of compilation
        *(
            pytest.param(name, conv_impl, marks=pytest.mark.slow)
            for name in ("resnet20", "resnet18", "mobilenet_v2")
            for conv_impl in ("native", "fast", "plain")
        ),
    ],
)
def test_hessian_vector_products_are_finite_and_symmetric(name, conv_impl):
    model = models.build(name, 10, conv_impl=conv_impl)
    size = IMAGE.get(name, 8)
    params = models.init(model, (size, size, 3), KEY)
    loss_fn, batch = loss_of(model), batch_for(name)

    @jax.jit
    def product(vector):  # forward over reverse
        return jax.jvp(lambda p: jax.grad(loss_fn)(p, batch), (params,), (vector,))[1]

    def direction(seed):
        return optax.tree.random_like(jax.random.key(seed), params)

    u, v = direction(1), direction(2)
    of_u, of_v = product(u), product(v)
    chex.assert_tree_all_finite(of_v)
    scale = optax.tree.norm(u) * optax.tree.norm(of_v)
    assert abs(optax.tree.vdot(u, of_v) - optax.tree.vdot(v, of_u)) < 1e-4 * scale


def test_a_linear_model_is_a_product_that_starts_at_zero():
    model, x = models.build("linear", 2), jax.random.normal(KEY, (3, 2, 2))
    assert not np.any(models.init(model, (2, 2), KEY)["kernel"])
    kernel = jnp.arange(8.0).reshape(4, 2)
    np.testing.assert_allclose(model.apply({"params": {"kernel": kernel}}, x), x.reshape(3, 4) @ kernel)


def test_initialisation_is_that_of_the_reference():
    x = jnp.zeros((1, 4, 4, 64))
    block = jax.jit(ResNetBlock(64, 1, "evonorm", "fast").init)(KEY, x)["params"]
    assert float(block["conv1"]["kernel"].std()) == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)
    linear = jax.jit(Linear(10).init)(KEY, x[:, 0, 0])["params"]["kernel"]
    assert float(jnp.abs(linear).max()) <= 1 / 8
    assert float(linear.std()) == pytest.approx(1 / 8 / 3**0.5, rel=0.1)
    mobile = jax.jit(MobileBlock(64, 6, 1, "evonorm", "fast").init)(KEY, x)["params"]
    assert float(jnp.abs(mobile["depthwise"]["kernel"]).max()) == pytest.approx(1 / 3, rel=0.01)
    assert float(jnp.abs(mobile["expand"]["kernel"]).max()) == pytest.approx(1 / 8, rel=0.01)


def test_equal_models_are_initialised_by_one_program_and_as_ever():
    images = jnp.zeros((1, 5, 7, 2), jnp.float32)
    with compilations() as programs:
        for seed in range(3):  # as trials are: each run builds a model of its own
            model, key = models.build("mlp", 7), jax.random.key(seed)
            alone = jax.jit(lambda key, model=model: model.init(key, images))(key)["params"]
            chex.assert_trees_all_equal(models.init(model, (5, 7, 2), key), alone)
    assert programs.count(f"jit({models._initialised.__name__})") == 1


def test_a_module_of_ones_own_needs_no_registration():
    class Mine(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(10)(x.reshape(x.shape[0], -1))

    model = Mine()
    params = sj.replicate(models.init(model, (8, 8, 3), KEY), 4)
    method = sj.dpsgd(sj.ring(4), 0.1)
    step = jax.jit(method.step, static_argnums=0)
    _, _, metrics = step(loss_of(model), params, method.init(params), batch_for("mine", lead=(4,)))
    assert metrics["loss"].shape == (4,)


BAD = {
    "name": (lambda: models.build("resnet50", 10), "model must be one of resnet20, .* got 'resnet50'"),
    "classes": (lambda: models.build("cnn", 0), "num_classes must be an integer >= 1, got 0"),
    "norm": (lambda: models.build("cnn", 10, norm="batch"), "norm must be one of .* got 'batch'"),
    "conv_impl": (lambda: models.build("cnn", 10, conv_impl="x"), "conv_impl must be one of .* got 'x'"),
    "small": (
        lambda: models.init(models.build("resnet18", 10), (28, 28, 3), KEY),
        "ResNet needs images of at least 32x32, got 28x28",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named_with_their_value(name):
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        make()
