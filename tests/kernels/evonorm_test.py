"""EvoNorm-S0 by hand, and its derivative against autodiff; the same by kernels of our own."""

import functools
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

    @jax.jit
    def derivatives(x, scale, bias):
        """Computes for both forms the result, its gradients, and the derivative of a derivative."""
        results = []
        for run in (evonorm.evonorm, evonorm.evonorm_plain):
            y, pull = jax.vjp(functools.partial(run, gate), x, scale, bias)
            slope = jax.grad(lambda x, run=run: jnp.sum(run(gate, x, scale, bias) ** 2))
            results.append((y, pull(jnp.cos(y)), jax.grad(lambda x, slope=slope: jnp.sum(slope(x) ** 2))(x)))
        return results

    (y, first, second), (_, *plain) = derivatives(x, scale, bias)
    np.testing.assert_allclose(y, evonorm_by_hand(x, scale, bias, gate), atol=1e-12)
    chex.assert_trees_all_close(first, plain[0], atol=1e-11)
    chex.assert_trees_all_close(second, plain[1], rtol=1e-9)


def test_a_constant_image_gives_no_nan():
    gradient = jax.grad(lambda x: jnp.sum(evonorm.evonorm("hard_sigmoid", x, jnp.ones(8), jnp.zeros(8))))
    chex.assert_tree_all_finite(jax.jit(gradient)(jnp.full((1, 3, 3, 8), 2.0)))


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
def test_kernels_are_evonorm_and_its_derivative():
    shapes = [(3, 5, 5, 16), (2, 8, 8, 8), (3, 3, 4, 24), (1, 1, 1, 64), (2, 33, 7, 48), (2, 2, 1, 8)]
    inputs = {shape: numbers(shape) for shape in shapes}

    def all_of(run):
        return jax.jit(lambda inputs: {shape: with_gradients(run)(*inputs[shape]) for shape in inputs})

    ours = all_of(evonorm.evonorm_native)(inputs)
    assert {leaf.dtype for leaf in jax.tree.leaves(ours)} == {np.dtype(np.float32)}
    with jax.enable_x64(True):
        exact = all_of(plain)(jax.tree.map(lambda x: np.asarray(x, np.float64), inputs))
        exact = jax.device_get(exact)
    for shape in shapes:
        for one, other in zip(ours[shape], exact[shape], strict=True):
            atol = 4e-6 * np.abs(other).max() + 1e-7
            np.testing.assert_allclose(one, other, rtol=0, atol=atol, err_msg=str(shape))


@with_kernels
def test_kernels_give_agents_the_same_bits_batched_or_alone():
    arrays = numbers((3, 4, 4, 16))
    stacked = [jnp.stack([(i + 1) * a for i in range(4)]) for a in arrays]
    run = with_gradients(evonorm.evonorm_native)
    compiled = jax.jit(run)
    alone = [compiled(*(a[i] for a in stacked)) for i in range(4)]
    alone = jax.tree.map(lambda *rows: jnp.stack(rows), *alone)
    chex.assert_trees_all_equal(jax.jit(jax.vmap(run))(*stacked), alone)
    chex.assert_trees_all_equal(jax.jit(lambda a: jax.lax.map(lambda b: run(*b), a))(stacked), alone)
    # as in gradients of single samples: scale and bias are shared, and yet each has gradients of its own
    x, scale, bias, g = arrays
    shared = jax.jit(jax.vmap(lambda x, g: run(x[None], scale, bias, g[None])))(x, g)
    one = [compiled(x[i : i + 1], scale, bias, g[i : i + 1]) for i in range(3)]
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

    both = jax.jit(lambda: [products(run) for run in (evonorm.evonorm_native, plain)])()
    for one, other in zip(*map(jax.tree.leaves, both), strict=True):
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
