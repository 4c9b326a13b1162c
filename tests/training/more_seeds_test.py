"""More seeds for a finished run: the folder is then that of all seeds, as if they had run together."""

import dataclasses
import json
import re
import shutil

import pytest
from dying import Deadly, Killed

from saddle_jax.cli import __main__ as cli
from saddle_jax.runs import run_folder
from saddle_jax.runs.table import gather
from saddle_jax.settings.config import Config
from saddle_jax.training import loop, more_seeds
from saddle_jax.training.progress import Screen
from saddle_jax.training.reopen import open_run

# Two epochs of 15 steps.
FEW = Config(
    agents=3, model="logistic", method="q_saddle", batch_size=32, partition="dirichlet(1.0)", devices="1",
    learning_rate=0.05, epochs=2, eval_every_epochs=1, log_every_steps=4, checkpoint_every_steps=7,
    seeds="4,2",
)  # fmt: skip
UNTIMED = {"seconds": 0, "ready_seconds": 0}


def train(config, workdir, screen=None):
    return loop.train(config, workdir, screen or Screen(quiet=True))


def with_seeds(config, seeds):
    return dataclasses.replace(config, seed=0, seeds=seeds)


def about(workdir):
    return json.loads((workdir / "config.json").read_text())


def check_same_folders(found, expected, history):
    joined, together = about(found), about(expected)
    assert joined.pop("continued") == history
    assert joined == together
    assert run_folder.read_metrics(found) == run_folder.read_metrics(expected)
    ended = [run_folder.read_result(workdir) for workdir in (found, expected)]
    assert ended[0] | UNTIMED == ended[1] | UNTIMED  # with the hashes of all models


@pytest.mark.parametrize(
    ("changes", "seeds", "had"),
    [
        ({}, "4,2,7", "4,2"),
        ({"sweep": "rho:0,0.1", "faults": "faults(drop=0.1)"}, "0,2,4,1", "4,2"),
        ({"seeds": "", "seed": 3, "eval_agents": "always"}, "5,3", "3"),
        ({"sweep": "learning_rate:0.05,1e30"}, "4,2,7", "4,2"),  # half of them diverge
    ],
    ids=str,
)
def test_old_and_new_seeds_are_one_folder(changes, seeds, had, tmp_path):
    few = dataclasses.replace(FEW, **changes)
    train(few, tmp_path / "joined")
    many = with_seeds(few, seeds)
    train(many, tmp_path / "joined")
    train(many, tmp_path / "together")
    history = [{"from": {"seeds": had}, "at_step": 30}]
    check_same_folders(tmp_path / "joined", tmp_path / "together", history)
    assert not list((tmp_path / "joined").glob("seeds*"))
    assert [run.config for run in gather([tmp_path / "joined"])] == many.each()
    # The checkpoint holds all of them too, and the run goes on from it.
    for number in range(len(many.each())):
        step, models = open_run(tmp_path / "joined", print, trial=number)[1:]
        assert step == 30
        result = run_folder.read_result(tmp_path / "joined")["trials"][number]
        assert (result["status"] == "diverged") == (result["test_loss"] is None)
        assert models is not None


def test_more_epochs_come_after_more_seeds(tmp_path):
    few = dataclasses.replace(FEW, schedule="constant")
    train(few, tmp_path / "joined")
    train(with_seeds(few, "4,2,7"), tmp_path / "joined")
    longer = dataclasses.replace(with_seeds(few, "4,2,7"), epochs=3)
    train(longer, tmp_path / "joined")
    train(longer, tmp_path / "together")
    history = [{"from": {"seeds": "4,2"}, "at_step": 30}, {"from": {"epochs": 2}, "at_step": 30}]
    check_same_folders(tmp_path / "joined", tmp_path / "together", history)


def test_a_process_may_die_at_any_time(tmp_path, monkeypatch):
    train(FEW, tmp_path / "joined")
    many = with_seeds(FEW, "4,2,7")
    with pytest.raises(Killed):
        train(many, tmp_path / "joined", Deadly(10))
    assert run_folder.read_config(tmp_path / "joined").seeds == "4,2"
    move = more_seeds.os.replace

    def die_at(name):
        def moving(source, target):
            if str(target).endswith(name) and ".joined" in str(source):
                raise Killed
            move(source, target)

        return moving

    for name in ("checkpoints", "result.json", "config.json"):
        with monkeypatch.context() as patch:
            patch.setattr(more_seeds.os, "replace", die_at(name))
            with pytest.raises(Killed):
                train(many, tmp_path / "joined")
    train(many, tmp_path / "joined")
    train(many, tmp_path / "together")
    check_same_folders(
        tmp_path / "joined", tmp_path / "together", [{"from": {"seeds": "4,2"}, "at_step": 30}]
    )


def command(workdir, *options):
    small = ["--agents=3", "--model=logistic", "--devices=1", "--epochs=1"]
    return cli.main(["saddle", "train", *small, "--quiet", f"--workdir={workdir}", *options])


def test_what_cannot_be_joined_says_why(tmp_path, capsys):
    assert command(tmp_path / "run", "--seeds=0,1") == 0
    refused = {
        "fewer": (["--seeds=0"], 'holds a run with other settings: seeds "0,1" -> "0"'),
        "others": (["--seeds=1,2"], "holds a run with other settings: seeds"),
        "longer": (["--seeds=0,1,2", "--epochs=2"], "other settings: epochs 1 -> 2, seeds"),
        "diverging": (
            ["--seeds=0,1,2", "--beta=0.5"],
            "other settings: beta 0.9 -> 0.5, seeds",
        ),
    }
    for options, expected in refused.values():
        assert command(tmp_path / "run", *options) == 2
        assert re.search(expected, capsys.readouterr().err)
    (tmp_path / "run" / "result.json").unlink()
    assert command(tmp_path / "run", "--seeds=0,1,2") == 2
    assert "when those that it has are finished, and it is unfinished" in capsys.readouterr().err


def test_the_same_command_with_more_seeds_goes_on(tmp_path, capsys):
    assert command(tmp_path / "run", "--seeds=0,1") == 0
    kept = json.loads((tmp_path / "run" / "result.json").read_text())["trials"]
    assert command(tmp_path / "run", "--seeds=0,1,2") == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [one["seed"] for one in result["trials"]] == [0, 1, 2]
    assert result["trials"][:2] == kept
    accuracies = [one["test_accuracy"] for one in result["trials"]]
    assert result["test_accuracy"] == pytest.approx(sum(accuracies) / 3)
    assert cli.main(["saddle", "evaluate", str(tmp_path / "run"), "--trial=2"]) == 0
    assert f"{100 * accuracies[2]:.2f} %" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert command(tmp_path / "run", "--seeds=0,1,2,3") == 2
    assert "no checkpoint of their last step in common" in capsys.readouterr().err
