"""Convex tasks through the whole machine: their metrics, whole shares, resume, trials, verbs, curvature."""

import csv
import dataclasses
import json

import jax
import numpy as np
import pytest
from dying import Deadly, Killed

from saddle_jax.base.checks import ArgumentError
from saddle_jax.cli import __main__ as cli
from saddle_jax.data import convex
from saddle_jax.runs import run_folder
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop, reopen
from saddle_jax.training.build import build
from saddle_jax.training.progress import Screen

QUIET = Screen(quiet=True)
SMALL = Settings(
    dataset="convex(dimension=5, samples=200)",
    method="gradient_tracking(beta=0.0)",
    agents=4,
    batch_size=0,
    epochs=60,
    eval_every_epochs=20,
    learning_rate=0.5,
    schedule="constant",
    devices="1",
)
every_kind = pytest.mark.parametrize("kind", convex.CONVEX_KINDS)


def losses_of(run):
    """The agents' losses of a run in float64, by its own samples, partition and weight decay."""
    train, kind = run.dataset.train, run.objective.name
    samples = convex.Samples(
        kind, train["inputs"], train["targets"], run.dataset.labels, train["penalty"][0].item()
    )
    return convex.agent_losses(samples, run.partition, run.weight_decay)


@every_kind
def test_the_loss_that_is_trained_is_the_one_whose_optimum_is_known(kind):
    config = dataclasses.replace(SMALL, dataset=f"convex(kind={kind})", partition="quantity_skew(1.0)")
    run = build(dataclasses.replace(config, method="gradient_tracking(beta=0.0, weight_decay=0.0)"))
    losses = losses_of(run)
    assert len({len(loss.targets) for loss in losses}) == 4
    x = np.random.RandomState(0).normal(size=20)
    params = {"kernel": x[:, None].astype(np.float32)}
    samples, mask = run.batches.step(0, 0)
    for agent, loss in enumerate(losses):
        own = jax.tree.map(lambda leaf, agent=agent: leaf[np.asarray(samples[agent])], run.dataset.train)
        batch = {**own, "mask": mask[agent]}
        (value, _), gradient = jax.value_and_grad(run.loss_fn, has_aux=True)(params, batch)
        assert value == pytest.approx(loss.value(x), rel=1e-5)
        np.testing.assert_allclose(gradient["kernel"][:, 0], loss.gradient(x), atol=1e-5)


@every_kind
def test_the_metrics_are_those_of_the_optimum_and_weight_decay_is_part_of_it(kind):
    method = "gradient_tracking(beta=0.0, weight_decay=0.05)"
    run = build(dataclasses.replace(SMALL, dataset=f"convex(kind={kind})", method=method))
    assert run.weight_decay == 0.05
    losses = losses_of(run)
    optimum, whole = convex.solve(losses), convex.whole_loss(losses)
    at_best = run.evaluate({"kernel": optimum.point[:, None]})
    assert at_best["distance"] == 0
    assert at_best["gradient_norm"] < 1e-14
    assert at_best["loss"] == pytest.approx(optimum.value, rel=1e-12)
    x = optimum.point + 0.5
    found = run.evaluate({"kernel": x[:, None].astype(np.float32)})
    assert list(found) == ["distance", "gap", "gradient_norm", "loss"]
    assert found["distance"] == pytest.approx(0.5 * np.sqrt(20), rel=1e-6)
    assert found["gap"] == pytest.approx(whole.value(x) - optimum.value, rel=1e-5)
    assert found["gradient_norm"] == pytest.approx(np.linalg.norm(whole.gradient(x)), rel=1e-5)
    facts = run.objective.facts(run.context)
    assert facts["L"] == pytest.approx(1.05, rel=1e-6)
    assert facts["kappa"] == pytest.approx(1.05 / 0.15, rel=1e-5)
    assert facts["delta"] == optimum.heterogeneity


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("convex") / "run"
    return loop.train(SMALL, workdir, QUIET), workdir


def test_a_run_comes_near_and_says_what_is_known(trained):
    result, workdir = trained
    distances = [r["test_distance"] for r in run_folder.read_metrics(workdir) if "test_distance" in r]
    assert len(distances) == 3
    assert distances[2] < 0.5 * distances[1] < 0.25 * distances[0]
    assert result["test_distance"] == distances[-1]
    assert len(result["agent_distance_each"]) == 4
    objective = json.loads((workdir / "config.json").read_text())["objective"]
    assert objective["name"] == "ridge"
    assert objective["metrics"][0]["name"] == "distance"
    assert objective["facts"].keys() == {"L", "mu", "kappa", "largest_L", "delta", "sigma", "least_loss"}
    assert result["steps"] == 60  # an epoch is one step


