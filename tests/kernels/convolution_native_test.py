"""Kernels of our own: XLA's convolution and its derivatives to rounding, and the same bits every time."""

import dataclasses
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax import models
from saddle_jax.devices import policy
from saddle_jax.kernels import convolution, native
from saddle_jax.kernels.convolution import Window
from saddle_jax.settings.settings import Settings
from saddle_jax.training import describe

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, native._COMPILERS)), reason="there is no C++ compiler"
)

ROOT = pathlib.Path(__file__).parents[2]
SHAPES = [  # batch, height, width, inputs, outputs, size, stride, padding
    (2, 8, 8, 3, 16, 3, 1, 1),  # a row of the kernel is one vector
    (2, 9, 7, 3, 16, 3, 2, 1),
    (3, 8, 8, 16, 16, 3, 1, 1),
    (2, 33, 17, 16, 32, 3, 1, 1),  # several blocks of columns, the last one shorter
    (2, 9, 8, 16, 32, 3, 2, 1),  # stride 2 on odd sizes
    (2, 8, 9, 32, 64, 3, 2, 1),
    (5, 4, 4, 32, 64, 3, 2, 1),  # several rows at a time
    (9, 2, 2, 64, 64, 3, 1, 1),
    (1, 1, 1, 20, 40, 3, 1, 1),  # an image of one pixel
    (1, 1, 1, 3, 5, 3, 2, 1),
    (1, 5, 3, 17, 23, 3, 1, 1),  # channels that no vector divides
    (2, 5, 6, 1, 1, 3, 1, 1),
    (7, 5, 5, 10, 72, 3, 2, 1),
    (2, 9, 8, 16, 32, 1, 2, 0),  # a shortcut
    (3, 7, 7, 48, 24, 1, 1, 0),  # pixels in lines, and some left over
    (1, 1, 1, 4, 4, 1, 1, 0),
    (2, 12, 11, 3, 24, 7, 2, 3),
    (2, 6, 5, 20, 4, 3, 1, 0),
    (2, 7, 6, 4, 20, 3, 3, 1),
    (2, 5, 5, 2, 3, 2, 3, 0),  # pixels that no entry of the kernel meets
    (2, 4, 5, 8, 8, 3, 1, 4),  # more zeros than the kernel is long
    (5, 8, 8, 64, 64, 3, 1, 1),  # by tiles, several images at a time
    (1, 32, 32, 16, 16, 3, 1, 1),  # by tiles, some lines of an image at a time
    (3, 10, 14, 16, 48, 3, 1, 1),
    (64, 2, 2, 32, 16, 3, 1, 1),  # an image is one tile
]


