"""Sharpness and landscapes of folders that hold several runs: each trial is as if it were alone."""

import json
import re
import shutil

import numpy as np
import pytest

from saddle_jax.cli import __main__ as cli
from saddle_jax.runs.table import load_runs


@pytest.fixture(scope="module")
def folders(runs, tmp_path_factory):
    """Copies of two seeds together and of one alone."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("both", "alone"):
        shutil.copytree(runs / name, folder / name)
    return folder


def test_sharpness_of_all_trials_with_mean_and_interval(folders, capsys):
    options = ["--images=64", "--iterations=12", "--epochs=2"]
    assert cli.main(["saddle", "sharpness", str(folders / "both"), *options, "--trial=1"]) == 0
    assert "over seeds" not in capsys.readouterr().out
    assert not (folders / "both" / "sharpness-0.json").exists()
    assert cli.main(["saddle", "sharpness", str(folders / "alone"), *options]) == 0
    capsys.readouterr()
    picture = folders / "bars.svg"
    both = ["saddle", "sharpness", str(folders / "both"), str(folders / "alone"), *options]
    assert cli.main([*both, f"--output={picture}"]) == 0
    printed = capsys.readouterr().out
    assert "[1 of 1] both (seed 0) epoch 2" in printed  # the other trial was measured before
    found = [json.loads((folders / "both" / f"sharpness-{k}.json").read_text())["stages"][0] for k in (0, 1)]
    alone = json.loads((folders / "alone" / "sharpness.json").read_text())["stages"][0]
    assert found[1]["lambda_max"] == pytest.approx(alone["lambda_max"], rel=1e-4)
    assert found[0]["lambda_max"] != pytest.approx(alone["lambda_max"], rel=1e-3)
    values = [stage["lambda_max"] for stage in found]
    mean = f"{np.mean(values):.4g} +- {np.std(values, ddof=1):.2g}"
    assert re.search(rf"^both +2 +{re.escape(mean)} +\[\S+, \S+\] +2$", printed, re.M)
    assert picture.read_text().lstrip().startswith("<?xml")
    assert cli.main([*both, "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [one["setting"] for one in records] == [{"seed": 0}, {"seed": 1}, {}]
    runs = load_runs([folders / "both"])
    assert [run.sharpness["stages"][0]["lambda_max"] for run in runs] == values


def test_a_landscape_of_one_trial(folders, capsys):
    options = ["--points=3", "--images=32", f"--output={folders / 'out'}", "--picture=pdf"]
    assert cli.main(["saddle", "landscape", str(folders / "both"), *options]) == 2
    assert "both holds 2 runs: --trial=0 to 1 chooses one of them" in capsys.readouterr().err
    assert cli.main(["saddle", "landscape", str(folders / "alone"), *options, "--trial=1"]) == 2
    assert "trial must be given for a folder that holds several runs" in capsys.readouterr().err
    both = ["saddle", "landscape", str(folders / "both"), str(folders / "alone")]
    assert cli.main([*both, *options, "--trial=1"]) == 0
    assert "panels.pdf" in capsys.readouterr().out
    assert (folders / "out" / "contours.pdf").read_bytes().startswith(b"%PDF")
    with np.load(folders / "out" / "landscape.npz") as numbers:
        np.testing.assert_allclose(numbers["loss"][0], numbers["loss"][1], rtol=1e-4)
    first, second = load_runs([folders / "both"])
    assert first.landscape is None
    assert np.shape(second.landscape["loss"]) == (3, 3)


def test_a_trial_that_there_is_not(folders, capsys):
    for verb in ("sharpness", "landscape"):
        assert cli.main(["saddle", verb, str(folders / "both"), "--trial=2", "--images=32"]) == 2
        assert "trial must be 0 to 1" in capsys.readouterr().err


def test_the_page_of_all_runs_below_a_folder(folders, capsys):
    assert cli.main(["saddle", "report", str(folders)]) == 0
    assert capsys.readouterr().out == f"page: {folders / 'report.html'}\n"
    page = (folders / "report.html").read_text()
    assert "alone" in page
    assert "both" in page


def test_training_and_evaluating_give_json_alone(folders, capsys):
    settings = {"agents": 3, "model": "logistic", "method": "qgm", "epochs": 2, "eval_agents": "never"}
    given = [f"--{name}={value}" for name, value in {**settings, "devices": 1, "seed": 1}.items()]
    assert cli.main(["saddle", "train", *given, f"--workdir={folders / 'alone'}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["folder"]) == ("finished", str(folders / "alone"))
    assert cli.main(["saddle", "evaluate", str(folders / "alone"), "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["metrics"]["accuracy"] == pytest.approx(found["test_accuracy"])
