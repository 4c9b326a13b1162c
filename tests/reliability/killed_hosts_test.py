"""Class D: runs over two processes of which one is killed, and ports that are in use."""

import json
import pathlib
import random
import signal
import socket
import sys
import time

import pytest

from saddle_jax.runs.checkpoints import Checkpoints

sys.path.append(str(pathlib.Path(__file__).parents[1] / "devices"))
import hosts_test
from hosts_test import ends, free_port, saddle_train

CLASS = "D"
pytestmark = pytest.mark.slow
FEWER = ("--epochs=8", "--checkpoint_every_steps=10", "--eval_every_epochs=8")


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """These tests may share a machine with others, and start sixteen processes one after the other."""
    monkeypatch.setattr(hosts_test, "ENOUGH", 400)


def pair(workdir):
    port = free_port()
    return [saddle_train(port, process, workdir, *FEWER) for process in (0, 1)]


def outcome(workdir):
    result = json.loads((workdir / "result.json").read_text())
    return {name: value for name, value in result.items() if not name.endswith("seconds")}


def newest(workdir):
    return max([0, *Checkpoints(workdir, 1).steps()])


def kill_one(workdir, which, wait):
    """Kills a process once both have come further than before; returns how the other one ended."""
    before, both = newest(workdir), pair(workdir)
    deadline = time.monotonic() + 100
    while newest(workdir) == before and all(one.poll() is None for one in both):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(wait)
    both[which].send_signal(signal.SIGKILL)
    return ends(both)[1 - which]


def test_either_of_two_processes_is_killed_again_and_again(attack, tmp_path):
    for status, _, error in ends(pair(tmp_path / "whole")):
        assert status == 0, error
    expected, chance, workdir = outcome(tmp_path / "whole"), random.Random(4), tmp_path / "killed"
    for number in range(6):
        with attack.attempt(f"kill {number} of process {number % 2}"):
            status, _, error = kill_one(workdir, number % 2, chance.uniform(0.0, 0.3))
            assert status not in (1, 70, None), error
            assert "Traceback" not in error, error
            if status != 2:  # JAX may notice first, and ends the process from C++; docs/devices.md says so
                assert status in (0, -6), (status, error)
                assert status == 0 or "coordination" in error, error
            else:
                assert "another process has ended or cannot be reached" in error, error
    with attack.attempt("the end"):
        for status, _, error in ends(pair(workdir)):
            assert (status, error) == (0, "")
        assert outcome(workdir) == expected


def test_a_port_in_use(attack, tmp_path):
    for number in range(5):
        with attack.attempt(f"port {number}"), socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            ((status, _, error),) = ends([saddle_train(port, 0, tmp_path / "run", *FEWER)])
            assert status == 2, (status, error)
            assert error.count("\n") == 1
            assert "the port of coordinator must be free" in error
            assert not (tmp_path / "run").exists()