def arrays(shape, dtype=np.float32):
    """Returns x, a kernel and a cotangent for a convolution of this shape."""
    batch, height, width, inputs, outputs, size, stride, padding = shape
    random = np.random.default_rng(0)
    rows, columns = ((extent + 2 * padding - size) // stride + 1 for extent in (height, width))
    sizes = [(batch, height, width, inputs), (size, size, inputs, outputs), (batch, rows, columns, outputs)]
    return [jnp.asarray(random.normal(size=size), dtype) for size in sizes]


def by_conv_impl(conv_impl, stride, padding):
    """Returns a function to y and both gradients."""

    def run(x, kernel, g):
        way = functools.partial(convolution.convolve, stride=stride, padding=padding, conv_impl=conv_impl)
        y, pullback = jax.vjp(way, x, kernel)
        return y, *pullback(g)

    return run


def calls(function, *arguments):
    """Counts the kernels of our own in a function; a new one each time, for JAX remembers the old ones."""
    return str(jax.make_jaxpr(lambda *arrays: function(*arrays))(*arguments)).count("ffi_call[")


def check_close(ours, theirs, tolerance):
    """Compares results for every shape, each relative to its largest number."""
    for shape in SHAPES:
        for one, other in zip(ours[shape], theirs[shape], strict=True):
            other = np.asarray(other)
            atol = tolerance * np.abs(other).max() + 1e-30
            np.testing.assert_allclose(one, other, rtol=0, atol=atol, err_msg=str(shape))


@pytest.fixture(scope="module")
def exact():
    """The results and both gradients for every shape by XLA in float64, of one program."""
    inputs = {shape: [np.asarray(a, np.float64) for a in arrays(shape)] for shape in SHAPES}

    @jax.jit
    def run(inputs):
        return {shape: by_conv_impl("plain", *shape[-2:])(*inputs[shape]) for shape in SHAPES}

    with jax.enable_x64(True):
        return jax.device_get(run(inputs))


def test_convolutions_and_gradients_are_those_of_lax(exact):
    @jax.jit
    def run(inputs):
        return {shape: by_conv_impl("native", *shape[-2:])(*inputs[shape]) for shape in SHAPES}

    ours = run({shape: arrays(shape) for shape in SHAPES})
    assert {leaf.dtype for leaf in jax.tree.leaves(ours)} == {np.dtype(np.float32)}
    check_close(ours, exact, 2e-6)


def test_kernels_that_matrix_products_replace_are_right_too(exact):
    """1x1 kernels are computed otherwise where they are faster; these are all three, in every shape."""

    @jax.jit
    def run(inputs):
        results = {}
        for shape, (x, kernel, g) in inputs.items():
            call = functools.partial(convolution._call, window=Window(*shape[-2:], 1))
            results[shape] = [
                call("forward", shape=g.shape, left=x, right=kernel),
                call("input_gradient", shape=x.shape, left=g, right=kernel),
                call("kernel_gradient", shape=kernel.shape, left=x, right=g),
            ]
        return results

    check_close(run({shape: arrays(shape) for shape in SHAPES}), exact, 4e-6)


def test_the_same_call_gives_the_same_bits():
    x, kernel, g = arrays(SHAPES[4])
    run = jax.jit(by_conv_impl("native", 2, 1))
    chex.assert_trees_all_equal(run(x, kernel, g), run(x, kernel, g))


def test_agents_give_the_same_bits_in_a_loop_batched_or_on_devices():
    shape = (2, 6, 5, 16, 20, 3, 1, 1)
    agents = 12
    x, kernel, g = (jnp.stack([(i + 1) * a for i in range(agents)]) for a in arrays(shape))
    one = by_conv_impl("native", 1, 1)
    alone = [one(x[i], kernel[i], g[i]) for i in range(agents)]
    alone = jax.tree.map(lambda *rows: jnp.stack(rows), *alone)
    chex.assert_trees_all_equal(jax.jit(jax.vmap(one))(x, kernel, g), alone)
    chex.assert_trees_all_equal(jax.jit(lambda *a: jax.lax.map(lambda b: one(*b), a))(x, kernel, g), alone)
    few = jax.jit(jax.vmap(one))(x[:3], kernel[:3], g[:3])  # not a loop, but one after the other
    chex.assert_trees_all_equal(few, jax.tree.map(lambda a: a[:3], alone))


def test_a_networks_gradients_through_sam_are_the_same_on_devices_and_those_of_xla():
    images = jax.random.normal(jax.random.key(0), (4, 3, 8, 8, 3))

    def gradients(conv_impl):
        model = models.build("cnn", 10, conv_impl=conv_impl)
        params = sj.replicate(models.init(model, (8, 8, 3), jax.random.key(1)), 4)
        loss = lambda p, x: jnp.mean(jnp.square(model.apply({"params": p}, x)))  # noqa: E731
        return jax.jit(sj.local_gradients(loss, sj.sam(0.1)))(params, images)

    ours, theirs = gradients("native"), gradients("plain")
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(theirs))
    chex.assert_trees_all_close(ours, theirs, rtol=0, atol=1e-4 * largest)
    with jax.set_mesh(sj.agent_mesh(4)):
        on_devices = gradients("native")
    chex.assert_trees_all_equal(on_devices, ours)


@pytest.mark.parametrize("agents", [None, 2])
def test_hessian_vector_products_are_those_of_xla(agents):
    x, kernel, _ = arrays((2, 5, 6, 16, 20, 3, 2, 1))
    vector = jnp.cos(jnp.arange(kernel.size, dtype=np.float32)).reshape(kernel.shape)

    def product(conv_impl):
        def loss(kernel):
            y = convolution.convolve(x, kernel, stride=2, padding=1, conv_impl=conv_impl)
            y = convolution.convolve(jnp.tanh(y), kernel.swapaxes(2, 3), padding=1, conv_impl=conv_impl)
            return jnp.mean(jnp.square(y))

        def of(kernel, vector):
            return jax.jvp(jax.grad(loss), (kernel,), (vector,))[1]

        if agents is None:
            return jax.jit(of)(kernel, vector)
        return jax.jit(jax.vmap(of))(jnp.stack([kernel] * agents), jnp.stack([vector] * agents))

    ours, theirs = product("native"), product("plain")
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * float(jnp.abs(theirs).max()))


