"""Convolution in all its forms and batching rules: the ordinary one, to rounding."""

import functools
import itertools

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
def test_convolution_by_hand(conv_impl):
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 9, 8, 4))
    kernels = {
        (size, stride, padding, depthwise): random.normal(
            size=(size, size, 1, 4) if depthwise else (size, size, 4, 6)
        )
        for size, stride, padding, depthwise in CONVOLUTIONS
    }

    @jax.jit
    def run(kernels):
        return {
            about: convolution.convolve(
                x, kernel, stride=about[1], padding=about[2], groups=4 if about[3] else 1, conv_impl=conv_impl
            )
            for about, kernel in kernels.items()
        }

    for about, y in run(kernels).items():
        _, stride, padding, depthwise = about
        expected = convolve_by_hand(x, kernels[about], stride, padding, 4 if depthwise else 1)
        np.testing.assert_allclose(y, expected, atol=1e-12, err_msg=str(about))


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
@pytest.mark.parametrize(("agents", "kind"), [(3, "cpu"), (convolution._MAX_UNROLLED + 1, "cpu"), (3, "gpu")])
def test_agents_are_convolved_each_by_its_own_kernel(agents, kind):
    """Every agent with its own images, its own kernel, or both; and agents of agents, a vmap in a vmap.

    The latter are neighbours' batches under one model, or trials with one each.
    """
    cases, inputs = [], []
    for (stride, groups), axes in itertools.product([(1, 1), (2, 1), (2, 4)], [(0, 0), (0, None), (None, 0)]):
        cases.append((stride, groups, (axes,)))
        x = jax.random.normal(KEY, (agents, 2, 5, 5, 4))[slice(None) if axes[0] == 0 else 0]
        kernel = jax.random.normal(KEY, (agents, 3, 3, 4 // groups, 4))[slice(None) if axes[1] == 0 else 0]
        inputs.append((x, kernel))
    for inner in ((0, None), (0, 0)):
        cases.append((1, 1, (inner, (0, 0))))
        x = jax.random.normal(KEY, (2, 3, 2, 5, 5, 4))
        kernel = jax.random.normal(KEY, (2, 3, 3, 3, 4, 4))
        inputs.append((x, kernel if inner[1] == 0 else kernel[:, 0]))

    @jax.jit
    def run(inputs):
        results = {"fast": [], "plain": []}
        for conv_impl, found in results.items():
            for (stride, groups, levels), arrays in zip(cases, inputs, strict=True):
                function = all_of(conv_impl, stride, groups)
                for axes in levels:
                    function = jax.vmap(function, axes)
                found.append(function(*arrays))
        return results

    with policy.targeting(kind):
        results = run(inputs)
    for case, fast, plain in zip(cases, results["fast"], results["plain"], strict=True):
        chex.assert_trees_all_close(fast, plain, atol=1e-11, custom_message=str(case))


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


@pytest.mark.parametrize(("dtype", "limit"), [(jnp.float32, 2e-6), (jnp.float64, 1e-13)])
def test_every_form_of_a_convolution_is_the_ordinary_one(dtype, limit):
    forms = (convolution.ORDINARY, convolution.BY_PATCHES, convolution.ON_CPU)

    def all_three(form, shape, x, kernel):
        height, width, _, _, size, stride, padding, _ = shape
        window = convolution.Window(stride, padding, 1)
        y = form.forward(window, x, kernel)
        g = jnp.sin(jnp.arange(y.size, dtype=x.dtype)).reshape(y.shape)
        return (
            y,
            form.input_gradient(window, (height, width), g, kernel),
            form.kernel_gradient(window, (size, size), x, g),
        )

    with jax.enable_x64(dtype == jnp.float64):
        inputs = {
            (height, width, inputs, outputs, size, stride, padding, batch): (
                jax.random.normal(KEY, (batch, height, width, inputs), dtype),
                jax.random.normal(KEY, (size, size, inputs, outputs), dtype),
            )
            for height, width, inputs, outputs, size, stride, padding, batch in SHAPES
        }
        run = jax.jit(lambda inputs: {s: [all_three(form, s, *inputs[s]) for form in forms] for s in inputs})
        results = jax.device_get(run(inputs))
    for shape, (ordinary, *others) in results.items():
        for form in others:
            chex.assert_trees_all_equal_shapes_and_dtypes(form, ordinary)
            for one, other in zip(form, ordinary, strict=True):
                assert np.abs(one - other).max() < limit * np.abs(other).max(), shape


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
