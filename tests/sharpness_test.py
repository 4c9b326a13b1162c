import json
import pathlib
import re
import shutil

import jax
import jax.numpy as jnp
import matfree.decomp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from problem import compiled

from saddle_jax import curvature, experiment, finished, rundir, sharpness, train
from saddle_jax.checkpoint import Checkpoints
from saddle_jax.cli import __main__ as cli
from saddle_jax.config import Config
from saddle_jax.errors import RunError
from saddle_jax.report.sharpness import plot_bars, plot_densities
from saddle_jax.screen import Screen

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
    found = sharpness.spectrum(quadratic, jnp.zeros(5), [(1.0, symmetric(eigenvalues))], KEY)
    assert found.lambda_max == pytest.approx(max(eigenvalues), abs=1e-10)
    assert found.lambda_min == pytest.approx(min(eigenvalues), abs=1e-10)
    assert found.residual < 1e-10


@pytest.mark.usefixtures("x64")
def test_the_tridiagonal_matrix_has_the_eigenvalues_of_matfrees():
    matrix = symmetric(np.random.default_rng(1).normal(size=60))
    start = np.random.default_rng(2).normal(size=60)
    ours = sharpness.lanczos(lambda v: matrix @ v, start, 12)
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
        found = sharpness.spectrum(quadratic, jnp.zeros(200), [(1.0, matrix)], KEY, iterations=iterations)
        assert np.abs(eigenvalues - found.lambda_max).min() <= found.residual + 1e-10
        assert found.residual < before
        before = found.residual
    assert found.lambda_max == pytest.approx(eigenvalues.max(), abs=1e-8)


def test_a_start_in_a_small_invariant_subspace_ends_early_in_float32():
    matrix = np.diag(np.float32([5, 5, 5, -2, -2, -2]))  # two eigenvalues: two products are enough
    calls = []
    found = sharpness.lanczos(
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
        sharpness.spectrum(quadratic, jnp.zeros(40), [(1.0, matrix)], jax.random.key(i), iterations=2)
        for i in range(300)
    ]
    traces = np.array([e.trace for e in estimates])
    true_error = np.sqrt(2 * 40 / 42 * (np.sum(eigenvalues**2) - eigenvalues.sum() ** 2 / 40))
    assert traces.std() == pytest.approx(true_error, rel=0.15)
    assert np.mean([e.trace_error for e in estimates]) == pytest.approx(true_error, rel=0.1)
    assert traces.mean() == pytest.approx(eigenvalues.sum(), abs=4 * true_error / np.sqrt(300))
    many = sharpness.spectrum(quadratic, jnp.zeros(40), [(1.0, matrix)], KEY, iterations=2, probes=16)
    assert many.trace_error == pytest.approx(true_error / 4, rel=0.2)


def test_what_is_not_finite_stays_so():
    found = sharpness.spectrum(quadratic, jnp.zeros(4), [(1.0, jnp.full((4, 4), jnp.nan))], KEY)
    assert np.isnan(found.lambda_max)
    entry = curvature.stage(3, 1.5, "consensus", found, curve=True)
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
        sharpness.spectrum(quadratic, jnp.zeros(4), [(1.0, jnp.eye(4))], KEY, **options)
    with pytest.raises(ValueError, match="chunks must hold at least one"):
        sharpness.hessian(quadratic, jnp.zeros(4), [])


# ---- networks ----


def small_mlp(params, batch):
    x, y = batch
    hidden = jnp.tanh(x @ params["w"] + params["b"][None])
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(hidden @ params["v"]), y[:, None], axis=1))


def mlp_problem():
    random = np.random.default_rng(5)
    params = {"w": random.normal(size=(6, 4)), "b": random.normal(size=4), "v": random.normal(size=(4, 3))}
    batch = random.normal(size=(20, 6)), random.integers(0, 3, 20)
    flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, params))
    dense = jax.hessian(lambda p: small_mlp(unravel(p), batch))(flat)
    return params, batch, np.asarray(dense)


