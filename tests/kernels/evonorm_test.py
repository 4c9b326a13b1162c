"""EvoNorm-S0 by hand, and its derivative against autodiff; the same by kernels of our own."""

import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers_by_hand import evonorm_by_hand

from saddle_jax.devices import policy
from saddle_jax.kernels import evonorm, native
from saddle_jax.models.layers import EvoNorm

with_kernels = pytest.mark.skipif(
    not any(map(shutil.which, native._COMPILERS)), reason="there is no C++ compiler"
)


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


def numbers(shape):
    """Returns float32 x, scale, bias and a cotangent; some of x are beyond the sigmoid's corners."""
    random = np.random.default_rng(0)
    sizes = [shape, shape[-1:], shape[-1:], shape]
    x, scale, bias, g = (jnp.asarray(random.normal(size=size), np.float32) for size in sizes)
    return 3 * x + 1, scale, bias, g


def with_gradients(run):
    """Returns a function to y and the gradients of x, scale and bias."""

    def both(x, scale, bias, g):
        y, pull = jax.vjp(run, x, scale, bias)
        return y, *pull(g)

    return both


def plain(x, scale, bias):
    return evonorm.evonorm_plain("hard_sigmoid", x, scale, bias)


@with_kernels
@pytest.mark.parametrize(
    "shape",
    [(3, 5, 5, 16), (2, 8, 8, 8), (3, 3, 4, 24), (1, 1, 1, 64), (2, 33, 7, 48), (2, 2, 1, 8)],
    ids=str,
)
def test_kernels_are_evonorm_and_its_derivative(shape):
    arrays = numbers(shape)
    ours = jax.jit(with_gradients(evonorm.evonorm_native))(*arrays)
    with jax.enable_x64(True):
        exact = with_gradients(plain)(*(jnp.asarray(np.asarray(a, np.float64)) for a in arrays))
        exact = [np.asarray(a) for a in exact]
    for one, other in zip(ours, exact, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=0, atol=4e-6 * np.abs(other).max() + 1e-7)


@with_kernels
def test_kernels_give_agents_the_same_bits_batched_or_alone():
    arrays = numbers((3, 4, 4, 16))
    stacked = [jnp.stack([(i + 1) * a for i in range(4)]) for a in arrays]
    run = with_gradients(evonorm.evonorm_native)
    alone = [run(*(a[i] for a in stacked)) for i in range(4)]
    alone = jax.tree.map(lambda *rows: jnp.stack(rows), *alone)
    chex.assert_trees_all_equal(jax.jit(jax.vmap(run))(*stacked), alone)
    chex.assert_trees_all_equal(jax.jit(lambda a: jax.lax.map(lambda b: run(*b), a))(stacked), alone)
    # as in gradients of single samples: scale and bias are shared, and yet each has gradients of its own
    x, scale, bias, g = arrays
    shared = jax.vmap(lambda x, g: run(x[None], scale, bias, g[None]))(x, g)
    one = [run(x[i : i + 1], scale, bias, g[i : i + 1]) for i in range(3)]
    chex.assert_trees_all_equal(shared, jax.tree.map(lambda *rows: jnp.stack(rows), *one))


@with_kernels
def test_hessian_vector_products_through_kernels_are_those_of_autodiff():
    x, scale, bias, _ = numbers((2, 4, 3, 16))

    def products(run):
        loss = lambda arguments: jnp.sum(jnp.sin(run(*arguments)))  # noqa: E731
        point, along = (x, scale, bias), (jnp.cos(x), bias, scale)
        forward = jax.jvp(jax.grad(loss), (point,), (along,))[1]
        backward = jax.grad(lambda a: sum(map(jnp.vdot, jax.grad(loss)(a), along)))(point)
        return forward, backward

    for one, other in zip(*map(jax.tree.leaves, map(products, (evonorm.evonorm_native, plain))), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-5 * float(jnp.abs(other).max()))


@with_kernels
def test_only_what_the_kernels_are_for_is_theirs():
    def calls(shape, dtype=np.float32, **options):
        layer = EvoNorm(**options)
        params = {"scale": jnp.ones(shape[-1]), "bias": jnp.zeros(shape[-1])}
        text = str(jax.make_jaxpr(lambda x: layer.apply({"params": params}, x))(jnp.zeros(shape, dtype)))
        return text.count("ffi_call[")

    assert calls((2, 3, 3, 16)) == calls((2, 3, 4, 8)) == 1
    assert calls((2, 3, 3, 16), conv_impl="native") == 1
    assert calls((2, 3, 3, 8)) == 0  # neither one pixel nor two fill whole vectors
    assert calls((2, 3, 3, 16), gate="sigmoid") == 0
    assert calls((2, 3, 3, 16), conv_impl="fast") == calls((2, 3, 3, 16), conv_impl="plain") == 0
    assert calls((2, 3, 3, 16), jnp.bfloat16) == calls((0, 3, 3, 16)) == 0
    with policy.targeting("gpu"):
        assert calls((2, 3, 3, 16)) == 0
