"""What of the theorem a run keeps, and `saddle reproduce theory`."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest
import scipy.sparse.linalg
from theory_test import BY_HAND, point

import saddle_jax as sj
from saddle_jax.cli import __main__ as cli
from saddle_jax.papers.saddle.theory import measured, testbed
from saddle_jax.papers.saddle.theory.bound import bound, conditions, mixing_lambda
from saddle_jax.settings.settings import Settings
from saddle_jax.training.build import Trial, build

SMALL = Settings(
    agents=3,
    model="logistic",
    epochs=1,
    batch_size=16,
    subset=150,
    partition="dirichlet(0.5)",
    eval_agents="never",
    method="q_saddle(gamma=0.5)",
)


@pytest.fixture(scope="module")
def small():
    """A run's parts, its agents' models, and per-sample gradients at the consensus model by hand."""
    experiment = build(dataclasses.replace(SMALL, partition="quantity_skew(3.0)"))
    random = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: x + 0.1 * random.normal(size=x.shape).astype(np.float32), experiment.first_params()
    )
    return experiment, params


def flat(params):
    """Kernel and bias of the one layer, as one matrix [inputs + 1, classes]."""
    bias, kernel = sorted(jax.tree.leaves(params), key=lambda leaf: leaf.ndim)
    return np.concatenate([np.asarray(kernel, np.float64), np.asarray(bias, np.float64)[None]])


def softmax_regression(experiment, weights, samples):
    """Inputs [m, d], probabilities [m, C] and per-sample gradients [m, d, C], in float64."""
    images = np.asarray(experiment.dataset.recipe.for_evaluation(experiment.dataset.train["inputs"][samples]))
    x = np.concatenate([images.reshape(len(samples), -1), np.ones((len(samples), 1))], axis=1).astype(
        np.float64
    )
    scores = np.exp(x @ weights - (x @ weights).max(axis=1, keepdims=True))
    p = scores / scores.sum(axis=1, keepdims=True)
    target = np.eye(p.shape[1])[experiment.dataset.train["targets"][samples]]
    return x, p, x[:, :, None] * (p - target)[:, None, :]


def test_estimates_are_those_of_a_computation_by_hand(small):
    experiment, params = small
    partition = experiment.partition
    assert len(set(partition.sizes.tolist())) > 1  # agents with unequal shares
    found = measured.estimate(experiment, params, iterations=15)
    weights = flat(jax.tree.map(lambda x: x.mean(axis=0), params))
    means, curvatures, losses = [], [], []
    for row, size in zip(partition.samples, partition.sizes, strict=True):
        x, p, gradients = softmax_regression(experiment, weights, row[:size])
        means.append(gradients.mean(axis=0))
        blocks = p[:, :, None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None, :]  # of the logits
        hessian = np.block(
            [[x.T @ (x * block[:, None]) for block in row] for row in blocks.transpose(1, 2, 0)]
        )
        curvatures.append(scipy.sparse.linalg.eigsh(hessian / size, k=1)[0][0])
        first = flat(jax.tree.map(lambda x: x[0], experiment.first_params()))
        _, p, _ = softmax_regression(experiment, first, row[:size])
        losses.append(-np.log(p[np.arange(size), experiment.dataset.train["targets"][row[:size]]]).mean())
    spread = np.stack(means) - np.mean(means, axis=0)
    assert found.delta == pytest.approx(np.sqrt(np.mean(np.sum(spread**2, axis=(1, 2)))), rel=1e-4)
    np.testing.assert_allclose(found.L, max(curvatures), rtol=5e-3)
    assert 0 < found.L_along_sam <= found.L
    assert found.gap == pytest.approx(np.mean(losses), rel=1e-4)
    assert found.lambda_ == mixing_lambda(sj.ring(3), 0.5)
    assert found.samples == partition.sizes.max()
    assert found.sigma < found.sigma_worst


@pytest.mark.parametrize("samples", [0, 32])
def test_sigma_is_the_expected_square_over_random_batches(samples, monkeypatch):
    """Sampling theory: B of M, none twice, gives 1/B (M - B) / (M - 1) of the per-sample variance."""
    experiment = build(SMALL)
    size = 48  # three whole batches
    partition = experiment.partition
    cut = dataclasses.replace(partition, samples=partition.samples[:, :size], sizes=np.full(3, size))
    monkeypatch.setattr(Trial, "partition", cut)
    experiment = dataclasses.replace(experiment)  # without the partition that it has cached
    random = np.random.default_rng(1)
    first = experiment.first_params()
    params = jax.tree.map(lambda x: x + 0.1 * random.normal(size=x.shape).astype(np.float32), first)
    monkeypatch.setattr(Trial, "first_params", lambda self: params)  # compiled anew at every call
    weights = flat(jax.tree.map(lambda x: x.mean(axis=0), params))
    expected = []
    for row in cut.samples:
        _, _, gradients = softmax_regression(experiment, weights, row)
        variance = np.mean(np.sum((gradients - gradients.mean(axis=0)) ** 2, axis=(1, 2)))
        expected.append(variance / 16 * (size - 16) / (size - 1))
    found = []
    for seed in range(12):  # other seeds choose other batches
        other = dataclasses.replace(experiment, config=dataclasses.replace(SMALL, seed=seed))
        found.append(measured.estimate(other, params, samples=samples, iterations=1).sigma ** 2)
    error = np.std(found, ddof=1) / np.sqrt(12)
    assert error < 0.1 * np.mean(expected)
    assert abs(np.mean(found) - np.mean(expected)) < 3 * error


def test_what_lies_outside_of_the_theorem_is_told():
    for method in ("q_saddle", "qgm"):
        inside = Settings(method=f"{method}(nesterov=False, weight_decay=0.0)", schedule="constant")
        assert measured.outside_the_theorem(inside) == []
    told = measured.outside_the_theorem(Settings(method="n_saddle(compressor=sign)"))
    words = ("method n_saddle", "Nesterov", "weight decay 0.0001", "schedule (step)", "compressor sign")
    assert len(told) == 5
    assert all(word in text for word, text in zip(words, told, strict=True))


# The command


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("theory") / "run"
    settings = [f"--{name}={value}" for name, value in SMALL.to_json().items() if name != "data_dir"]
    assert cli.main(["saddle", "train", "--quiet", f"--workdir={workdir}", *settings]) == 0
    return workdir


def test_the_command_prints_terms_and_conditions(capsys):
    flags = ["--L=2", "--sigma=3", "--delta=1", "--gap=10", "--eta=0.1", "--beta=0.5", "--rho=0.5"]
    flags += ["--agents=4", "--topology=ring", "--steps=100"]
    assert cli.main(["saddle", "reproduce", "theory", *flags]) == 0
    out = capsys.readouterr().out
    assert re.search(r"noise, mean +6 eta~ L / n +sigma\^2 +5\.4 ", out)
    assert re.search(r"eta <= lambda / \(7 L\) +theorem +0\.1 +0\.06349 +violated by a factor of 1\.58", out)
    assert cli.main(["saddle", "reproduce", "theory", *flags, "--mu=0.25", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    lambda_ = 1 - 1 / 9
    setting = dataclasses.replace(BY_HAND, lambda_=lambda_, mu=0.25)
    assert content["bound"]["total"] == pytest.approx(bound(setting).total)
    assert [c["holds"] for c in content["conditions"]] == [c.holds for c in conditions(setting)]
    assert (
        cli.main(["saddle", "reproduce", "theory", "--json"]) == 0
    )  # by default, the largest eta that is allowed
    content = json.loads(capsys.readouterr().out)
    assert all(c["holds"] for c in content["conditions"])
    assert content["conditions"][2]["limit"] is None  # beta = 0


def test_the_command_measures_and_draws(capsys, tmp_path, monkeypatch):
    short = [point(2, 1.0, 0.1), point(4, 0.6, 0.02)]
    monkeypatch.setattr(testbed, "sweep", lambda: short)
    command = [
        "reproduce",
        "theory",
        "--testbed",
        "--agents=2",
        "--steps=50",
        f"--workdir={tmp_path / 'out'}",
    ]
    assert cli.main(["saddle", *command]) == 0
    out = capsys.readouterr().out
    assert re.search(r"Q-SADDLe on quadratics with these constants: .* the bound is [0-9.]+\n", out)
    assert f"slope of log(measured) over log(n): {testbed.fit_slope(short).value:.3f}" in out
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["theory.png"]
    assert (tmp_path / "out" / "theory.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "taken" / "theory.png").mkdir(parents=True)
    assert cli.main(["saddle", *command[:-1], f"--workdir={tmp_path / 'taken'}"]) == 2
    assert "theory.png cannot be written" in capsys.readouterr().err


def test_the_command_shows_the_corollary_by_graph_and_momentum(capsys, tmp_path, monkeypatch):
    def of_steps(steps, mean):
        found = point(4, mean, 0.01)
        return found._replace(setting=dataclasses.replace(found.setting, steps=steps))

    last = of_steps(400, 0.5)
    case = testbed.Case("ring", 0.9, (of_steps(100, 1.0), last), (last, point(16, 0.25, 0.01)))
    monkeypatch.setattr(testbed, "measure_cases", lambda report: [report(case) or case])
    assert cli.main(["saddle", "reproduce", "theory", "--corollary", f"--workdir={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert "measured: ring, beta 0.9" in shown
    assert re.search(
        r"^ring +\S+ +0\.9 +-0\.500 \+- \S+ +-0\.500 \+- \S+ +-0\.500 ", shown, flags=re.MULTILINE
    )
    assert (tmp_path / "corollary.png").read_bytes().startswith(b"\x89PNG")
    assert cli.main(["saddle", "reproduce", "theory", "--corollary", "--json"]) == 0
    (content,) = json.loads(capsys.readouterr().out)["corollary"]
    assert [one["steps"] for one in content["points"]] == [100, 400, BY_HAND.steps]
    assert content["slope_over_steps"]["value"] == pytest.approx(-0.5)
    assert cli.main(["saddle", "reproduce", "theory", "--corollary", "--beta=0.5"]) == 2
    assert "beta must not be given with --corollary" in capsys.readouterr().err


def test_what_is_not_finite_is_null_in_json(capsys, monkeypatch):
    diverged = [point(2, 1.0, 0.1), point(4, float("nan"), 0.1)]
    monkeypatch.setattr(testbed, "sweep", lambda: diverged)
    assert cli.main(["saddle", "reproduce", "theory", "--testbed", "--agents=2", "--steps=50", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [p["mean"] for p in content["speedup"]] == [1.0, None]
    assert content["slope"]["value"] is None


def test_the_command_on_a_run(run, capsys):
    assert cli.main(["saddle", "reproduce", "theory", str(run), "--samples=32"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"beta / \(1 - beta\) <= lambda / 21 +proof only +9 ", out)
    assert "outside of the theorem: Nesterov" in out
    assert cli.main(["saddle", "reproduce", "theory", str(run), "--samples=0", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    config = SMALL
    found = measured.Estimates(**content["estimates"])
    assert content["setting"] == dataclasses.asdict(found.setting(config, content["step"]))
    assert content["setting"]["mu"] == 0.9
    assert found.samples == 50


MISTAKES = {
    "no run": (["/nowhere"], "/nowhere holds no run: config.json is missing"),
    "two": (["a", "b"], r"arguments must be \[DIR\] and options, got a b"),
    "both": (["a", "--eta=0.1"], "eta must not be given with DIR"),
    "samples": (["--samples=3"], "samples must be given with a run, DIR"),
    "value": (["--beta=1"], "beta must be a number >= 0 and < 1, got 1.0"),
    "text": (["--L=big"], "flag --L=big"),
    "huge": (["--L=1e200"], r"L must be a number > 0 and <= 1e\+30, got 1e\+200"),
    "graph": (["--topology=isolated"], "lambda must be a number > 0 and <= 1, got 0.0"),
    "workdir": (["--workdir=x"], "workdir must be given with --testbed"),
    "folder": (["--testbed", "--workdir=/dev/null/x"], "workdir must be a folder .* got /dev/null/x"),
    "one agent": (["--testbed", "--agents=1"], "delta must be 0 for one agent, got 0.5"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_line(case, capsys, tmp_path, monkeypatch):
    arguments, message = MISTAKES[case]
    monkeypatch.chdir(tmp_path)
    assert cli.main(["saddle", "reproduce", "theory", *arguments]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_run_that_cannot_be_measured_is_a_mistake(run, capsys, tmp_path):
    assert cli.main(["saddle", "reproduce", "theory", str(run), "--samples=20"]) == 2
    assert "samples must be 0 or at least two batches, 32, got 20" in capsys.readouterr().err
    (tmp_path / "config.json").write_bytes((run / "config.json").read_bytes())
    assert cli.main(["saddle", "reproduce", "theory", str(tmp_path)]) == 2
    assert "has no whole checkpoint: train it first" in capsys.readouterr().err
    alone = build(dataclasses.replace(SMALL, topology="isolated"))
    with pytest.raises(ValueError, match=r"the theorem needs agents that mix, got isolated\(3\)"):
        measured.estimate(alone, alone.first_params())
