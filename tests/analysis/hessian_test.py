import functools

import jax
import jax.numpy as jnp
import matfree.decomp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from problem import compiled

from saddle_jax.analysis import hessian, sharpness
from saddle_jax.settings.settings import Settings
from saddle_jax.training import build, reopen

KEY = jax.random.key(3)


def symmetric(eigenvalues, seed=0):
    eigenvalues = np.asarray(eigenvalues, float)
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(eigenvalues),) * 2))
    return rotation @ np.diag(eigenvalues) @ rotation.T


def quadratic(params, batch):
    return params @ batch @ params / 2


# ---- Lanczos ----


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("eigenvalues", [[-10, -1, 0.5, 2, 3], [-3, -2, -1.5, -1, -0.25], [1, 2, 3, 4, 5]])
def test_the_largest_eigenvalue_is_the_signed_one_not_the_one_of_largest_modulus(eigenvalues):
    found = hessian.spectrum(quadratic, jnp.zeros(5), [(1.0, symmetric(eigenvalues))], KEY)
    assert found.lambda_max == pytest.approx(max(eigenvalues), abs=1e-10)
    assert found.lambda_min == pytest.approx(min(eigenvalues), abs=1e-10)
    assert found.residual < 1e-10


@pytest.mark.usefixtures("x64")
def test_the_tridiagonal_matrix_has_the_eigenvalues_of_matfrees():
    matrix = symmetric(np.random.default_rng(1).normal(size=60))
    start = np.random.default_rng(2).normal(size=60)
    ours = hessian.lanczos(lambda v: matrix @ v, start, 12)
    theirs = matfree.decomp.tridiag_sym(12, reortho="full")(lambda v: matrix @ v, jnp.asarray(start))
    nodes, vectors = np.linalg.eigh(theirs.J_small)
    np.testing.assert_allclose(ours.nodes, nodes, atol=1e-10)
    np.testing.assert_allclose(ours.weights, vectors[0] ** 2, atol=1e-10)
    beta = np.linalg.norm(theirs.residual)
    np.testing.assert_allclose(ours.residuals, np.abs(beta * vectors[-1]), atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_an_eigenvalue_is_within_the_residual_and_it_falls_with_iterations():
    eigenvalues = np.random.default_rng(4).normal(size=200) ** 3
    matrix, before = symmetric(eigenvalues), np.inf
    for iterations in (5, 15, 60):
        found = hessian.spectrum(quadratic, jnp.zeros(200), [(1.0, matrix)], KEY, iterations=iterations)
        assert np.abs(eigenvalues - found.lambda_max).min() <= found.residual + 1e-10
        assert found.residual < before
        before = found.residual
    assert found.lambda_max == pytest.approx(eigenvalues.max(), abs=1e-8)


def test_a_start_in_a_small_invariant_subspace_ends_early_in_float32():
    matrix = np.diag(np.float32([5, 5, 5, -2, -2, -2]))  # two eigenvalues: two products are enough
    calls = []
    found = hessian.lanczos(
        lambda v: (calls.append(1), matrix @ v)[1], np.float32([1, 2, 3, 4, 5, 6]), iterations=6
    )
    assert len(calls) == 2
    np.testing.assert_allclose(found.nodes, [-2, 5], rtol=1e-6)
    np.testing.assert_allclose(found.weights, [77 / 91, 14 / 91], rtol=1e-5)


@pytest.mark.usefixtures("x64")
def test_the_trace_is_without_bias_and_its_error_is_what_it_says():
    eigenvalues = np.linspace(-1, 3, 40)
    matrix = symmetric(eigenvalues)
    estimates = [
        hessian.spectrum(quadratic, jnp.zeros(40), [(1.0, matrix)], jax.random.key(i), iterations=2)
        for i in range(300)
    ]
    traces = np.array([e.trace for e in estimates])
    true_error = np.sqrt(2 * 40 / 42 * (np.sum(eigenvalues**2) - eigenvalues.sum() ** 2 / 40))
    assert traces.std() == pytest.approx(true_error, rel=0.15)
    assert np.mean([e.trace_error for e in estimates]) == pytest.approx(true_error, rel=0.1)
    assert traces.mean() == pytest.approx(eigenvalues.sum(), abs=4 * true_error / np.sqrt(300))
    many = hessian.spectrum(quadratic, jnp.zeros(40), [(1.0, matrix)], KEY, iterations=2, probes=16)
    assert many.trace_error == pytest.approx(true_error / 4, rel=0.2)


def test_what_is_not_finite_stays_so():
    found = hessian.spectrum(quadratic, jnp.zeros(4), [(1.0, jnp.full((4, 4), jnp.nan))], KEY)
    assert np.isnan(found.lambda_max)
    entry = sharpness.stage(3, 1.5, "consensus", found, curve=True)
    assert entry["lambda_max"] is entry["density"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 1}, "iterations must be an integer >= 2, got 1"),
        ({"probes": 0}, "probes must be an integer >= 1, got 0"),
    ],
)
def test_bad_arguments_are_named_with_their_value(options, message):
    with pytest.raises(ValueError, match=message):
        hessian.spectrum(quadratic, jnp.zeros(4), [(1.0, jnp.eye(4))], KEY, **options)
    with pytest.raises(ValueError, match="chunks must hold at least one"):
        hessian.hessian(quadratic, jnp.zeros(4), [])


