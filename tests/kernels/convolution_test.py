"""Convolution in all its forms and batching rules: the ordinary one, to rounding."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers_by_hand import convolve_by_hand
from traced import equations

from saddle_jax.devices import policy
from saddle_jax.kernels import convolution

KEY = jax.random.key(0)

CONVOLUTIONS = [
    (3, 1, 1, False),
    (3, 2, 1, False),
    (1, 2, 0, False),
    (7, 2, 3, False),
    (3, 1, 1, True),
    (3, 2, 1, True),
]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("conv_impl", ["fast", "plain"])
@pytest.mark.parametrize(("size", "stride", "padding", "depthwise"), CONVOLUTIONS)
def test_convolution_by_hand(size, stride, padding, depthwise, conv_impl):
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 9, 8, 4))
    groups = 4 if depthwise else 1
    kernel = random.normal(size=(size, size, 4 // groups, 4 if depthwise else 6))
    y = convolution.convolve(x, kernel, stride=stride, padding=padding, groups=groups, conv_impl=conv_impl)
    np.testing.assert_allclose(y, convolve_by_hand(x, kernel, stride, padding, groups), atol=1e-12)


def all_of(conv_impl, stride, groups):
    """Returns a function that computes the output and both gradients of one convolution."""

    def run(x, kernel):
        def total(x, kernel):
            y = convolution.convolve(x, kernel, stride=stride, padding=1, groups=groups, conv_impl=conv_impl)
            return jnp.sum(jnp.sin(y)), y

        (_, y), gradients = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)(x, kernel)
        return y, gradients

    return run


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)], ids=str)
@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (2, 4)])
@pytest.mark.parametrize(("agents", "kind"), [(3, "cpu"), (convolution._MAX_UNROLLED + 1, "cpu"), (3, "gpu")])
def test_agents_are_convolved_each_by_its_own_kernel(axes, stride, groups, agents, kind):
    x = jax.random.normal(KEY, (agents, 2, 5, 5, 4))[slice(None) if axes[0] == 0 else 0]
    kernel = jax.random.normal(KEY, (agents, 3, 3, 4 // groups, 4))[slice(None) if axes[1] == 0 else 0]
    with policy.targeting(kind):
        fast, plain = (
            jax.jit(jax.vmap(all_of(way, stride, groups), axes))(x, kernel) for way in ("fast", "plain")
        )
    chex.assert_trees_all_close(fast, plain, atol=1e-11)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("inner", [(0, None), (0, 0)], ids=["neighbours", "trials"])
def test_agents_of_agents_are_convolved_too(inner, kind):
    """Neighbours' batches under one model, or trials with one each, all agents: a vmap inside a vmap."""
    x = jax.random.normal(KEY, (2, 3, 2, 5, 5, 4))
    kernel = jax.random.normal(KEY, (2, 3, 3, 3, 4, 4))[slice(None) if inner[1] == 0 else (slice(None), 0)]
    with policy.targeting(kind):
        fast, plain = (jax.vmap(jax.vmap(all_of(way, 1, 1), inner))(x, kernel) for way in ("fast", "plain"))
    chex.assert_trees_all_close(fast, plain, atol=1e-11)


def grouped_windows(conv_impl, agents):
    """The sides of all windows of convolutions that have a group for each agent, in output and gradients."""
    arguments = (jnp.zeros((*agents, 2, 16, 16, 4)), jnp.zeros((*agents, 3, 3, 4, 8)))
    run = all_of(conv_impl, 2, 1)
    for _ in agents:
        run = jax.vmap(run)
    convolutions = [
        equation
        for equation in equations(jax.make_jaxpr(run)(*arguments).jaxpr)
        if equation.primitive.name == "conv_general_dilated"
    ]
    sides = []
    for equation in convolutions:
        spatial = equation.params["dimension_numbers"].rhs_spec[2:]
        if equation.params["feature_group_count"] > 1:
            sides += [equation.invars[1].aval.shape[axis] for axis in spatial]
    return sides


@pytest.mark.parametrize("agents", [(3,), (2, 3)], ids=str)
def test_no_window_on_an_accelerator_is_as_large_as_the_image(agents):
    """The gradient of kernels must be that of a grouped convolution, not a forward one of the whole image."""
    with policy.targeting("gpu"):
        assert set(grouped_windows("fast", agents)) == {3}
        assert max(grouped_windows("plain", agents)) > 7


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
    window = convolution.Window(stride, padding, 1)

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
            forms = (convolution.ORDINARY, convolution.BY_PATCHES, convolution.ON_CPU)
            run = jax.jit(lambda x, kernel, forms=forms: [all_three(form, x, kernel) for form in forms])
            ordinary, patches, cpu = run(x, kernel)
            assert worst(patches, ordinary) < limit
            assert worst(cpu, ordinary) < limit


def test_the_batching_rule_makes_ordinary_convolutions():
    run = functools.partial(convolution.convolve, padding=1, conv_impl="fast")
    x, kernel = jnp.zeros((3, 2, 5, 5, 4)), jnp.zeros((3, 3, 3, 4, 32))
    fast = str(jax.make_jaxpr(jax.vmap(run))(x, kernel))
    assert fast.count("conv_general_dilated") == 3
    assert "feature_group_count=1" in fast
    shared = jax.vmap(run, (0, None))
    assert str(jax.make_jaxpr(shared)(x, kernel[0])).count("conv_general_dilated") == 1  # more images


def test_many_agents_share_one_program():
    run = functools.partial(convolution.convolve, padding=1, conv_impl="fast")
    many = convolution._MAX_UNROLLED + 1
    x, kernel = jnp.zeros((many, 2, 8, 8, 4)), jnp.zeros((many, 3, 3, 4, 32))
    program = str(jax.make_jaxpr(jax.vmap(run))(x, kernel))
    assert program.count("conv_general_dilated[") == 1
    assert program.count("scan[") == 1
