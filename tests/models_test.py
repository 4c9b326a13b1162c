import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import saddle_jax as sj
from saddle_jax import models
from saddle_jax.models import convolution, convolution_forms, evonorm

IMAGE = {"resnet18": 32, "mobilenet_v2": 8}
KEY = jax.random.key(0)


def loss_of(model):
    def loss_fn(params, batch):
        logits = model.apply({"params": params}, batch["x"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()

    return loss_fn


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


@pytest.mark.parametrize("name", models.NAMES)
def test_every_network_gives_logits_and_gradients_and_serves_many_agents(name):
    model, size = models.build(name, num_classes=7), IMAGE.get(name, 8)
    images = jnp.zeros((2, size, size, 3))
    params = jax.eval_shape(lambda: models.init(model, (size, size, 3), KEY))
    assert models.count(params) > 0
    batch = {"x": images, "y": jnp.zeros(2, int)}
    loss, gradient = jax.eval_shape(jax.value_and_grad(loss_of(model)), params, batch)
    assert loss.shape == ()
    chex.assert_trees_all_equal_shapes_and_dtypes(gradient, params)
    assert jax.eval_shape(lambda p: model.apply({"params": p}, images), params).shape == (2, 7)
    stacked = jax.eval_shape(lambda p: sj.replicate(p, 3), params)  # agents are an axis that vmap adds
    batches = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), batch)
    assert jax.eval_shape(jax.vmap(loss_of(model)), stacked, batches).shape == (3,)


# ---- convolution ----