# ---- networks ----


def small_mlp(params, batch):
    x, y = batch
    hidden = jnp.tanh(x @ params["w"] + params["b"][None])
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(hidden @ params["v"]), y[:, None], axis=1))


@functools.cache
def mlp_problem():
    random = np.random.default_rng(5)
    params = {"w": random.normal(size=(6, 4)), "b": random.normal(size=4), "v": random.normal(size=(4, 3))}
    batch = random.normal(size=(20, 6)), random.integers(0, 3, 20)
    flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, params))
    dense = compiled(jax.hessian(lambda p: small_mlp(unravel(p), batch)))(flat)
    return params, batch, np.asarray(dense)


@pytest.mark.usefixtures("x64")
def test_a_networks_spectrum_is_that_of_its_dense_hessian():
    params, batch, dense = mlp_problem()
    eigenvalues = np.linalg.eigvalsh(dense)
    size = len(dense)
    found = hessian.spectrum(small_mlp, params, [(1.0, batch)], KEY, iterations=size, probes=4)
    assert eigenvalues[0] < -0.1
    assert found.lambda_max == pytest.approx(eigenvalues[-1], abs=1e-9)
    assert found.lambda_min == pytest.approx(eigenvalues[0], abs=1e-9)
    assert found.trace == pytest.approx(eigenvalues.sum(), abs=3 * found.trace_error)
    # k nodes integrate polynomials up to degree 2k - 1 exactly: sum_i w_i theta_i^m = v'H^m v
    product, _ = hessian.hessian(small_mlp, params, [(1.0, batch)])
    start = np.random.default_rng(6).normal(size=size)
    nodes, weights, _ = hessian.lanczos(product, start, 4)
    v = start / np.linalg.norm(start)
    for power in range(8):
        exact = v @ np.linalg.matrix_power(dense, power) @ v
        assert weights @ nodes**power == pytest.approx(exact, abs=1e-12)