def test_only_float32_and_less_on_a_cpu_is_ours():
    shape = SHAPES[4]
    run = by_conv_impl("native", *shape[-2:])
    assert calls(run, *arrays(shape)) == 3
    assert calls(by_conv_impl("auto", *shape[-2:]), *arrays(shape)) == 3
    assert calls(by_conv_impl("fast", *shape[-2:]), *arrays(shape)) == 0
    assert calls(run, *arrays(shape, jnp.bfloat16)) == 3  # in float32, and rounded
    with jax.enable_x64(True):
        assert calls(run, *arrays(shape, np.float64)) == 0
    with policy.targeting("gpu"):
        assert calls(run, *arrays(shape)) == 0
    assert calls(run, *(a[:0] if a.ndim == 4 and a.shape[0] == 2 else a for a in arrays(shape))) == 0
    assert calls(by_conv_impl("native", 2, 0), *arrays((2, 9, 8, 16, 32, 1, 2, 0))) == 1  # 1x1: products else


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    native._loaded.cache_clear()
    yield
    native._loaded.cache_clear()


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_xla_computes_and_one_line_says_so():
    shape = (1, 3, 4, 5, 6, 3, 1, 1)
    x, kernel, g = arrays(shape)
    for one, other in zip(
        by_conv_impl("auto", 1, 1)(x, kernel, g), by_conv_impl("fast", 1, 1)(x, kernel, g), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match=r"got 'native': no C\+\+ compiler was found \(no-such-compiler\)"):
        models.build("cnn", 10, conv_impl="native")
    with_convolutions = types.SimpleNamespace(first_params=lambda: {"kernel": jnp.zeros((4, 3, 3, 2, 2))})
    without = types.SimpleNamespace(first_params=lambda: {"kernel": jnp.zeros((4, 3, 3))})
    line = describe._faster(Settings(), with_convolutions)
    assert line.endswith("no C++ compiler was found (no-such-compiler): install g++ or clang++")
    assert "\n" not in line
    assert describe._faster(Settings(), without) == ""
    assert describe._faster(dataclasses.replace(Settings(), conv_impl="fast"), with_convolutions) == ""
    with policy.targeting("gpu"):
        assert describe._faster(Settings(), with_convolutions) == ""


def test_nothing_is_compiled_before_a_convolution_is_traced(monkeypatch):
    monkeypatch.setattr(native, "_loaded", lambda: pytest.fail("the kernels were loaded"))
    model = models.build("cnn", 10)
    with pytest.raises(pytest.fail.Exception, match="the kernels were loaded"):
        models.init(model, (7, 9, 2), jax.random.key(0))


def test_no_sanitizer_complains():
    """The driver is compiled again when it or the kernels change."""
    folder = pathlib.Path(__file__).parent
    command = [
        *native._command()[:1],
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-std=c++17",
        "-O1",
        "-march=native",
        *("-isystem", jax.ffi.include_dir(), "-I", str(native.SOURCE.parent)),
    ]
    sources = [folder / "native_driver.cc", native.SOURCE, *sorted(native.SOURCE.parent.glob("*.h"))]
    content = b"\0".join([*(path.read_bytes() for path in sources), repr(command).encode()])
    driver = ROOT / ".cache" / f"native_driver-{hashlib.sha256(content).hexdigest()[:16]}"
    if not driver.exists():
        driver.parent.mkdir(exist_ok=True)
        made = driver.with_name(f"{driver.name}-{os.getpid()}")
        done = subprocess.run([*command, str(sources[0]), "-o", str(made)], capture_output=True, text=True)
        if "cannot find" in done.stderr:
            pytest.skip("this compiler has no sanitizers")
        assert done.returncode == 0, done.stderr
        made.replace(driver)
    done = subprocess.run([driver], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout.split()[0]) > 500
