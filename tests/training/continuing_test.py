"""Finished runs that go on: more epochs are the longer run, bit for bit, or one line says why not."""

import dataclasses
import json
import re
import shutil

import flax.linen as nn
import numpy as np
import pytest
from dying import Deadly, Killed

import saddle_jax as sj
from saddle_jax.base.errors import RunError
from saddle_jax.cli import __main__ as cli
from saddle_jax.runs import run_folder
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop
from saddle_jax.training.progress import Screen

# Epochs of 15 steps.
SHORT = Settings(
    agents=3, model="logistic", method="qgm", batch_size=32, partition="dirichlet(1.0)", devices="1",
    learning_rate=0.05, schedule="constant", epochs=1, eval_every_epochs=1, log_every_steps=4,
    checkpoint_every_steps=10,
)  # fmt: skip
UNTIMED = {"seconds": 0, "ready_seconds": 0}

pytestmark = pytest.mark.usefixtures("built_once", "unrendered")


def train(config, workdir, screen=None):
    return loop.train(config, workdir, screen or Screen(quiet=True))


def longer(config, epochs):
    return dataclasses.replace(config, epochs=epochs)


def about(workdir):
    return json.loads((workdir / "config.json").read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory, built_once):
    """The short run."""
    workdir = tmp_path_factory.mktemp("finished") / "run"
    train(SHORT, workdir)
    return workdir


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the short run, to go on with."""
    return shutil.copytree(finished, tmp_path / "copied")


@pytest.mark.parametrize(
    "changes",
    [
        {
            "schedule": "exponential", "epochs": 2, "warmup_epochs": 1, "eval_every_epochs": 3,
            "method": "qgm(compressor=random_k(0.3), gamma=0.4)",
        },
        {
            "eval_agents": "always", "log_every_steps": 5, "steps_per_dispatch": 3,
            "faults": "faults(drop=0.2, burst=3.0)",
        },
        {"method": "q_saddle(ascent_every=2)", "seeds": "4,2", "sweep": "method.rho=0,0.1"},
    ],
    ids=str,
)  # fmt: skip
def test_more_epochs_are_the_longer_run_bit_for_bit(changes, tmp_path):
    short = dataclasses.replace(SHORT, **changes)
    long = longer(short, short.epochs + 1)
    train(short, tmp_path / "parts")
    went_on = train(long, tmp_path / "parts")
    whole = train(long, tmp_path / "whole")
    assert went_on["steps"] == 15 * long.epochs
    assert went_on | UNTIMED == whole | UNTIMED  # with the hashes of all models
    assert run_folder.read_metrics(tmp_path / "parts") == run_folder.read_metrics(tmp_path / "whole")
    found, expected = about(tmp_path / "parts"), about(tmp_path / "whole")
    assert found.pop("continued") == [{"from": {"epochs": short.epochs}, "at_step": 15 * short.epochs}]
    assert found == expected


def test_what_goes_on_may_be_killed_and_go_on_again(copied, tmp_path):
    for steps in (1, 10):
        with pytest.raises(Killed):
            train(longer(SHORT, 2), copied, Deadly(steps))
        assert run_folder.read_result(copied) is None
    went_on = train(longer(SHORT, 2), copied)
    whole = train(longer(SHORT, 2), tmp_path / "whole")
    assert went_on | UNTIMED == whole | UNTIMED
    assert run_folder.read_metrics(copied) == run_folder.read_metrics(tmp_path / "whole")
    train(longer(SHORT, 3), copied)
    history = [{"from": {"epochs": 1}, "at_step": 15}, {"from": {"epochs": 2}, "at_step": 30}]
    assert about(copied)["continued"] == history


def test_a_process_that_dies_before_the_files_are_changed_does_no_harm(copied, monkeypatch):
    def die(*arguments):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_take_out_end", die)
        with pytest.raises(Killed):
            train(longer(SHORT, 2), copied)
    assert about(copied)["config"]["epochs"] == 2
    assert train(longer(SHORT, 2), copied)["steps"] == 30
    assert len(about(copied)["continued"]) == 1


def command(workdir, *options):
    small = ["--agents=3", "--model=logistic", "--devices=1", "--partition.alpha=1"]
    return cli.main(["saddle", "train", *small, "--quiet", f"--workdir={workdir}", *options])


REFUSED = {
    "step": (
        ["--epochs=4"],
        "schedule step depends on epochs, and step 16 would have had the learning",
    ),
    "cosine": (
        ["--epochs=4", "--schedule=cosine"],
        "holds a run with other settings: epochs .*",
    ),
    "lowered": (
        ["--epochs=1"],
        "from 2 to 1 epochs: they must not be lowered; choose another workdir",
    ),
    "other": (
        ["--epochs=4", "--method.beta=0.5"],
        "holds a run with other settings: .*epochs 2 -> 4",
    ),
}


@pytest.fixture(scope="module")
def commanded(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("commanded") / "run"
    assert command(workdir, "--epochs=2", "--batch_size=32") == 0
    return workdir


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_go_on_says_why_in_one_line(case, commanded, capsys):
    options, expected = REFUSED[case]
    before = {path: path.read_bytes() for path in commanded.glob("*.json*")}
    assert command(commanded, "--batch_size=32", *options) == 2
    error = capsys.readouterr().err
    assert re.search(expected, error)
    assert error.count("\n") == 1
    assert before == {path: path.read_bytes() for path in before}


def test_a_run_that_diverged_does_not_go_on(copied):
    ended = run_folder.read_result(copied) | {"status": "diverged", "diverged_at_step": 3}
    (copied / "result.json").write_text(json.dumps(ended))
    with pytest.raises(RunError, match=r"from 1 to 2 epochs: it diverged at step 3$"):
        train(longer(SHORT, 2), copied)


def test_the_same_command_with_more_epochs_goes_on(tmp_path, capsys):
    options = ["--schedule=exponential", "--method=dpsgd"]
    assert command(tmp_path, "--epochs=1", *options) == 0
    assert command(tmp_path, "--epochs=2", *options) == 0
    assert run_folder.read_config(tmp_path).epochs == 2
    assert run_folder.read_result(tmp_path)["status"] == "finished"
    assert (tmp_path / "curves.png").is_file()
    # The same command once more trains nothing.
    before = (tmp_path / "result.json").stat().st_mtime_ns
    assert command(tmp_path, "--epochs=2", *options) == 0
    assert (tmp_path / "result.json").stat().st_mtime_ns == before


def test_runs_of_python_objects_go_on_too(tmp_path):
    random = np.random.default_rng(0)
    points, labels = random.normal(size=(90, 5)).astype(np.float32), random.integers(0, 2, 90)
    train, test = (points[:60], labels[:60]), (points[60:], labels[60:])

    def run(name, **options):
        return sj.Experiment(
            sj.dpsgd(sj.ring(3), 0.1), train, test, model=nn.Dense(2), workdir=tmp_path / name,
            partition="iid", batch_size=8, **options,
        )  # fmt: skip

    run("parts", epochs=1, seeds=[0, 1]).train(quiet=True)
    went_on = run("parts", epochs=2, seeds=[0, 1]).train(quiet=True)
    assert went_on | UNTIMED == run("whole", epochs=2, seeds=[0, 1]).train(quiet=True) | UNTIMED
    assert about(tmp_path / "parts")["continued"] == [{"from": {"epochs": 1}, "at_step": 3}]