@pytest.mark.usefixtures("x64")
def test_a_networks_spectrum_is_that_of_its_dense_hessian():
    params, batch, dense = mlp_problem()
    eigenvalues = np.linalg.eigvalsh(dense)
    size = len(dense)
    found = sharpness.spectrum(small_mlp, params, [(1.0, batch)], KEY, iterations=size, probes=4)
    assert eigenvalues[0] < -0.1
    assert found.lambda_max == pytest.approx(eigenvalues[-1], abs=1e-9)
    assert found.lambda_min == pytest.approx(eigenvalues[0], abs=1e-9)
    assert found.trace == pytest.approx(eigenvalues.sum(), abs=3 * found.trace_error)
    # k nodes integrate polynomials up to degree 2k - 1 exactly: sum_i w_i theta_i^m = v'H^m v
    product, _ = sharpness.hessian(small_mlp, params, [(1.0, batch)])
    start = np.random.default_rng(6).normal(size=size)
    nodes, weights, _ = sharpness.lanczos(product, start, 4)
    v = start / np.linalg.norm(start)
    for power in range(8):
        exact = v @ np.linalg.matrix_power(dense, power) @ v
        assert weights @ nodes**power == pytest.approx(exact, abs=1e-12)


@pytest.mark.usefixtures("x64")
def test_the_density_has_the_moments_of_the_spectrum():
    eigenvalues = np.concatenate([np.full(90, 0.1), [-1.0, 2.0, 3.0, 5.0]])
    found = sharpness.spectrum(quadratic, jnp.zeros(94), [(1.0, symmetric(eigenvalues))], KEY, probes=200)
    x, y = sharpness.density(found)
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
    product, size = sharpness.hessian(small_mlp, params, chunks)
    assert size == len(dense)
    np.testing.assert_allclose(np.stack([product(row) for row in np.eye(size)]), dense, atol=1e-12)


@pytest.fixture(scope="module")
def parts():
    """The parts of a run with convolutions, and first models."""
    made = experiment.build(Config(model="cnn", agents=4, alpha=0.5))
    return made, finished.choose(made.first_params(), None)


def test_a_convolutional_networks_products_on_training_chunks_are_those_of_the_whole(parts, monkeypatch):
    made, params = parts
    monkeypatch.setattr(curvature, "_CHUNK", 16)
    chunks = curvature.training_chunks(made, 40)  # two whole chunks, and half of one
    assert [weight for weight, _ in chunks] == [0.4, 0.4, 0.2]
    whole = {
        name: jnp.concatenate([batch[name][batch["mask"] == 1] for _, batch in chunks])
        for name in ("images", "labels")
    }
    assert len(whole["labels"]) == 40
    flat, unravel = ravel_pytree(params)

    def loss(vector):  # independent of the package's loss: by hand from the logits
        logits = made.model.clone(lowering="plain").apply({"params": unravel(vector)}, whole["images"])
        picked = logits[jnp.arange(40), whole["labels"]]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - picked)

    product, size = sharpness.hessian(curvature.loss_of(made, "plain"), params, chunks)
    assert size == flat.size
    column_of = compiled(jax.grad(lambda vector, column: jax.grad(loss)(vector)[column]))  # of the dense one
    for column in np.random.default_rng(0).choice(size, 4, replace=False):
        expected, unit = column_of(flat, column), np.zeros(size, np.float32)
        unit[column] = 1
        np.testing.assert_allclose(product(unit), expected, atol=2e-4 * np.abs(expected).max() + 1e-6)


def test_the_images_are_training_images_of_the_agents_asked_for(parts):
    made, _ = parts
    everyone = curvature.training_chunks(made, 10**6)
    held = int(made.partition.sizes.sum())
    assert sum(int(batch["mask"].sum()) for _, batch in everyone) == held
    counts = sum(np.bincount(b["labels"][b["mask"] == 1], minlength=10) for _, b in everyone)
    np.testing.assert_array_equal(counts, made.partition.class_counts.sum(axis=0))
    own = curvature.training_chunks(made, 10**6, agent=2)
    counts = sum(np.bincount(b["labels"][b["mask"] == 1], minlength=10) for _, b in own)
    np.testing.assert_array_equal(counts, made.partition.class_counts[2])
    first, again = (curvature.training_chunks(made, 50)[0][1]["images"] for _ in range(2))
    np.testing.assert_array_equal(first, again)


# ---- runs ----

SMALL = Config(
    agents=3,
    model="logistic",
    epochs=4,
    alpha=1.0,
    learning_rate=0.05,
    eval_every_epochs=2,
    keep_checkpoints=5,
    sharpness_every_epochs=2,
    sharpness_images=64,
)


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    train.train(SMALL, folder / "one", Screen(quiet=True))
    return folder / "one"


@pytest.fixture
def trained(trained_once, tmp_path):
    """A copy for each test: what one test writes into the folder, no other meets."""
    return pathlib.Path(shutil.copytree(trained_once, tmp_path / "runs" / "one"))


