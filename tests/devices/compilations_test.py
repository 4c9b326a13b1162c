"""What a start compiles, and that the next one takes it from the cache folder with the same numbers."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import pytest

from saddle_jax.devices import compilations
from saddle_jax.settings.config import Config
from saddle_jax.training.loop import train as train_here
from saddle_jax.training.progress import Screen

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = {"model": "mlp", "agents": 4, "epochs": 1, "subset": 200}


def saddle(cache, *arguments, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SADDLE_CACHE_DIR": str(cache), **variables}
    if "JAX_COMPILATION_CACHE_DIR" not in variables:
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, "-P", "-m", "saddle_jax.cli", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def train(cache, workdir, **variables):
    settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
    done = saddle(cache, "train", *settings, f"--workdir={workdir}", **variables)
    assert done.returncode == 0, done.stderr
    result = json.loads((workdir / "result.json").read_text())
    return {name: value for name, value in result.items() if "seconds" not in name}, done.stderr


def kept(cache):
    return {path.name: path.stat().st_mtime_ns for path in cache.rglob("*-cache")}


def test_the_second_start_compiles_nothing_and_gives_the_same_bits(tmp_path):
    cache = tmp_path / "cache"
    first, _ = train(cache, tmp_path / "first")
    programs = kept(cache)
    assert any(name.startswith("jit_run_steps") for name in programs)
    second, said = train(cache, tmp_path / "second")
    assert kept(cache) == programs  # nothing was compiled that was not there
    assert said == ""  # nor does XLA warn of a program that was compiled elsewhere
    without, _ = train(tmp_path / "none", tmp_path / "without", JAX_ENABLE_COMPILATION_CACHE="0")
    assert not (tmp_path / "none" / "compiled").exists()
    assert first == second == without


def test_programs_that_are_cut_off_are_compiled_again(tmp_path):
    cache = tmp_path / "cache"
    first, _ = train(cache, tmp_path / "first")
    for path in cache.rglob("*-cache"):
        path.write_bytes(path.read_bytes()[:-20])
    second, said = train(cache, tmp_path / "second")
    assert (second, said) == (first, "")


def test_a_folder_that_others_can_write_to_keeps_nothing(tmp_path):
    cache = tmp_path / "open"
    cache.mkdir()
    cache.chmod(0o777)
    done = saddle(cache, "check")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("cache"))
    assert "missing" in line
    assert "every start compiles anew" in done.stdout
    assert not (cache / "compiled").exists()


def test_a_folder_that_the_user_names_is_left_to_jax(tmp_path, monkeypatch):
    monkeypatch.setenv("SADDLE_CACHE_DIR", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", "/named/by/the/user")
        assert compilations.keep_compiled() is None
        assert jax.config.jax_compilation_cache_dir == "/named/by/the/user"
        assert not [*tmp_path.iterdir()]
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_what_was_not_used_for_the_longest_time_is_removed(tmp_path):
    for number in range(5):
        path = tmp_path / f"jaxlib-{number % 2}" / f"{number}-cache"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 100)
        os.utime(path, (1000 + number, 500))
    compilations._remove_oldest(tmp_path, largest=250)
    assert {path.name for path in tmp_path.rglob("*-cache")} == {"3-cache", "4-cache"}


@pytest.mark.parametrize("devices", ["1", "2"])
def test_a_start_compiles_few_programs(tmp_path, devices):
    if jax.device_count() < int(devices):
        pytest.skip(f"there are fewer than {devices} devices")
    jax.clear_caches()
    marks = []

    class Noting(Screen):
        def line(self, text):
            if text.startswith("ready in"):
                marks.append(len(programs))

    with compilations.compilations() as programs:
        train_here(Config(**SETTINGS, devices=devices), tmp_path / "run", Noting(quiet=True))
    assert marks[0] <= 12, programs[: marks[0]]
    assert len(programs) <= 20, programs
