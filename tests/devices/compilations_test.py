"""What a start compiles, and that the next one takes it from the cache folder with the same numbers."""

import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import jax
import pytest

from saddle_jax.devices import compilations
from saddle_jax.report import health
from saddle_jax.settings.settings import Settings
from saddle_jax.training.loop import train as train_here
from saddle_jax.training.progress import Screen

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = {"model": "logistic", "agents": 8, "epochs": 1, "subset": 320}


class Noting(Screen):
    """Notes how many programs have been compiled when the first step can be taken."""

    def __init__(self, programs):
        super().__init__(quiet=True)
        self.programs, self.at_start = programs, 0

    def line(self, text):
        if text.startswith("ready in"):
            self.at_start = len(self.programs)


@functools.cache
def trained_here(devices):
    """The result on some of this process's devices, all compiled programs, and how many the start takes."""
    jax.clear_caches()
    with compilations.compilations() as programs, tempfile.TemporaryDirectory() as folder:
        screen = Noting(programs)
        result = train_here(Settings(**SETTINGS, devices=devices), pathlib.Path(folder) / "run", screen)
    return result, programs, screen.at_start


def train(cache, workdir):
    """Trains on eight devices, in a process of its own: this one has four."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SADDLE_CACHE_DIR": str(cache)}
    environment["JAX_NUM_CPU_DEVICES"] = "8"
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
    command = [sys.executable, "-P", "-m", "saddle_jax.cli", "train", *settings, f"--workdir={workdir}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((workdir / "result.json").read_text())
    return {name: value for name, value in result.items() if "seconds" not in name}, done.stderr


def kept(cache):
    return {path.name: path.stat().st_mtime_ns for path in cache.rglob("*-cache")}


def test_the_second_start_compiles_only_what_is_damaged_and_gives_the_same_bits(tmp_path):
    cache = tmp_path / "cache"
    first, _ = train(cache, tmp_path / "first")
    programs = kept(cache)
    assert any(name.startswith("jit_run_steps") for name in programs)
    damaged = sorted(cache.rglob("*-cache"))[::4]
    for path in damaged:
        path.write_bytes(path.read_bytes()[:-20])
        programs.pop(path.name)
    second, said = train(cache, tmp_path / "second")
    assert second == first
    assert said == ""  # nor does XLA warn of a program that was compiled elsewhere
    again = kept(cache)
    assert {name: again[name] for name in programs} == programs
    assert again.keys() - programs.keys() == {path.name for path in damaged}  # no other name is new
    alone, _, _ = trained_here("1")
    assert first["test_loss"] == pytest.approx(alone["test_loss"], rel=1e-5)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder for this process, which JAX does not use yet."""
    monkeypatch.setenv("SADDLE_CACHE_DIR", str(tmp_path / "cache"))
    names = ("jax_compilation_cache_dir", "jax_enable_compilation_cache")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path / "cache"
    for name, value in before.items():
        jax.config.update(name, value)


def test_a_folder_that_others_can_write_to_keeps_nothing(cache):
    cache.mkdir()
    cache.chmod(0o777)
    (found,) = health._caches()
    assert (found.what, found.state) == ("cache", "missing")
    assert "every start compiles anew" in found.seen
    assert not (cache / "compiled").exists()
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("jax_compilation_cache_dir", "/named/by/the/user"), ("jax_enable_compilation_cache", False)],
)
def test_what_the_user_says_of_the_cache_is_left_to_jax(cache, name, value):
    jax.config.update(name, value)
    before = jax.config.jax_compilation_cache_dir
    assert compilations.keep_compiled() is None
    assert jax.config.jax_compilation_cache_dir == before
    assert not cache.exists()


def test_what_was_not_used_for_the_longest_time_is_removed(tmp_path):
    for number in range(5):
        path = tmp_path / f"jaxlib-{number % 2}" / f"{number}-cache"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 100)
        os.utime(path, (1000 + number, 500))
    compilations._remove_oldest(tmp_path, largest=250)
    assert {path.name for path in tmp_path.rglob("*-cache")} == {"3-cache", "4-cache"}


@pytest.mark.parametrize("devices", ["1", "2"])
def test_a_start_compiles_few_programs(devices):
    _, programs, at_start = trained_here(devices)
    assert 0 < at_start <= 12, programs[:at_start]
    assert len(programs) <= 20, programs