def convolve_by_hand(x, kernel, stride, padding, groups):
    """Loops over output pixels, in NumPy."""
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    height, width, inputs, outputs = kernel.shape
    rows, columns = ((x.shape[axis] - size) // stride + 1 for axis, size in ((1, height), (2, width)))
    y = np.zeros((x.shape[0], rows, columns, outputs))
    for i in range(rows):
        for j in range(columns):
            window = x[:, i * stride : i * stride + height, j * stride : j * stride + width]
            for d in range(outputs):
                first = d // (outputs // groups) * inputs
                y[:, i, j, d] = (window[..., first : first + inputs] * kernel[..., d]).sum(axis=(1, 2, 3))
    return y


CONVOLUTIONS = [
    (3, 1, 1, False),
    (3, 2, 1, False),
    (1, 2, 0, False),
    (7, 2, 3, False),
    (3, 1, 1, True),
    (3, 2, 1, True),
]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("lowering", ["fast", "plain"])
@pytest.mark.parametrize(("size", "stride", "padding", "depthwise"), CONVOLUTIONS)
def test_convolution_by_hand(size, stride, padding, depthwise, lowering):
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 9, 8, 4))
    groups = 4 if depthwise else 1
    kernel = random.normal(size=(size, size, 4 // groups, 4 if depthwise else 6))
    y = convolution.convolve(x, kernel, stride=stride, padding=padding, groups=groups, lowering=lowering)
    np.testing.assert_allclose(y, convolve_by_hand(x, kernel, stride, padding, groups), atol=1e-12)


def all_of(lowering, stride, groups):
    """Output and both gradients of one convolution."""

    def run(x, kernel):
        def total(x, kernel):
            y = convolution.convolve(x, kernel, stride=stride, padding=1, groups=groups, lowering=lowering)
            return jnp.sum(jnp.sin(y)), y

        (_, y), gradients = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)(x, kernel)
        return y, gradients

    return run


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)], ids=str)
@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (2, 4)])
@pytest.mark.parametrize("agents", [3, convolution._MAX_UNROLLED + 1])
def test_agents_are_convolved_each_by_its_own_kernel(axes, stride, groups, agents):
    x = jax.random.normal(KEY, (agents, 2, 5, 5, 4))[slice(None) if axes[0] == 0 else 0]
    kernel = jax.random.normal(KEY, (agents, 3, 3, 4 // groups, 4))[slice(None) if axes[1] == 0 else 0]
    fast, plain = (
        jax.jit(jax.vmap(all_of(way, stride, groups), axes))(x, kernel) for way in ("fast", "plain")
    )
    chex.assert_trees_all_close(fast, plain, atol=1e-11)


@pytest.mark.usefixtures("x64")
def test_agents_of_agents_are_convolved_too():
    """Neighbours' batches under one model, all agents: a vmap inside a vmap."""
    x = jax.random.normal(KEY, (2, 3, 2, 5, 5, 4))
    kernel = jax.random.normal(KEY, (2, 3, 3, 4, 4))
    fast, plain = (jax.vmap(jax.vmap(all_of(way, 1, 1), (0, None)))(x, kernel) for way in ("fast", "plain"))
    chex.assert_trees_all_close(fast, plain, atol=1e-11)


SHAPES = [  # height, width, inputs, outputs, size, stride, padding, batch
    (8, 8, 3, 16, 3, 1, 1, 2),  # few channels: four columns as one
    (6, 9, 16, 16, 3, 1, 1, 20),  # two columns as one, the last alone
    (9, 7, 16, 16, 3, 2, 1, 1),
    (9, 8, 8, 32, 3, 2, 1, 20),  # the stride does not divide the height
    (7, 8, 4, 20, 3, 3, 1, 2),
    (11, 12, 3, 24, 7, 2, 3, 2),
    (7, 6, 20, 4, 5, 2, 1, 2),
    (8, 9, 16, 24, 1, 2, 0, 2),  # a shortcut
    (6, 5, 20, 4, 3, 1, 0, 18),  # the input gradient is larger than what it is made of
    (2, 3, 24, 24, 3, 1, 1, 2),  # the kernel is larger than the images
    (5, 5, 2, 3, 2, 3, 0, 2),  # the stride is longer than the kernel
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_form_of_a_convolution_is_the_ordinary_one(shape):
    height, width, inputs, outputs, size, stride, padding, batch = shape
    window = convolution_forms.Window(stride, padding, 1)

    def all_three(form, x, kernel):
        y = form.forward(window, x, kernel)
        g = jnp.sin(jnp.arange(y.size, dtype=x.dtype)).reshape(y.shape)
        return (
            y,
            form.input_gradient(window, (height, width), g, kernel),
            form.kernel_gradient(window, (size, size), x, g),
        )

    def worst(one, other):
        errors = jax.tree.map(lambda a, b: jnp.abs(a - b).max() / jnp.abs(b).max(), one, other)
        chex.assert_trees_all_equal_shapes(one, other)
        return max(float(error) for error in errors)

    for dtype, limit in ((jnp.float32, 2e-6), (jnp.float64, 1e-13)):
        with jax.enable_x64(dtype == jnp.float64):
            x = jax.random.normal(KEY, (batch, height, width, inputs), dtype)
            kernel = jax.random.normal(KEY, (size, size, inputs, outputs), dtype)
            forms = (convolution_forms.ORDINARY, convolution_forms.BY_PATCHES, convolution_forms.ON_CPU)
            run = jax.jit(lambda x, kernel, forms=forms: [all_three(form, x, kernel) for form in forms])
            ordinary, patches, cpu = run(x, kernel)
            assert worst(patches, ordinary) < limit
            assert worst(cpu, ordinary) < limit


def test_the_batching_rule_makes_ordinary_convolutions():
    x, kernel = jnp.zeros((3, 2, 5, 5, 4)), jnp.zeros((3, 3, 3, 4, 32))
    fast = str(jax.make_jaxpr(jax.vmap(lambda x, k: convolution.convolve(x, k, padding=1)))(x, kernel))
    assert fast.count("conv_general_dilated") == 3
    assert "feature_group_count=1" in fast
    shared = jax.vmap(lambda x, k: convolution.convolve(x, k, padding=1), (0, None))
    assert str(jax.make_jaxpr(shared)(x, kernel[0])).count("conv_general_dilated") == 1  # more images


def test_many_agents_share_one_program():
    many = convolution._MAX_UNROLLED + 1
    x, kernel = jnp.zeros((many, 2, 8, 8, 4)), jnp.zeros((many, 3, 3, 4, 32))
    program = str(jax.make_jaxpr(jax.vmap(lambda x, k: convolution.convolve(x, k, padding=1)))(x, kernel))
    assert program.count("conv_general_dilated[") == 1
    assert program.count("scan[") == 1


# ---- EvoNorm ----


def evonorm_by_hand(x, scale, bias, gate):
    """Sample by sample and group by group, in NumPy."""
    y = np.empty_like(x)
    width = x.shape[3] // 8
    h = 1 / (1 + np.exp(-x)) if gate == "sigmoid" else np.clip(x / 6 + 0.5, 0, 1)
    for sample in range(len(x)):
        for group in range(8):
            part = (sample, slice(None), slice(None), slice(group * width, (group + 1) * width))
            y[part] = x[part] * h[part] / np.sqrt(np.var(x[part]) + 1e-5)
    return y * scale + bias


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


# ---- whole networks ----


def batch_for(name, lead=(), dtype=jnp.float32):
    size = IMAGE.get(name, 8)
    x = jax.random.normal(jax.random.key(1), (*lead, 2, size, size, 3), dtype)
    return {"x": x, "y": jnp.broadcast_to(jnp.array([1, 7]), (*lead, 2))}


@pytest.mark.parametrize(
    ("name", "norm"), [("resnet8", "evonorm"), ("cnn", "groupnorm"), ("cnn", "evonorm_sigmoid")]
)
def test_fast_and_plain_networks_are_the_same_function_of_the_same_parameters(name, norm):
    fast = models.build(name, 10, norm=norm)
    plain = models.build(name, 10, norm=norm, lowering="plain")
    params = [models.init(fast, (8, 8, 3), jax.random.key(agent)) for agent in range(3)]
    chex.assert_trees_all_equal(params[0], models.init(plain, (8, 8, 3), jax.random.key(0)))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    batch = batch_for(name, lead=(3,))
    grads = [jax.jit(sj.local_gradients(loss_of(model), rho=0.1))(stacked, batch) for model in (fast, plain)]
    chex.assert_trees_all_close(*grads, rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("x64")
def test_resnet8_by_hand():
    """The whole network in NumPy: where the non-linearities are, and where they are not."""
    model = models.build("resnet8", 10)
    params = jax.tree.map(np.asarray, models.init(model, (8, 8, 3), KEY))
    params = jax.tree.map(lambda x: x + 0.1 * np.random.default_rng(0).normal(size=x.shape), params)
    images = np.random.default_rng(1).normal(size=(2, 8, 8, 3))

    def conv(x, kernel, stride=1):
        return convolve_by_hand(x, kernel["kernel"], stride, kernel["kernel"].shape[0] // 2, 1)

    def norm(x, of):
        return evonorm_by_hand(x, of["norm"]["scale"], of["norm"]["bias"], "hard_sigmoid")

    x = norm(conv(images, params["stem"]), params["stem_norm"])
    for stage in (1, 2, 3):
        block = params[f"stage{stage}_block1"]
        stride = 1 if stage == 1 else 2
        y = norm(conv(x, block["conv1"], stride), block["norm1"])
        y = norm(conv(y, block["conv2"]), block["norm2"])
        if stage > 1:
            x = norm(conv(x, block["shortcut"], stride), block["shortcut_norm"])
        x = x + y
    logits = x.mean(axis=(1, 2)) @ params["linear"]["kernel"] + params["linear"]["bias"]
    np.testing.assert_allclose(model.apply({"params": params}, images), logits, atol=1e-10)


@pytest.mark.parametrize("lowering", ["fast", "plain"])
@pytest.mark.parametrize(
    "name",
    [
        "resnet8",
        "cnn",
        "mlp",
        "logistic",
        # the same blocks as resnet8, or a minute of compilation
        pytest.param("resnet20", marks=pytest.mark.slow),
        pytest.param("resnet18", marks=pytest.mark.slow),
        pytest.param("mobilenet_v2", marks=pytest.mark.slow),
    ],
)
def test_hessian_vector_products_are_finite_and_symmetric(name, lowering):
    model = models.build(name, 10, lowering=lowering)
    size = IMAGE.get(name, 8)
    params = models.init(model, (size, size, 3), KEY)
    loss_fn, batch = loss_of(model), batch_for(name)

    @jax.jit
    def product(vector):  # forward over reverse
        return jax.jvp(lambda p: jax.grad(loss_fn)(p, batch), (params,), (vector,))[1]

    def direction(seed):
        return optax.tree.random_like(jax.random.key(seed), params)

    u, v = direction(1), direction(2)
    left, right = optax.tree.vdot(u, product(v)), optax.tree.vdot(v, product(u))
    chex.assert_tree_all_finite(left)
    scale = optax.tree.norm(u) * optax.tree.norm(product(v))
    assert abs(left - right) < 1e-4 * scale


def test_initialisation_is_that_of_the_reference():
    params = models.init(models.build("resnet20", 10), (32, 32, 3), KEY)
    kernel = params["stage3_block2"]["conv1"]["kernel"]
    assert float(kernel.std()) == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)
    linear = params["linear"]["kernel"]
    assert float(jnp.abs(linear).max()) <= 1 / 8
    assert float(linear.std()) == pytest.approx(1 / 8 / 3**0.5, rel=0.1)
    mobile = models.init(models.build("mobilenet_v2", 10), (32, 32, 3), KEY)["stage4_block2"]
    assert float(jnp.abs(mobile["depthwise"]["kernel"]).max()) == pytest.approx(1 / 3, rel=0.01)
    assert float(jnp.abs(mobile["expand"]["kernel"]).max()) == pytest.approx(1 / 8, rel=0.01)


def test_equal_models_are_initialised_by_one_program_and_as_ever():
    before, images = models._variables._cache_size(), jnp.zeros((1, 5, 7, 2), jnp.float32)
    for seed in range(3):  # as replicas are: each run builds a model of its own
        model, key = models.build("mlp", 7), jax.random.key(seed)
        alone = jax.jit(lambda key, model=model: model.init(key, images))(key)["params"]
        chex.assert_trees_all_equal(models.init(model, (5, 7, 2), key), alone)
    assert models._variables._cache_size() == before + 1


def test_a_module_of_ones_own_needs_no_registration():
    class Mine(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(10)(x.reshape(x.shape[0], -1))

    model = Mine()
    params = sj.replicate(models.init(model, (8, 8, 3), KEY), 4)
    method = sj.dpsgd(sj.ring(4), 0.1)
    _, _, metrics = method.step(loss_of(model), params, method.init(params), batch_for("mine", lead=(4,)))
    assert metrics["loss"].shape == (4,)


BAD = {
    "name": (lambda: models.build("resnet50", 10), "model must be one of 'resnet20', .* got 'resnet50'"),
    "classes": (lambda: models.build("cnn", 1), "num_classes must be an integer >= 2, got 1"),
    "norm": (lambda: models.build("cnn", 10, norm="batch"), "norm must be one of .* got 'batch'"),
    "lowering": (lambda: models.build("cnn", 10, lowering="x"), "lowering must be one of .* got 'x'"),
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
