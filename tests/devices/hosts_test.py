"""One run over two processes with two devices each, for real, over gloo; what happens when one is missing."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import chex
import jax
import pytest

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import DamagedError, RunError
from saddle_jax.cli import train as cli_train
from saddle_jax.devices import hosts, placement
from saddle_jax.runs import run_folder
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop, reopen
from saddle_jax.training.progress import Screen

# Five agents on three of four devices, two of one process and one of the other; one agent is idle. A vote, on
# all four, comes with every step.
SETTINGS = Settings(
    agents=5,
    model="logistic",
    epochs=20,
    checkpoint_every_steps=40,
    log_every_steps=1,
    eval_agents="never",
    eval_every_epochs=10,
)
ENOUGH = 300  # seconds: no process of these tests may live longer


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def start(command):
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "2"}
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def saddle_train(port, process, workdir, *extra):
    changed = {n: v for n, v in SETTINGS.to_json().items() if v != Settings().to_json()[n]}
    settings = [f"--{name}={value}" for name, value in changed.items()]
    hosts_flags = [f"--coordinator=localhost:{port}", "--processes=2", f"--process={process}"]
    limits = ["--join_timeout=60", "--heartbeat_timeout=20"]
    return start(
        ["-m", "saddle_jax.cli", "train", f"--workdir={workdir}", *hosts_flags, *limits, *settings, *extra]
    )


def ends(processes):
    """Exit status, output and errors of each, within a bound."""
    results = []
    try:
        for process in processes:
            out, error = process.communicate(timeout=ENOUGH)
            results.append((process.returncode, out, error))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return results


def models(workdir):
    _, _, params = reopen.open_run(workdir, pytest.fail)
    return params


def test_two_processes_go_on_as_one_does(tmp_path, monkeypatch):
    alone = loop.train(SETTINGS, tmp_path / "alone", Screen(quiet=True))  # on this process's four devices
    advance, workdir = loop._Run._advance, tmp_path / "together"

    def stop(self, *arguments):
        advance(self, *arguments)
        if self.step > 50:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop._Run, "_advance", stop)
    with pytest.raises(KeyboardInterrupt):
        loop.train(SETTINGS, workdir, Screen(quiet=True))
    assert not (workdir / "result.json").exists()

    port = free_port()
    (status, out, error), silent = ends([saddle_train(port, process, workdir) for process in (0, 1)])
    assert status == 0, error
    assert silent == (0, "", "")
    assert "3 x cpu, of 2 processes, 2 agents on each, 1 idle" in out
    assert "going on from step" in out
    result = json.loads((workdir / "result.json").read_text())
    for name in ("steps", "bytes_sent_per_agent"):
        assert result[name] == alone[name]
    assert result["test_loss"] == pytest.approx(alone["test_loss"], rel=1e-4)
    steps = [r["step"] for r in run_folder.read_metrics(workdir) if "train_loss" in r]
    assert steps == list(range(1, alone["steps"] + 1))
    assert len(list((workdir / "tensorboard").iterdir())) == 2  # one writer, started twice
    assert not list(workdir.glob(".shared-*"))
    chex.assert_trees_all_close(models(workdir), models(tmp_path / "alone"), rtol=1e-5, atol=1e-6)


def test_two_processes_agree_and_one_notices_that_the_other_is_killed(tmp_path):
    port, program = free_port(), pathlib.Path(__file__).parents[1] / "hosts_peer.py"
    peers = [start([program, port, 2, process, tmp_path]) for process in (0, 1)]
    (status, out, error), (killed, _, silent) = ends(peers)
    assert (killed, silent) == (-signal.SIGKILL, "")
    assert status not in (0, None)
    assert "another process has ended or cannot be reached" in error or "another task died" in error, error
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_training_ends_together(tmp_path, monkeypatch, capfd):
    def fail(*_, **__):
        raise RunError("no room")

    monkeypatch.setattr(loop, "train", fail)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(hosts, "end_at_once", sys.exit)
    with pytest.raises(SystemExit, match=r"^2$"):
        cli_train.run_training(SETTINGS, tmp_path, quiet=True)
    assert capfd.readouterr().err == "saddle: process 0: no room\n"


def test_processes_with_other_settings_are_refused_and_nothing_is_written(tmp_path, monkeypatch):
    def gather(text):
        return [text, text.replace('"batch_size": 32', '"batch_size": 64') if text[0] == "{" else "a hash"]

    monkeypatch.setattr(hosts, "gather", gather)
    with pytest.raises(
        hosts.AgreedError, match="the same batch_size, got 32 on process 0 and 64 on process 1"
    ):
        loop.train(SETTINGS, tmp_path / "run", Screen(quiet=True))
    assert not (tmp_path / "run").exists()


def test_process_0_does_not_wait_forever():
    """JAX waits in C++: only a process of its own shows that it ends."""
    port = free_port()
    program = f"from saddle_jax.devices import hosts; hosts.join('localhost:{port}', 2, 0, timeout=1)"
    [(status, _, error)] = ends([start(["-c", program])])
    assert status == 2
    line = f"saddle: process 0 of 2 waited 1 s at localhost:{port}, and not all of them came\n"
    assert error == line


def test_process_1_tells_that_process_0_does_not_answer(monkeypatch, capfd):
    monkeypatch.setattr(hosts, "end_at_once", sys.exit)
    address = f"localhost:{free_port()}"
    options = {"coordinator_address": address, "num_processes": 2, "process_id": 1}
    with pytest.raises(SystemExit, match=r"^2$"):
        hosts._end_without_the_others(options, 60)
    line = f"saddle: process 1 of 2 waited 60 s at {address}, and not all of them came; process 0 does not"
    assert capfd.readouterr().err.startswith(line)


def test_one_process_does_as_before():
    assert jax.process_count() == 1
    assert hosts.gather("a") == ["a"]
    assert hosts.Vote()(True, due=False) is True
    with pytest.raises(RuntimeError, match="as it was"), hosts.exit_together(), hosts.agreement():
        raise RuntimeError("as it was")


LOST = "UNKNOWN: Gloo all-reduce failed: Connection closed by peer [127.0.0.1]:1"


def test_a_lost_process_is_known_by_the_text_of_any_error(monkeypatch, capfd):
    assert not hosts.is_lost(ValueError(LOST))  # alone there is nobody to be lost
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert hosts.is_lost(ValueError(LOST))
    assert hosts.is_lost(jax.errors.JaxRuntimeError("UNAVAILABLE: no route"))
    assert not hosts.is_lost(ValueError("agents must be at least 1"))
    assert not hosts.is_lost(KeyboardInterrupt())
    monkeypatch.setattr(hosts, "end_at_once", sys.exit)
    with pytest.raises(SystemExit, match=r"^2$"), hosts.exit_together():
        raise ValueError(LOST)
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("saddle: process 0: another process has ended or cannot be reached (UNKNOWN: Gloo")
    assert told.endswith("start all of them again to resume from the newest checkpoint\n")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RunError("a"), 2),
        (ArgumentError("a"), 2),
        (OSError(28, "full", "a"), 2),
        (DamagedError("a"), 3),
        (KeyboardInterrupt(), 130),
        (ValueError("a"), 70),
        (ZeroDivisionError("a"), 70),
    ],
    ids=lambda value: type(value).__name__,
)
def test_one_of_several_processes_ends_with_the_status_of_its_error(error, status, monkeypatch, capfd):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(hosts, "end_at_once", sys.exit)
    with pytest.raises(SystemExit, match=rf"^{status}$"), hosts.exit_together():
        raise error
    told = capfd.readouterr().err
    assert ("Traceback" in told) == (status == 70)
    assert told.splitlines()[-1].startswith("saddle: process 0: ")
    assert (told.count("\n") == 1) == (status != 70)


def test_a_process_without_agents_is_refused(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match=r"each of the 2 processes needs agents .* but 1 agents use 1 dev"):
        placement.place(1, batch_size=8)