@pytest.mark.usefixtures("x64")
def test_the_density_has_the_moments_of_the_spectrum():
    eigenvalues = np.concatenate([np.full(90, 0.1), [-1.0, 2.0, 3.0, 5.0]])
    found = hessian.spectrum(quadratic, jnp.zeros(94), [(1.0, symmetric(eigenvalues))], KEY, probes=200)
    x, y = hessian.density(found)
    width = 0.01 * 6  # of the Gaussians; it adds to the variance
    exact = [1, np.mean(eigenvalues), np.mean(eigenvalues**2) + width**2]
    # n v'Av has the variance 2n / (n+2) (tr(A^2) - tr(A)^2 / n): three standard errors of A = H and A = H^2
    spreads = [np.sum(a**2) - np.sum(a) ** 2 / 94 for a in (eigenvalues, eigenvalues**2)]
    errors = [1e-3, *(3 * np.sqrt(2 * 94 / 96 * spread / 200) / 94 for spread in spreads)]
    for power in range(3):
        moment = np.trapezoid(y * x**power, x)
        assert moment == pytest.approx(exact[power], abs=errors[power])
    assert x[np.argmax(y)] == pytest.approx(0.1, abs=0.02)


@pytest.mark.usefixtures("x64")
def test_chunks_of_unequal_size_give_the_whole():
    params, (x, y), dense = mlp_problem()
    chunks = [(n / 20, (x[a : a + n], y[a : a + n])) for a, n in ((0, 8), (8, 8), (16, 4))]
    product, size = hessian.hessian(small_mlp, params, chunks)
    assert size == len(dense)
    np.testing.assert_allclose(np.stack([product(row) for row in np.eye(size)]), dense, atol=1e-12)


@pytest.fixture(scope="module")
def parts():
    """The parts of a run with convolutions, and first models."""
    made = build.build(Settings(model="cnn", agents=4, partition="dirichlet(0.5)"))
    return made, reopen.choose(made.first_params(), None)


def test_a_convolutional_networks_products_on_training_chunks_are_those_of_the_whole(parts, monkeypatch):
    made, params = parts
    monkeypatch.setattr(sharpness, "_CHUNK", 16)
    chunks = sharpness.training_chunks(made, 40)  # two whole chunks, and half of one
    assert [weight for weight, _ in chunks] == [0.4, 0.4, 0.2]
    whole = {
        name: jnp.concatenate([batch[name][batch["mask"] == 1] for _, batch in chunks])
        for name in ("inputs", "targets")
    }
    assert len(whole["targets"]) == 40
    flat, unravel = ravel_pytree(params)

    def loss(vector):  # independent of the package's loss: by hand from the logits
        logits = made.network_of("plain").apply(unravel(vector), whole["inputs"])
        picked = logits[jnp.arange(40), whole["targets"]]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - picked)

    product, size = hessian.hessian(sharpness.loss_of(made, "plain"), params, chunks)
    assert size == flat.size

    @compiled
    def curvature(u, v):  # u'Hv, forward over forward
        return jax.jvp(lambda x: jax.jvp(loss, (x,), (v,))[1], (flat,), (u,))[1]

    random = np.random.default_rng(0)
    for _ in range(4):
        v = random.normal(size=size).astype(np.float32)
        image = product(v)
        for u in (v, image, random.normal(size=size).astype(np.float32)):
            bound = 2e-4 * float(np.linalg.norm(u) * np.linalg.norm(image))
            assert u @ image == pytest.approx(float(curvature(u, v)), abs=bound)


def test_the_images_are_training_images_of_the_agents_asked_for(parts):
    made, _ = parts
    everyone = sharpness.training_chunks(made, 10**6)
    held = int(made.partition.sizes.sum())
    assert sum(int(batch["mask"].sum()) for _, batch in everyone) == held
    counts = sum(np.bincount(b["targets"][b["mask"] == 1], minlength=10) for _, b in everyone)
    np.testing.assert_array_equal(counts, made.partition.class_counts.sum(axis=0))
    own = sharpness.training_chunks(made, 10**6, agent=2)
    counts = sum(np.bincount(b["targets"][b["mask"] == 1], minlength=10) for _, b in own)
    np.testing.assert_array_equal(counts, made.partition.class_counts[2])
    first, again = (sharpness.training_chunks(made, 50)[0][1]["inputs"] for _ in range(2))
    np.testing.assert_array_equal(first, again)