def test_a_run_that_was_killed_goes_on_bit_for_bit(trained, tmp_path):
    config = dataclasses.replace(SMALL, checkpoint_every_steps=7)
    with pytest.raises(Killed):
        loop.train(config, tmp_path, Deadly(18))
    assert loop.train(config, tmp_path, QUIET)["params_sha256"] == trained[0]["params_sha256"]


def test_trials_are_the_runs_by_themselves(trained, tmp_path):
    result = loop.train(dataclasses.replace(SMALL, seeds="0,3"), tmp_path / "both", QUIET)
    other = loop.train(dataclasses.replace(SMALL, seed=3), tmp_path / "three", QUIET)
    alone = [trained[0]["test_distance"], other["test_distance"]]
    assert alone[0] != alone[1]  # partitions differ, so agents do
    found = [trial["test_distance"] for trial in result["trials"]]
    np.testing.assert_allclose(found, alone, rtol=1e-3)
    assert result["test_distance"] == pytest.approx(np.mean(found))


def test_whole_shares_on_several_devices_and_of_different_sizes_are_the_same(tmp_path):
    config = dataclasses.replace(SMALL, partition="quantity_skew(1.0)")
    found = [
        loop.train(dataclasses.replace(config, devices=devices), tmp_path / devices, QUIET)["test_distance"]
        for devices in ("1", "4")
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3)
    losses = losses_of(build(config))
    assert found[0] < 0.1 * np.linalg.norm(convex.solve(losses).point)  # of agents that count equally


def test_the_measured_curvature_is_the_known_one(trained, capsys):
    _, workdir = trained
    run = reopen.open_whole(workdir, None, None, ()).trial
    assert cli.main(["saddle", "sharpness", str(workdir)]) == 0
    capsys.readouterr()
    stages = json.loads((workdir / "sharpness.json").read_text())["stages"]
    known = run.objective.facts(run.context)
    decay = run.weight_decay  # of the method, and no part of the loss
    assert stages[-1]["lambda_max"] == pytest.approx(known["L"] - decay, rel=1e-5)
    assert stages[-1]["lambda_min"] == pytest.approx(known["mu"] - decay, rel=1e-4)
    assert known["L"] - decay == pytest.approx(1, rel=1e-6)


def test_the_verbs_speak_of_the_distance(trained, capsys, tmp_path):
    result, workdir = trained
    assert cli.main(["saddle", "list", str(workdir.parent)]) == 0
    listed = capsys.readouterr().out
    assert "distance to optimum" in listed
    assert f"{result['test_distance']:.4g}" in listed
    assert "accuracy" not in listed
    assert cli.main(["saddle", "evaluate", str(workdir)]) == 0
    assert f"test distance to optimum {result['test_distance']:.4g}" in capsys.readouterr().out
    assert cli.main(["saddle", "report", str(workdir), f"--output={tmp_path / 'page.html'}"]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "distance to optimum" in page
    assert cli.main(["saddle", "figure", "curves", str(workdir), f"--output={tmp_path / 'c.png'}"]) == 0


def test_methods_are_compared_by_their_distance(tmp_path, capsys):
    settings = {"dataset": SMALL.dataset, "agents": 4, "batch_size": 0, "epochs": 150, "method.beta": 0.0}
    settings |= {"schedule": "constant", "devices": 1, "learning_rate": 0.5, "eval_every_epochs": 150}
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    arguments += ["--compare=method=dpsgd,gradient_tracking", "--seeds=0", f"--workdir={tmp_path}", "--quiet"]
    assert cli.main(["saddle", "compare", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "distance to optimum" in printed
    assert "accuracy" not in printed
    with (tmp_path / "comparison.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert float(rows["gradient_tracking"]["mean"]) < 0.1 * float(rows["dpsgd"]["mean"])


def test_what_cannot_be_is_told_in_one_line():
    with pytest.raises(ArgumentError, match="model must be linear for convex: one number for each of 20 fea"):
        build(Settings(dataset="convex", model="mlp"))
    with pytest.raises(ArgumentError, match="augmentation must be auto for convex"):
        build(Settings(dataset="convex", augmentation="flip_crop"))
