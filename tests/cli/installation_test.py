"""`saddle check` tells what works, what is missing and how to install it, and never fails itself."""

import json
import sys

import pytest

from saddle_jax.cli import __main__ as cli
from saddle_jax.devices import machine
from saddle_jax.kernels import native
from saddle_jax.report import health


def findings(capsys, status=0):
    assert cli.main(["saddle", "check", "--json"]) == status
    told = capsys.readouterr()
    assert told.err == ""
    found = json.loads(told.out)
    assert found["usable"] == (status == 0)
    return {one["what"]: one for one in found["findings"]}


def test_here_everything_works(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SADDLE_CACHE_DIR", str(tmp_path / "cache"))
    found = findings(capsys)
    assert {
        "saddle_jax",
        "Python",
        "platform",
        "packages",
        "devices",
        "memory",
        "cache",
        "data",
    } <= found.keys()
    assert sys.executable in found["Python"]["seen"]
    assert found["extra train"]["state"] == found["extra report"]["state"] == "ok"
    assert found["cache"] == {
        "what": "cache", "state": "ok", "seen": f"{tmp_path / 'cache'}, empty", "remedy": "",
    }  # fmt: skip
    assert not (tmp_path / "cache").exists()
    assert cli.main(["saddle", "check"]) == 0
    assert "saddle works here" in capsys.readouterr().out


def test_a_gpu_that_jax_does_not_use(capsys, monkeypatch, nvidia_smi):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: None)
    nvidia_smi("GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)")
    (found,) = [one for one in health._devices() if one.what == "GPU"]
    assert found.state == "missing"
    assert "pip install 'saddle_jax[cuda]'" in found.remedy
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (found,) = [one for one in health._devices() if one.what == "GPU"]
    assert (found.state, found.remedy) == ("ok", "")


def test_what_is_missing_comes_with_the_command_that_installs_it(capsys, monkeypatch):
    monkeypatch.setattr(health, "_is_there", lambda name: name != "matplotlib")
    found = findings(capsys)["extra report"]
    assert (found["state"], found["seen"]) == ("missing", "not installed: matplotlib")
    assert found["remedy"] == f"{sys.executable} -m pip install 'saddle_jax[report]'"
    assert cli.main(["saddle", "check", "--quiet"]) == 0
    assert f"extra report: {found['remedy']}\n" in capsys.readouterr().out


def test_what_is_needed_and_broken_is_told_and_status_two(capsys, monkeypatch):
    monkeypatch.setattr(health, "_NEEDED", ("jax", "no-such-package"))

    def broken():
        raise RuntimeError("no backend\nis here")

    monkeypatch.setattr(health, "_devices", broken)
    found = findings(capsys, status=2)
    assert found["packages"]["seen"] == "not installed: no-such-package"
    assert (found["devices"]["state"], found["devices"]["seen"]) == (
        "broken",
        "RuntimeError: no backend is here",
    )


def test_no_compiler_and_no_cache_are_no_reason_to_give_up(capsys, monkeypatch, tmp_path):
    def none():
        raise native.UnavailableError("no C++ compiler was found (c++): install g++")

    (tmp_path / "file").write_text("x" * 1000)
    monkeypatch.setattr(native, "program", none)
    monkeypatch.setenv("SADDLE_CACHE_DIR", str(tmp_path / "file" / "below"))
    found = findings(capsys)
    assert found["compiler"]["state"] == "missing"
    assert "install g++" in found["compiler"]["seen"]
    assert found["cache"]["state"] == "missing"
    assert "SADDLE_CACHE_DIR" in found["cache"]["remedy"]
    monkeypatch.setenv("SADDLE_CACHE_DIR", str(tmp_path))
    assert findings(capsys)["cache"]["seen"] == f"{tmp_path}, 1.00 kB in 1 files"


@pytest.mark.parametrize("prepared", [True, False])
def test_data_that_is_found_and_data_that_is_not(capsys, monkeypatch, tmp_path, prepared):
    monkeypatch.setattr(
        "saddle_jax.data.sources.states",
        lambda folder: {
            "digits": "embedded, always there",
            "cifar10": "prepared: x" if prepared else "not prepared",
        },
    )
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    found = findings(capsys)["data"]
    assert found["state"] == ("ok" if prepared else "missing")
    assert found["seen"] == (
        f"prepared in {tmp_path}: cifar10" if prepared else f"not in {tmp_path}: cifar10"
    )
