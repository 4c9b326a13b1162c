"""Training as a process: killed, asked to stop, out of disk."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from saddle_jax.cli import __main__ as cli
from saddle_jax.runs import run_folder
from saddle_jax.runs.checkpoints import Checkpoints

# Training whose checkpoint of step 60 is being written, by orbax's threads too, for a minute.
SLOW_TO_SAVE = """
import pathlib, time
import orbax.checkpoint as ocp
from saddle_jax.cli.__main__ import run
save = ocp.StandardCheckpointer.save
def slow(self, folder, tree):
    save(self, folder, tree)
    if "00000060" in str(folder):
        pathlib.Path(folder).parents[2].joinpath("saving").touch()
        time.sleep(60)
ocp.StandardCheckpointer.save = slow
run()
"""


SETTINGS = {
    "model": "logistic",
    "agents": 3,
    "devices": 1,
    "epochs": 8,
    "checkpoint_every_steps": 10,
    "log_every_steps": 1,
    "eval_agents": "never",
}  # 120 steps
FLAGS = [f"--{name}={value}" for name, value in SETTINGS.items()]


def start(workdir, *extra, program=("-m", "saddle_jax.cli")):
    command = [sys.executable, *program, "train", f"--workdir={workdir}", *FLAGS, *extra]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def trained(workdir):
    """Trains, or goes on training, to the end in this process, and returns the result."""
    assert cli.main(["saddle", "train", "--quiet", f"--workdir={workdir}", *FLAGS]) == 0
    return json.loads((workdir / "result.json").read_text())


def wait_for_step(process, workdir, step):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        metrics = run_folder.read_metrics(workdir)
        if metrics and metrics[-1]["step"] >= step:
            return
        time.sleep(0.005)


def test_kill_minus_nine_again_and_again(tmp_path, unrendered):
    expected, workdir = trained(tmp_path / "whole"), tmp_path / "killed"
    for step in (1, 33):
        process = start(workdir)
        wait_for_step(process, workdir, step)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    twice_within_a_checkpoint(workdir)
    assert trained(workdir)["params_sha256"] == expected["params_sha256"]
    steps = [r["step"] for r in run_folder.read_metrics(workdir) if "train_loss" in r]
    assert steps == list(range(1, expected["steps"] + 1))


def twice_within_a_checkpoint(workdir):
    process = start(workdir, program=("-c", SLOW_TO_SAVE))
    deadline = time.monotonic() + 120
    while not (workdir / "saving").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    error = interrupt(process, signal.SIGINT, signal.SIGINT)
    assert (process.returncode, error) == (130, "saddle: interrupted\n")
    assert Checkpoints(workdir, 2).steps()[-1] == 50


def interrupt(process, *signals):
    """Sends them one after the other; what standard error says. The end must come soon."""
    for number in signals:
        if process.poll() is None:
            process.send_signal(number)
        time.sleep(0.5)
    try:
        return process.communicate(timeout=30)[1]
    finally:
        process.kill()


@pytest.mark.slow
def test_two_signals_at_any_moment_again_and_again(tmp_path):
    """With a checkpoint at every step most of them meet one that is being written."""
    often = ["--checkpoint_every_steps=1", "--epochs=40"]
    whole = start(tmp_path / "whole", *often)
    whole.communicate(timeout=600)
    workdir = tmp_path / "interrupted"
    kinds = [
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGINT, signal.SIGTERM),
        (signal.SIGTERM, signal.SIGTERM),
    ]
    for attempt in range(24):
        process = start(workdir, *often)
        wait_for_step(process, workdir, 10 * attempt + 2)
        time.sleep(0.03 * (attempt % 8))
        error = interrupt(process, *kinds[attempt % 3])
        assert process.returncode == 130, error
        assert error.count("\n") == 1, error
    last = start(workdir, *often)
    last.communicate(timeout=600)
    results = [json.loads((folder / "result.json").read_text()) for folder in (tmp_path / "whole", workdir)]
    assert results[0]["params_sha256"] == results[1]["params_sha256"]
    assert run_folder.read_metrics(workdir) == run_folder.read_metrics(tmp_path / "whole")


def test_being_asked_to_stop_saves_and_says_how_to_go_on(tmp_path, unrendered, capsys):
    for number, step in ((signal.SIGTERM, 5), (signal.SIGINT, 15)):
        process = start(tmp_path)
        wait_for_step(process, tmp_path, step)
        process.send_signal(number)
        out, error = process.communicate(timeout=120)
        assert process.returncode == 130, out + error
        assert "the same command goes on from step" in error
        assert "\x1b" not in out  # no control characters where there is no terminal
        assert "\r" not in out + error
        result = json.loads((tmp_path / "result.json").read_text())
        assert result["status"] == "interrupted"
        assert Checkpoints(tmp_path, 2).steps()[-1] == result["steps"]
    assert trained(tmp_path)["status"] == "finished"
    assert capsys.readouterr().out == ""


def test_a_disk_that_is_really_full(tmp_path):
    """No file may grow beyond 20 kB: orbax fails as it does on a full disk."""
    command = f"{sys.executable} -m saddle_jax.cli train --workdir={tmp_path / 'run'} --quiet --model=mlp"
    settings = "--epochs=1 --checkpoint_every_steps=3"
    environment = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 20; exec {command} {settings}"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 2, done.stderr
    # tensorstore's own threads may write before and behind it, on the same line
    lines = re.findall("saddle: .*", done.stderr)
    assert len(lines) == 1, done.stderr
    assert re.match(r"saddle: checkpoint .*00000003 could not be written .*; there is none yet", lines[0])
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
