"""Sharpness of runs: in training, and by the command."""

import json
import re
import shutil

import numpy as np
import pytest

from saddle_jax.analysis import sharpness
from saddle_jax.base.errors import RunError
from saddle_jax.cli import __main__ as cli
from saddle_jax.report.sharpness import draw
from saddle_jax.runs import run_folder
from saddle_jax.runs.checkpoints import Checkpoints
from saddle_jax.runs.table import Run
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop, reopen
from saddle_jax.training.progress import Screen


def dense_extremes(workdir, step, images, agent=None, own=False):
    """By an explicit Hessian of softmax regression, in NumPy: mean of (diag p - p p') kron (x x')."""
    whole = reopen.open_whole(workdir, None, None, ())
    model = reopen.choose(reopen.open_models(workdir, whole, step, 0), agent)
    kernel, bias = (np.asarray(model["linear"][name], np.float64) for name in ("kernel", "bias"))
    chunks = sharpness.training_chunks(whole.trial, images, agent if own else None)
    x = np.concatenate([np.asarray(b["inputs"], np.float64)[np.asarray(b["mask"]) == 1] for _, b in chunks])
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
    logged = [r for r in run_folder.read_metrics(trained) if "lambda_max" in r]
    assert [r["epoch"] for r in logged] == [2, 4]
    assert set(logged[0]) == {"step", "epoch", "lambda_max", "lambda_min", "trace"}
    largest, smallest, _ = dense_extremes(trained, logged[0]["step"], 64)
    assert logged[0]["lambda_max"] == pytest.approx(largest, rel=1e-4)
    assert logged[0]["lambda_min"] == pytest.approx(smallest, abs=1e-4)


def test_the_command_measures_what_is_missing_and_merges(trained, capsys):
    command = ["saddle", "sharpness", str(trained), "--images=64"]
    assert cli.main([*command, "--epochs=4"]) == 0
    assert "64 samples of the agents' training data together, not augmented" in capsys.readouterr().out
    content = json.loads((trained / "sharpness.json").read_text())
    assert {k: content[k] for k in ("data", "images", "iterations")} == {
        "data": "train",
        "images": 64,
        "iterations": 30,
    }
    (first,) = content["stages"]
    assert cli.main([*command, "--agents=0"]) == 0  # all epochs; what is there is not made again
    assert "[1 of 3]" in capsys.readouterr().out
    content = json.loads((trained / "sharpness.json").read_text())
    assert [(s["epoch"], s["whose"]) for s in content["stages"]] == [
        (epoch, whose) for epoch in (2, 4) for whose in ("consensus", 0)
    ]
    assert content["stages"][2] == first
    for stage in content["stages"]:
        agent = None if stage["whose"] == "consensus" else stage["whose"]
        largest, smallest, trace = dense_extremes(trained, stage["step"], 64, agent)
        assert stage["lambda_max"] == pytest.approx(largest, rel=1e-4)
        assert stage["lambda_min"] == pytest.approx(smallest, abs=1e-4)
        assert stage["trace"] == pytest.approx(trace, abs=4 * stage["trace_error"])
        assert stage["density"] is None
    assert cli.main([*command, "--agents=0", "--epochs=4"]) == 0
    printed = capsys.readouterr().out
    assert "[1 of" not in printed
    assert re.search(rf"one +4 +agent 0 +{content['stages'][3]['lambda_max']:.4g}", printed)
    assert not re.search(r"one +2 ", printed)


def test_agents_on_their_own_data_and_densities(trained, capsys):
    command = ["saddle", "sharpness", str(trained), "--images=300", "--epochs=4", "--agents=all"]
    assert cli.main(["saddle", "sharpness", str(trained), "--images=64", "--epochs=4"]) == 0
    assert "it is replaced" not in capsys.readouterr().out
    assert cli.main([*command, "--data=own", "--density", "--probes=2"]) == 0
    assert "measured with other settings: it is replaced" in capsys.readouterr().out
    content = json.loads((trained / "sharpness.json").read_text())
    assert (content["data"], content["images"], len(content["stages"])) == ("own", 300, 4)
    largest, _, _ = dense_extremes(trained, content["stages"][2]["step"], 300, agent=1, own=True)
    assert content["stages"][2]["lambda_max"] == pytest.approx(largest, rel=1e-4)
    curve = content["stages"][0]["density"]
    assert np.trapezoid(curve["y"], curve["x"]) == pytest.approx(1, abs=1e-3)
    assert (trained / "density.png").read_bytes().startswith(b"\x89PNG")


