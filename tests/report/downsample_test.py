"""Small open copies of runs: what tables read from them is what they read from the runs themselves."""

import dataclasses
import json
import statistics

import pytest
from folders import SMALL, metrics, write_run

from saddle_jax.cli.__main__ import main
from saddle_jax.runs.downsample import means
from saddle_jax.runs.table import cell_of, load_runs

SHARPNESS = {"stages": [{"step": 8, "epoch": 2, "whose": "consensus", "lambda_max": 3.0, "density": None}]}


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def written(tmp_path, **more):
    config = dataclasses.replace(SMALL, data_dir=str(tmp_path / "secret"))
    folder = write_run(tmp_path / "runs" / "one", config, sharpness=SHARPNESS, **more)
    about = json.loads((folder / "config.json").read_text())
    about["dataset"]["source"] = str(tmp_path / "secret" / "cifar10" / "3.0.2")
    (folder / "config.json").write_text(json.dumps(about))
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "heavy").write_text("weights")
    return folder


def test_a_copy_says_what_the_run_says_and_is_small(tmp_path, capsys):
    lines = metrics(gradient_norm_by_layer=lambda step: [step, 1.0], learning_rate=lambda step: 1 / step)
    folder = written(tmp_path, lines=lines)
    assert (
        main(
            [
                "saddle",
                "export",
                "--downsample=10",
                str(folder),
                f"--output={tmp_path / 'kept'}",
                "--downsample=3",
            ]
        )
        == 0
    )
    copy = tmp_path / "kept" / "one"
    assert capsys.readouterr().out == f"{copy}\n"
    assert sorted(path.name for path in copy.iterdir()) == [
        "config.json",
        "metrics.jsonl",
        "result.json",
        "sharpness.json",
    ]
    (run,), (small,) = load_runs([folder]), load_runs([copy])
    assert (small.result, small.sharpness, small.state) == (run.result, run.sharpness, run.state)
    assert cell_of([small]) == cell_of([run])
    assert "secret" not in (copy / "config.json").read_text()
    assert small.about["dataset"]["source"] == "cifar10/3.0.2"
    assert small.about["downsampled"] == 3
    training = [line for line in lines if "train_loss" in line]
    found = lines_of(copy)
    assert [(line["step"], "test_loss" in line) for line in found] == [
        (3, False),
        (4, True),
        (6, False),
        (8, False),
        (8, True),
    ]
    mean = statistics.fmean(line["train_loss"] for line in training[3:6])
    assert found[2]["train_loss"] == float(f"{mean:.6g}")
    # Where the run had come to is that of the last line, not a mean.
    assert (found[2]["epoch"], found[2]["bytes_sent_per_agent"]) == (1.5, 6000)
    assert found[2]["learning_rate"] == float(f"{1 / 6:.6g}")
    assert not any("gradient_norm_by_layer" in line for line in found)


def test_means_of_trials_are_number_by_number_and_hide_nothing():
    lines = [
        {"step": step, "epoch": step / 2, "train_loss": 1.0, "a_by_trial": [step, 2.0 * step], "e": error}
        for step, error in ((1, 1.0), (2, None), (3, 4.0))
    ]
    assert means(lines, 2) == [
        {"step": 2, "epoch": 1.0, "train_loss": 1.0, "a_by_trial": [1.5, 3.0], "e": None},
        {"step": 3, "epoch": 1.5, "train_loss": 1.0, "a_by_trial": [3.0, 6.0], "e": 4.0},
    ]


def test_a_copy_may_be_made_again_but_replaces_no_other_run(tmp_path, capsys):
    folder = written(tmp_path)
    command = ["saddle", "export", "--downsample=10", str(folder), f"--output={tmp_path / 'kept'}"]
    assert main(command) == main(command) == 0
    (folder / "sharpness.json").unlink()  # as of a run that was made again and not measured yet
    assert main(command) == 0
    assert not (tmp_path / "kept" / "one" / "sharpness.json").exists()
    other = write_run(tmp_path / "more" / "one", dataclasses.replace(SMALL, seed=5))
    assert main(["saddle", "export", "--downsample=10", str(other), f"--output={tmp_path / 'kept'}"]) == 2
    assert "holds a run with other settings: seed 0 -> 5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        ("finished", "runs", "output must be another folder than that of the run"),
        ("interrupted", "kept", "is unfinished"),
        (None, "kept", "is unfinished"),
        ("finished", None, "output must be given"),
    ],
)
def test_mistakes_are_told_in_one_line(status, output, expected, tmp_path, capsys):
    folder = written(tmp_path, status=status)
    before = (folder / "config.json").read_text()
    arguments = [f"--output={tmp_path / output}"] if output else []
    assert main(["saddle", "export", "--downsample=10", str(folder), *arguments]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert (folder / "config.json").read_text() == before
