"""New metrics of old runs: against numbers worked out by hand, and against each other on a real run."""

import json
import re
import types

import numpy as np
import pytest

from saddle_jax.cli import __main__ as cli
from saddle_jax.data import load
from saddle_jax.runs.schema import read_evaluations, read_result
from saddle_jax.settings.settings import Settings
from saddle_jax.training import evaluation, loop
from saddle_jax.training.progress import Screen

TINY = ["--agents=4", "--model=logistic", "--devices=1", "--partition.alpha=1", "--quiet"]


def look(logits, labels, classes=3, **more):
    logits, labels = np.array(logits, float), np.array(labels)
    dataset = types.SimpleNamespace(class_names=tuple("abcdefgh"[:classes]))
    trial = types.SimpleNamespace(dataset=dataset, config=types.SimpleNamespace(agents=3))
    hits = logits.argmax(axis=-1) == labels
    return types.SimpleNamespace(logits=logits, labels=labels, hits=hits, trial=trial, **more)


def test_metrics_of_classes_by_hand():
    seen = look([[3, 1, 0], [0, 2, 1], [2, 1, 0], [0, 0, 5]], [0, 1, 1, 2])
    assert evaluation.class_accuracy(seen) == [1.0, 0.5, 1.0]
    assert evaluation.confusion(seen) == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert evaluation.MEASURES["worst_class"].function(seen) == 0.5
    assert np.isnan(evaluation.class_accuracy(look([[1, 0, 0]], [0]))[1])


def test_the_five_likeliest():
    logits = [[6, 5, 4, 3, 2, 1, 0]] * 3
    assert evaluation.top5(look(logits, [0, 4, 5], classes=7)) == pytest.approx(2 / 3)
    assert evaluation.top5(look([[1, 0, 2]], [1])) == 1.0


def test_calibration_by_hand():
    """Two samples of confidence 0.9, one right; one of confidence 0.6, right: gaps 0.4 and 0.4."""
    logits = np.log([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]])
    found = evaluation.expected_calibration_error(look(logits, [0, 1, 1], classes=2))
    assert found == pytest.approx((2 * 0.4 + 1 * 0.4) / 3)
    sure = look([[100.0, 0.0], [0.0, 100.0]], [0, 1], classes=2)
    assert evaluation.expected_calibration_error(sure) == pytest.approx(0)


def test_disagreement_is_the_mean_over_pairs(monkeypatch):
    """Of three agents, on the first sample all agree; on the second one differs: two of three pairs."""
    votes = {0: [[1, 0], [1, 0]], 1: [[1, 0], [1, 0]], 2: [[1, 0], [0, 1]]}
    monkeypatch.setattr(evaluation, "choose", lambda params, agent: agent)
    monkeypatch.setattr(evaluation, "_outputs", lambda trial, agent: np.array(votes[agent]))
    assert evaluation.disagreement(look(votes[0], [0, 0], 2, params=None)) == pytest.approx((0 + 2 / 3) / 2)


def evaluate(capsys, *arguments, status=0):
    assert cli.main(["saddle", "evaluate", *map(str, arguments)]) == status
    return capsys.readouterr()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("run") / "run"
    settings = Settings(
        agents=4, model="logistic", devices="1", partition="dirichlet(1.0)", epochs=2, keep_every_epochs=1,
        checkpoint_every_steps=20,
    )  # fmt: skip
    loop.train(settings, workdir, Screen(quiet=True))
    return workdir


def test_metrics_of_a_run_agree_with_each_other_and_with_its_result(trained, capsys):
    names = "accuracy,loss,train_loss,generalisation_gap,agents,worst_agent,top5,class_accuracy,worst_class"
    names += ",confusion,expected_calibration_error,disagreement"
    (record,) = json.loads(evaluate(capsys, trained, f"--metrics={names}", "--json").out)
    found, result = record["metrics"], read_result(trained)
    assert found["accuracy"] == pytest.approx(result["test_accuracy"])
    assert found["loss"] == pytest.approx(result["test_loss"], rel=1e-5)
    assert found["agents"] == pytest.approx(result["agent_accuracy_each"])
    assert found["worst_agent"] == min(found["agents"])
    assert found["generalisation_gap"] == pytest.approx(found["loss"] - found["train_loss"])
    table = np.array(found["confusion"])
    assert table.sum() == 360
    assert np.trace(table) / 360 == pytest.approx(found["accuracy"])
    assert found["class_accuracy"] == pytest.approx((np.diag(table) / table.sum(axis=1)).tolist())
    assert found["worst_class"] == min(found["class_accuracy"])
    assert found["accuracy"] <= found["top5"] <= 1
    assert 0 < found["disagreement"] < 1
    assert 0 < found["expected_calibration_error"] < 1
    assert (record["run"], record["whose"], record["epoch"]) == ({}, "consensus", 2)