def dense_extremes(workdir, step, images, agent=None, own=False):
    """By an explicit Hessian of softmax regression, in NumPy: mean of (diag p - p p') kron (x x')."""
    made = finished.build_again(workdir)
    model = finished.choose(finished.open_stage(workdir, made, step), agent)
    kernel, bias = (np.asarray(model["linear"][name], np.float64) for name in ("kernel", "bias"))
    chunks = curvature.training_chunks(made, images, agent if own else None)
    x = np.concatenate([np.asarray(b["images"], np.float64)[np.asarray(b["mask"]) == 1] for _, b in chunks])
    x = x.reshape(len(x), -1)
    p = np.exp(x @ kernel + bias)
    p /= p.sum(axis=1, keepdims=True)
    inner = np.stack([np.diag(row) - np.outer(row, row) for row in p]).reshape(len(x), -1)
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    outer = (x[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    blocks = (inner.T @ outer / len(x)).reshape(10, 10, 65, 65)
    eigenvalues = np.linalg.eigvalsh(blocks.transpose(0, 2, 1, 3).reshape(650, 650))
    return eigenvalues[-1], eigenvalues[0], eigenvalues.sum()


def test_training_writes_down_the_sharpness_of_the_consensus_model(trained):
    logged = [r for r in rundir.read_metrics(trained) if "lambda_max" in r]
    assert [r["epoch"] for r in logged] == [2, 4]
    assert set(logged[0]) == {"step", "epoch", "lambda_max", "lambda_min", "trace"}
    largest, smallest, _ = dense_extremes(trained, logged[0]["step"], 64)
    assert logged[0]["lambda_max"] == pytest.approx(largest, rel=1e-4)
    assert logged[0]["lambda_min"] == pytest.approx(smallest, abs=1e-4)


def test_the_command_measures_what_is_missing_and_merges(trained, capsys):
    command = ["saddle", "sharpness", str(trained), "--images=64"]
    assert cli.main([*command, "--epochs=4"]) == 0
    assert "64 images of the agents' training data together, not augmented" in capsys.readouterr().out
    content = json.loads((trained / "sharpness.json").read_text())
    assert {k: content[k] for k in ("data", "images", "iterations")} == {
        "data": "train",
        "images": 64,
        "iterations": 30,
    }
    (first,) = content["stages"]
    assert cli.main([*command, "--agents=0,2"]) == 0  # all epochs; what is there is not made again
    assert "[1 of 5]" in capsys.readouterr().out
    content = json.loads((trained / "sharpness.json").read_text())
    assert [(s["epoch"], s["whose"]) for s in content["stages"]] == [
        (epoch, whose) for epoch in (2, 4) for whose in ("consensus", 0, 2)
    ]
    assert content["stages"][3] == first
    for stage in content["stages"]:
        agent = None if stage["whose"] == "consensus" else stage["whose"]
        largest, smallest, trace = dense_extremes(trained, stage["step"], 64, agent)
        assert stage["lambda_max"] == pytest.approx(largest, rel=1e-4)
        assert stage["lambda_min"] == pytest.approx(smallest, abs=1e-4)
        assert stage["trace"] == pytest.approx(trace, abs=4 * stage["trace_error"])
        assert stage["density"] is None
    assert cli.main([*command, "--agents=0"]) == 0
    printed = capsys.readouterr().out
    assert "[1 of" not in printed
    assert re.search(rf"one +4 +agent 0 +{content['stages'][4]['lambda_max']:.4g}", printed)
    assert "agent 2" not in printed


def test_agents_on_their_own_data_and_densities(trained, capsys):
    command = ["saddle", "sharpness", str(trained), "--images=1000", "--epochs=4", "--agents=all"]
    assert cli.main(["saddle", "sharpness", str(trained), "--images=64", "--epochs=4"]) == 0
    assert "it is replaced" not in capsys.readouterr().out
    assert cli.main([*command, "--data=own", "--density", "--probes=2"]) == 0
    assert "measured with other settings: it is replaced" in capsys.readouterr().out
    content = json.loads((trained / "sharpness.json").read_text())
    assert (content["data"], content["images"], len(content["stages"])) == ("own", 1000, 4)
    largest, _, _ = dense_extremes(trained, content["stages"][2]["step"], 1000, agent=1, own=True)
    assert content["stages"][2]["lambda_max"] == pytest.approx(largest, rel=1e-4)
    curve = content["stages"][0]["density"]
    assert np.trapezoid(curve["y"], curve["x"]) == pytest.approx(1, abs=1e-3)
    assert (trained / "density.png").read_bytes().startswith(b"\x89PNG")


def test_several_runs_become_a_picture(trained, tmp_path, capsys):
    other = tmp_path / "two $x$"
    changed = Config(**{**SMALL.to_json(), "method": "qgm", "sharpness_every_epochs": 0, "epochs": 2})
    train.train(changed, other, Screen(quiet=True))
    picture = tmp_path / "bars.png"
    assert (
        cli.main(["saddle", "sharpness", str(trained), str(other), "--images=64", f"--output={picture}"]) == 0
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.count("two $x$") >= 2
    (trained / "sharpness.json").unlink()
    train.train(
        Config(**{**SMALL.to_json(), "model": "mlp", "epochs": 1}), tmp_path / "mlp", Screen(quiet=True)
    )
    assert cli.main(["saddle", "sharpness", str(trained), str(tmp_path / "mlp")]) == 2
    assert "runs must have the same model, got logistic in" in capsys.readouterr().err
    assert not (trained / "sharpness.json").exists()


def test_bars_stand_at_their_stages(monkeypatch, tmp_path):
    from matplotlib.axes import Axes

    drawn = []
    monkeypatch.setattr(Axes, "bar", lambda self, x, height, width, label: drawn.append((x, height, label)))
    stages = [{"epoch": e, "lambda_max": v, "density": None} for e, v in ((5, 1.0), (7.5, 2.0), (10, None))]
    monkeypatch.setattr("matplotlib.figure.Figure.legend", lambda self, **options: None)
    plot_bars({"a": stages, "b": stages[1:2]}, tmp_path / "x.png")
    assert drawn == [([-0.2, 0.8], [1.0, 2.0], "a"), ([1.2], [2.0], "b")]
    plot_densities({"a": stages}, tmp_path / "empty.png")


BAD = {
    "epoch": (["--epochs=3"], r"epochs must be among those with a checkpoint in .*one, 2, 4, got 3"),
    "epochs": (["--epochs=x"], "epochs must be all or numbers, got x"),
    "agent": (["--agents=0,3"], "agents must be none, all, or of 0 to 2, got 0,3"),
    "images": (["--images=0"], "images"),
    "iterations": (["--iterations=1"], "iterations"),
    "data": (["--data=test"], "data"),
    "output": (["--output=bars.pdf"], r"output must end in .png, got 'bars.pdf'"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_one_line(case, trained, capsys):
    arguments, message = BAD[case]
    assert cli.main(["saddle", "sharpness", str(trained), *arguments]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1
    assert not (trained / "sharpness.json").exists()


def test_folders_that_cannot_be_used(trained, tmp_path, capsys):
    assert cli.main(["saddle", "sharpness"]) == 2
    assert "arguments must be DIR... and options, got nothing" in capsys.readouterr().err
    assert cli.main(["saddle", "sharpness", str(tmp_path)]) == 2
    assert "holds no run: config.json is missing" in capsys.readouterr().err
    (tmp_path / "config.json").write_text((trained / "config.json").read_text())
    assert cli.main(["saddle", "sharpness", str(tmp_path)]) == 2
    assert "has no whole checkpoint: train it first" in capsys.readouterr().err
    (tmp_path / "checkpoints" / "00000004").mkdir(parents=True)
    assert cli.main(["saddle", "sharpness", str(tmp_path)]) == 2
    assert "00000004 cannot be used (its seal is missing or unreadable)" in capsys.readouterr().err
    (trained / "sharpness.json").write_text("[1")
    with pytest.raises(RunError, match=r"cannot be read .* remove it to measure again"):
        curvature.read_stages(trained)
    (trained / "sharpness.json").write_text('{"stages": [{"step": 1, "epoch": 1, "lambda_max": 1}]}')
    with pytest.raises(RunError, match=r"cannot be read \('density, whose'\): remove it"):
        curvature.read_stages(trained)


def test_a_run_that_ends_twice_has_its_last_sharpness_once(trained, tmp_path):
    workdir = tmp_path / "again"
    whole = train.train(SMALL, workdir, Screen(quiet=True))
    (workdir / "result.json").unlink()  # as if it had been killed while writing it
    again = train.train(SMALL, workdir, Screen(quiet=True))
    assert again["params_sha256"] == whole["params_sha256"]
    assert rundir.read_metrics(workdir) == rundir.read_metrics(trained)
    assert len(Checkpoints(workdir, 5).steps()) == 2