def test_several_runs_become_a_picture(runs, trained, tmp_path, capsys):
    other = shutil.copytree(runs / "alone", tmp_path / "two $x$")
    picture = tmp_path / "bars.png"
    assert (
        cli.main(["saddle", "sharpness", str(trained), str(other), "--images=64", f"--output={picture}"]) == 0
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.count("two $x$") >= 2
    (trained / "sharpness.json").unlink()
    about = json.loads((trained / "config.json").read_text())
    about["config"]["model"] = "mlp"
    (tmp_path / "mlp").mkdir()
    (tmp_path / "mlp" / "config.json").write_text(json.dumps(about))
    assert cli.main(["saddle", "sharpness", str(trained), str(tmp_path / "mlp")]) == 2
    assert "runs must have the same model, got logistic in" in capsys.readouterr().err
    assert not (trained / "sharpness.json").exists()


def test_bars_stand_at_their_stages(monkeypatch, tmp_path):
    from matplotlib.axes import Axes

    drawn = []
    monkeypatch.setattr(Axes, "bar", lambda self, x, height, width, **look: drawn.append((x, height, look)))
    stages = [
        {"epoch": e, "lambda_max": v, "density": None, "whose": "consensus"}
        for e, v in ((5, 1.0), (7.5, 2.0), (10, None))
    ]
    monkeypatch.setattr("matplotlib.figure.Figure.legend", lambda self, **options: None)
    one, other = (Run(name, Settings(), family=name) for name in "ab")
    paths = draw({one: stages, other: stages[1:2]}, tmp_path, tmp_path / "x.png", density=True)
    assert [path.name for path in paths] == ["x.png", "density.png"]
    looks = [{"color": "C0", "label": "a"}, {"color": "C1", "label": "b"}]
    assert drawn == [([-0.2, 0.8], [1.0, 2.0], looks[0]), ([1.2], [2.0], looks[1])]


BAD = {
    "epoch": (["--epochs=3"], r"epochs must be among those with a checkpoint in .*one, 2, 4, got 3"),
    "epochs": (["--epochs=x"], "epochs must be all or numbers, got x"),
    "agent": (["--agents=0,3"], "agents must be none, all, or of 0 to 2, got 0,3"),
    "images": (["--images=0"], "images"),
    "iterations": (["--iterations=1"], "iterations"),
    "data": (["--data=test"], "data"),
    "output": (["--output=bars.txt"], r"output must end in .png, .pdf or .svg, got 'bars.txt'"),
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
    assert cli.main(["saddle", "sharpness", str(tmp_path)]) == 3
    assert "00000004 cannot be used (its seal is missing or unreadable)" in capsys.readouterr().err
    (trained / "sharpness.json").write_text("[1")
    with pytest.raises(RunError, match="cannot be read: "):
        sharpness.read_stages(trained / sharpness.FILE)
    (trained / "sharpness.json").write_text('{"stages": [{"step": 1, "epoch": 1, "lambda_max": 1}]}')
    with pytest.raises(RunError, match=r"cannot be read: whose must be there; remove it to measure again"):
        sharpness.read_stages(trained / sharpness.FILE)


def test_a_run_that_ends_twice_has_its_last_sharpness_once(sharp, runs, trained):
    whole = json.loads((trained / "result.json").read_text())
    (trained / "result.json").unlink()  # as if it had been killed while writing it
    again = loop.train(sharp, trained, Screen(quiet=True), curvature=sharpness.metrics)
    assert again["params_sha256"] == whole["params_sha256"]
    assert run_folder.read_metrics(trained) == run_folder.read_metrics(runs / "sharp")
    assert len(Checkpoints(trained, 5).steps()) == 2