def test_checkpoints_and_agents_are_kept_in_one_file(trained, capsys):
    told = evaluate(capsys, trained, "--metrics=accuracy,class_accuracy", "--epochs=all").out
    assert re.search(r"metric +epoch 1 +epoch 1.\d+ +epoch 2", told)
    assert re.search(r"class_accuracy 9 +\d+\.\d\d % ", told)
    evaluate(capsys, trained, "--metrics=accuracy", "--agent=1", "--epochs=1,2")
    evaluate(capsys, trained, "--metrics=worst_class", "--epochs=1")
    kept = {
        (each["whose"], each["epoch"]): each["metrics"]
        for each in read_evaluations(trained / "evaluation.json")
    }
    assert {("consensus", 1.0), ("consensus", 2.0), (1, 1.0), (1, 2.0)} <= set(kept)
    assert set(kept["consensus", 1.0]) == {"accuracy", "class_accuracy", "worst_class"}
    assert kept["consensus", 1.0]["accuracy"] != kept["consensus", 2.0]["accuracy"]
    assert kept[1, 2.0]["accuracy"] == pytest.approx(read_result(trained)["agent_accuracy_each"][1])


def test_a_metric_of_your_own_is_the_mean_over_the_test_set(trained, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "import jax.numpy as jnp\n"
        "def share_of_fours(params, batch):\n    return batch['targets'] == 4\n"
        "def broken(params, batch):\n    return 1 / 0\n"
    )
    given = f"--metrics={tmp_path / 'mine.py'}:share_of_fours,accuracy"
    (record,) = json.loads(evaluate(capsys, trained, given, "--json").out)
    assert list(record["metrics"]) == ["share_of_fours", "accuracy"]
    labels = load("digits", None).test["targets"]
    assert record["metrics"]["share_of_fours"] == pytest.approx(np.mean(labels == 4))
    error = evaluate(capsys, trained, f"--metrics={tmp_path / 'mine.py'}:broken", status=2).err
    assert "ZeroDivisionError" in error


def test_all_trials_of_a_folder_are_columns(tmp_path, unrendered, capsys):
    options = ["--seeds=3,1", "--epochs=1", f"--workdir={tmp_path / 'run'}"]
    assert cli.main(["saddle", "train", *TINY, *options]) == 0
    told = evaluate(capsys, tmp_path / "run", "--metrics=accuracy").out
    first, second = (one["test_accuracy"] for one in read_result(tmp_path / "run")["trials"])
    assert re.search("seed 3, epoch 1 +seed 1, epoch 1", told)
    assert re.search(rf"accuracy +{100 * first:.2f} % +{100 * second:.2f} %", told)
    (record,) = json.loads(evaluate(capsys, tmp_path / "run", "--metrics=loss", "--trial=1", "--json").out)
    assert record["run"] == {"seed": 1}


def test_other_objectives_have_their_own_metrics(tmp_path, unrendered, capsys):
    options = ["--dataset=convex", "--agents=3", "--epochs=1", "--devices=1"]
    assert cli.main(["saddle", "train", *options, "--quiet", f"--workdir={tmp_path / 'run'}"]) == 0
    names = [
        metric["name"]
        for metric in json.loads((tmp_path / "run" / "config.json").read_text())["objective"]["metrics"]
    ]
    (record,) = json.loads(evaluate(capsys, tmp_path / "run", "--json").out)
    assert list(record["metrics"]) == names
    error = evaluate(capsys, tmp_path / "run", "--metrics=top5", status=2).err
    assert "top5 is of classification, and this run learns" in error


BAD = {
    "unknown": (["--metrics=top6"], "did you mean 'top5'.*metrics must be of accuracy, loss, .* got 'top6'"),
    "epoch": (["--metrics=loss", "--epochs=7"], "epochs must be among those with a checkpoint"),
    "agent": (["--metrics=loss", "--agent=9"], "agent must be 0 to 3, got 9"),
    "trial": (["--metrics=loss", "--trial=2"], "trial must be 0 to 0"),
    "file": (["--metrics=nowhere.py:f"], "nowhere.py"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line_and_writes_nothing(case, trained, capsys):
    arguments, expected = BAD[case]
    before = (trained / "evaluation.json").read_bytes() if (trained / "evaluation.json").exists() else None
    error = evaluate(capsys, trained, *arguments, status=2).err
    assert re.search(expected, error)
    assert error.count("\n") == 1
    after = (trained / "evaluation.json").read_bytes() if (trained / "evaluation.json").exists() else None
    assert after == before
