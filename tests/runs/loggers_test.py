"""Metrics go to Weights & Biases and MLflow, live and afterwards; tested with the packages themselves."""

import pytest

from saddle_jax.cli.__main__ import main
from saddle_jax.runs import loggers
from saddle_jax.runs.metrics import read_metrics

SETTINGS = ["--dataset=synthetic", "--model=logistic", "--agents=2", "--subset=64", "--epochs=2"]
SETTINGS += ["--eval_every_epochs=1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that logged to nothing but metrics.jsonl."""
    folder = tmp_path_factory.mktemp("logged") / "one"
    assert main(["saddle", "train", *SETTINGS, "--loggers=none", f"--workdir={folder}"]) == 0
    assert not (folder / "tensorboard").exists()
    return folder


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'mlruns'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


@pytest.mark.filterwarnings("default")  # of the packages
def test_wandb_has_metrics_settings_and_tags_of_one_run(run, offline, capsys):
    pytest.importorskip("wandb", reason="needs wandb")
    assert main(["saddle", "export", str(run), "--format=wandb"]) == 0
    assert "lines given to wandb" in capsys.readouterr().out
    known = loggers._known(run)["wandb"]
    (file,) = run.glob("wandb/offline-run-*/*.wandb")
    assert known in file.name
    content = file.read_bytes()
    for word in ("test_accuracy", "train_loss", "learning_rate", "q_saddle", "logistic"):
        assert word.encode() in content
    assert loggers.replay(run, "wandb") == len(read_metrics(run))  # again: the same run
    assert all(known in each.name for each in run.glob("wandb/offline-run-*/*.wandb"))


@pytest.mark.filterwarnings("default")
def test_mlflow_has_metrics_settings_and_tags_of_one_run(run, offline, tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow-skinny")
    for _ in range(2):
        assert main(["saddle", "export", str(run), "--format=mlflow"]) == 0
    client = mlflow.MlflowClient()
    (there,) = client.search_runs([client.get_experiment_by_name("saddle_jax").experiment_id])
    last = [line for line in read_metrics(run) if "test_accuracy" in line][-1]
    assert there.data.metrics["test_accuracy"] == pytest.approx(last["test_accuracy"])
    steps = {metric.step for metric in client.get_metric_history(there.info.run_id, "test_accuracy")}
    assert steps == {line["step"] for line in read_metrics(run) if "test_accuracy" in line}
    assert there.data.params["agents"] == "2"
    assert there.data.tags["method"] == "q_saddle"
    assert there.info.status == "FINISHED"


@pytest.mark.filterwarnings("default")
def test_a_run_logs_while_it_is_trained(offline, tmp_path):
    pytest.importorskip("mlflow", reason="needs mlflow-skinny")
    folder = tmp_path / "live"
    assert main(["saddle", "train", *SETTINGS, "--loggers=tensorboard,mlflow", f"--workdir={folder}"]) == 0
    import mlflow

    found = mlflow.MlflowClient().get_run(loggers._known(folder)["mlflow"])
    assert found.data.metrics["test_loss"] == pytest.approx(read_metrics(folder)[-1]["test_loss"])
    assert list((folder / "tensorboard").iterdir())


def test_a_logger_that_is_not_there_is_named(run, monkeypatch, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["saddle", "export", str(run), "--format=wandb"]) != 0
    assert "the logger wandb needs its package: pip install wandb" in capsys.readouterr().err
    assert main(["saddle", "train", "--loggers=tensorboard,neptune"]) != 0
    assert "loggers must be one of 'tensorboard', 'wandb', 'mlflow', got 'neptune'" in capsys.readouterr().err
