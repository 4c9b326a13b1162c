"""How a GPU is found, and that training says so if it does not use one."""

import importlib.util
import subprocess

import pytest

from saddle_jax.cli import __main__
from saddle_jax.cli import train as verbs
from saddle_jax.devices import machine
from saddle_jax.settings.settings import Settings

ONE_GPU = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)"
SMALL = ["--model=logistic", "--epochs=1", "--subset=320", "--devices=1"]
WARNING = "saddle: JAX uses the CPU, and an NVIDIA GPU is here: "


@pytest.fixture(autouse=True)
def machine_without(tmp_path, monkeypatch):
    """Removes the driver, and every setting of what JAX should use."""
    monkeypatch.setattr(machine, "_DEVICE", tmp_path / "nvidia0")
    monkeypatch.setattr(machine, "_DRIVER", tmp_path / "driver")
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def train(folder):
    return __main__.main(["saddle", "train", f"--workdir={folder}", *SMALL])


def test_what_shows_a_gpu(tmp_path, nvidia_smi, monkeypatch):
    nvidia_smi("No devices were found")
    assert not machine.has_gpu()
    (tmp_path / "driver").mkdir()
    assert not machine.has_gpu()  # a driver, and nothing that it drives
    (tmp_path / "driver" / "0000:01:00.0").mkdir()
    assert machine.has_gpu()
    (tmp_path / "driver" / "0000:01:00.0").rmdir()
    (tmp_path / "nvidia0").touch()
    assert machine.has_gpu()
    (tmp_path / "nvidia0").unlink()
    nvidia_smi(ONE_GPU)
    assert machine.has_gpu()
    monkeypatch.setattr(machine.sys, "platform", "win32")  # JAX has no CUDA there
    assert not machine.has_gpu()


def test_a_driver_that_hangs_shows_none(nvidia_smi, monkeypatch):
    nvidia_smi(ONE_GPU)

    def hang(command, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(machine.subprocess, "run", hang)
    assert not machine.has_gpu()


def test_training_tells_in_one_line_that_a_gpu_is_not_used(tmp_path, nvidia_smi, capsys):
    nvidia_smi(ONE_GPU)
    assert train(tmp_path / "run") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(WARNING)
    assert "SADDLE_EXTRAS=cuda bin/saddle --version" in line


def test_jax_for_cuda_that_does_not_work_has_another_remedy(nvidia_smi, capsys, monkeypatch):
    nvidia_smi(ONE_GPU)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    verbs._tell_unused_gpu()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(WARNING)
    assert "tells what JAX for CUDA lacks" in line


@pytest.mark.parametrize(("name", "value"), [("JAX_PLATFORMS", "cpu"), ("CUDA_VISIBLE_DEVICES", "")])
def test_who_wants_the_cpu_is_told_nothing(nvidia_smi, capsys, monkeypatch, name, value):
    nvidia_smi(ONE_GPU)
    verbs._tell_unused_gpu()
    assert capsys.readouterr().err
    monkeypatch.setenv(name, value)
    verbs._tell_unused_gpu()
    assert not capsys.readouterr().err


def test_several_runs_tell_it_once(tmp_path, nvidia_smi, capsys, monkeypatch):
    nvidia_smi(ONE_GPU)
    monkeypatch.setattr(verbs, "run_training", lambda config, workdir, **_: {"status": "finished"})
    runs = {tmp_path / "one": Settings(), tmp_path / "two": Settings(seed=1)}
    assert verbs.run_several(runs, quiet=False) == ([], 0)
    assert capsys.readouterr().err.count(WARNING) == 1
    assert verbs.run_several(runs, quiet=True) == ([], 0)
    assert capsys.readouterr().err == ""
