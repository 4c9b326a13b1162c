"""bin/environment.py: what it installs, when it does not, and what an interruption leaves behind."""

import importlib.util
import json
import pathlib
import re
import runpy
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """The module, set on an empty project; venv and pip only leave a trace of having been called."""
    spec = importlib.util.spec_from_file_location("environment", ROOT / "bin" / "environment.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("pyproject.toml", "constraints.txt", "LICENSE", "NOTICE"):
        (tmp_path / name).write_text("first")
    venv = tmp_path / ".venv"
    paths = {"ROOT": tmp_path, "VENV": venv, "PYTHON": venv / "python", "INSTALLED": venv / "installed.json"}
    for name, path in paths.items():
        monkeypatch.setattr(module, name, path)
    monkeypatch.setenv("SADDLE_EXTRAS", "")  # whatever this machine has
    for name in ("PYTHONPATH", "SADDLE_INSTALL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "requirements").mkdir()
    calls, requirements, hashed = [], [], []

    def pretend(command, tell=None):
        if "--require-hashes" in command:
            hashed.append(pathlib.Path(command[-1]).name)
            return
        if "-c" in command:  # whether the package is there now
            if "nothing" in (tmp_path / "constraints.txt").read_text():
                module.real_call([sys.executable, "-S", *command[1:]], tell)
            return
        calls.append("pip" if "pip" in command else "venv")
        requirements.append(str(command[-1]))
        if calls[-1] == "venv":
            venv.mkdir()
            module.PYTHON.touch()
        elif "broken" in (tmp_path / "constraints.txt").read_text():
            raise subprocess.CalledProcessError(1, command)
        elif "interrupted" in (tmp_path / "constraints.txt").read_text():
            raise KeyboardInterrupt

    module.real_call = module._call
    monkeypatch.setattr(module, "_call", pretend)
    module.calls, module.requirements, module.hashed = calls, requirements, hashed
    return module


def test_first_use_installs_and_the_second_does_nothing(environment):
    environment.prepare()
    assert environment.calls == ["venv", "pip"]
    environment.prepare()
    assert environment.calls == ["venv", "pip"]


def test_an_environment_of_somebody_elses_is_left_as_it_is(environment, monkeypatch):
    monkeypatch.setenv("SADDLE_INSTALL", "no")
    environment.prepare("all", "test")
    assert environment.calls == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt", "NOTICE"])
def test_a_change_of_what_is_installed_installs_again_into_the_same_folder(environment, name):
    environment.prepare()
    (environment.ROOT / name).write_text("second")
    environment.prepare()
    assert environment.calls == ["venv", "pip", "pip"]


def test_what_has_hashes_is_installed_by_them_and_first(environment):
    environment.prepare()
    assert environment.hashed == []  # the few packages that the library alone needs
    environment.prepare("all")
    assert environment.hashed == ["build.txt", "all.txt"]
    environment.prepare("all", "test")
    assert environment.hashed[2:] == ["build.txt", "all.txt", "test.txt"]
    commands = environment._pip_commands(["all", "test"])
    assert all("--no-deps" in command for command in commands[:-1])  # nothing that is not listed
    assert all("--no-build-isolation" in command for command in commands)  # nor anything to build with
    assert "--no-build-isolation" not in environment._pip_commands(["all", "cuda"])[-1]


def test_a_change_of_hashes_installs_again(environment):
    environment.prepare("all")
    (environment.ROOT / "requirements" / "all.txt").write_text("other")
    environment.prepare("all")
    assert environment.calls == ["venv", "pip", "pip"]


VERSIONS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())


def test_every_version_has_hashes_and_every_hash_a_version():
    found = {}
    for path in (ROOT / "requirements").glob("*.txt"):
        lines = path.read_text().replace(" \\\n", " ").splitlines()
        for line in lines[1:]:
            pinned, *hashes = line.split()
            assert hashes, f"{pinned} in {path.name}"
            assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", each) for each in hashes)
            name, version = pinned.split("==")
            assert name not in found, f"{name} is in two files"
            found[name] = version
    assert found == VERSIONS  # bin/pins writes them anew


def test_an_installation_says_how_far_it_is(environment, capfd, monkeypatch):
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(environment.time, "monotonic", lambda: float(next(clock)))
    tell = environment._Installing()
    lines = ["Looking in indexes: x", "Collecting jax>=0.10 (from saddle_jax)", "", "Collecting flax"]
    lines += ["  Downloading jaxlib-0.10-cp311.whl (80.1 MB)", "Installing collected packages: a, b, c"]
    for line in lines:
        tell(line)
    said = capfd.readouterr().err.splitlines()
    assert said[-1].startswith("saddle: unpacking 3 packages (")
    assert any(
        re.fullmatch(r"saddle: package 2: \w+ (flax|jaxlib \(80.1 MB\)) \(\d+ s\)", line) for line in said
    )
    assert len(said) <= 3  # not a line for each line of pip


def test_what_a_command_prints_is_told_and_its_failure_is_told(environment):
    heard = []
    call = environment.real_call
    call([sys.executable, "-c", "print('one'); print('two')"], heard.append)
    assert heard == ["one\n", "two\n"]
    with pytest.raises(subprocess.CalledProcessError):
        call([sys.executable, "-c", "raise SystemExit(3)"], heard.append)


def test_extras_add_up(environment):
    environment.prepare()
    environment.prepare("test")
    environment.prepare()
    assert environment.calls == ["venv", "pip", "pip"]
    assert json.loads(environment.INSTALLED.read_text())["extras"] == ["test"]


def test_a_gpu_brings_jax_for_cuda_with_the_first_installation(environment, monkeypatch, nvidia_smi, capfd):
    monkeypatch.delenv("SADDLE_EXTRAS")
    nvidia_smi("GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)")
    environment.prepare("all")
    assert environment.requirements[-1] == f"{environment.ROOT}[all,cuda]"
    assert "found an NVIDIA GPU: installing JAX for CUDA" in capfd.readouterr().err
    environment.prepare("all")
    assert environment.calls == ["venv", "pip"]


def test_without_a_gpu_jax_is_that_of_the_cpu(environment, monkeypatch, nvidia_smi):
    monkeypatch.delenv("SADDLE_EXTRAS")
    nvidia_smi("No devices were found")
    environment.prepare("all")
    assert environment.requirements[-1] == f"{environment.ROOT}[all]"


def test_a_gpu_does_not_touch_what_is_installed_already(environment, monkeypatch, nvidia_smi):
    environment.prepare("all")  # on a machine without one, such as the first node of a cluster
    monkeypatch.delenv("SADDLE_EXTRAS")
    nvidia_smi("GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)")
    environment.prepare("all")
    assert environment.calls == ["venv", "pip"]


def test_the_environment_names_extras(environment, monkeypatch, nvidia_smi, capfd):
    (environment.ROOT / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    nvidia_smi("GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)")
    environment.prepare("all")  # SADDLE_EXTRAS is set, to nothing
    assert environment.requirements[-1] == f"{environment.ROOT}[all]"
    monkeypatch.setenv("SADDLE_EXTRAS", "bench, cuda")
    environment.prepare("all")
    assert environment.requirements[-1] == f"{environment.ROOT}[all,bench,cuda]"
    monkeypatch.setenv("SADDLE_EXTRAS", "cuda,gpu")
    allowed = "all, bench, cuda, data, docs, models, plan-cuda, plan-tpu, prepare, report, test, torch, train"
    capfd.readouterr()
    with pytest.raises(SystemExit, match=r"^2$"):
        environment.prepare("all")
    line = f"saddle: SADDLE_EXTRAS must be a list, with commas, of {allowed}, got gpu\n"
    assert capfd.readouterr().err == line
    assert environment.INSTALLED.exists()
    assert environment.calls == ["venv", "pip", "pip"]


@pytest.mark.parametrize(("trouble", "error"), [("broken", SystemExit), ("interrupted", KeyboardInterrupt)])
@pytest.mark.parametrize("installed_before", [False, True])
def test_trouble_leaves_no_half_that_looks_whole(environment, trouble, error, installed_before):
    if installed_before:
        environment.prepare()
    constraints = environment.ROOT / "constraints.txt"
    constraints.write_text(trouble)
    with pytest.raises(error):
        environment.prepare()
    assert not environment.INSTALLED.exists()
    constraints.write_text("mended")
    environment.calls.clear()
    environment.prepare()
    assert environment.calls == ["venv", "pip"]  # made anew


def test_an_installation_of_nothing_is_told_and_made_again(environment, capfd):
    constraints = environment.ROOT / "constraints.txt"
    constraints.write_text("nothing")
    with pytest.raises(SystemExit, match=r"^2$"):
        environment.prepare()
    *_, line = capfd.readouterr().err.splitlines()
    assert line == (
        f"saddle: setting up {environment.VENV} failed (ModuleNotFoundError: No module named 'saddle_jax'); "
        "run the command again to start over"
    )
    assert not environment.INSTALLED.exists()
    constraints.write_text("first")
    environment.prepare()
    assert environment.calls == ["venv", "pip"] * 2


def test_the_package_that_is_there_is_no_problem(environment):
    heard = []
    environment.real_call([sys.executable, "-P", "-c", environment._IMPORT], heard.append)
    assert heard == []


HOSTILE = "import pathlib; pathlib.Path('trapped').touch()"


def test_the_set_up_imports_nothing_from_the_current_folder(environment, tmp_path, monkeypatch):
    folder = tmp_path / "somebodys"
    folder.mkdir()
    for name in ("venv", "pip", "ensurepip", "pytest", "saddle_jax", "json", "shutil", "runpy"):
        (folder / f"{name}.py").write_text(HOSTILE)
    monkeypatch.chdir(folder)
    commands = []

    def note(command, tell=None):
        environment.VENV.mkdir(exist_ok=True)
        commands.append(command)

    monkeypatch.setattr(environment, "_call", note)
    environment.prepare("all", "test")
    assert len(commands) == 6
    *modules, check = [[sys.executable, *command[1:]] for command in commands]
    starts = [command[: command.index("-m") + 2] for command in modules]
    assert [start[-1] for start in starts] == ["venv", "pip", "pip", "pip", "pip"]
    for command in (*([*start, "--help"] for start in starts), check):
        environment.real_call(command, lambda line: None)
        assert not (folder / "trapped").exists(), command
    check.remove("-P")  # the trap works
    environment.real_call(check, lambda line: None)
    assert (folder / "trapped").exists()


def test_every_script_of_bin_calls_modules_without_the_current_folder(tmp_path, monkeypatch):
    for path in (ROOT / "bin").iterdir():
        if path.is_file():
            text = path.read_text()
            assert text.count('"-m"') == text.count('"-P", "-m"'), path.name
    (tmp_path / "pip.py").write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert runpy.run_path(str(ROOT / "bin" / "pins"))["index_of_pip"]().startswith("http")
    assert not (tmp_path / "trapped").exists()


def test_a_damaged_record_or_a_lost_python_is_made_anew(environment):
    environment.prepare()
    environment.INSTALLED.write_text("{")
    environment.prepare()
    environment.PYTHON.unlink()
    environment.prepare()
    moved = json.loads(environment.INSTALLED.read_text())
    environment.INSTALLED.write_text(json.dumps({**moved, "place": "elsewhere"}))
    environment.prepare()
    assert environment.calls == ["venv", "pip"] * 4


def test_an_old_python_is_refused_in_one_line(environment, monkeypatch, capfd):
    monkeypatch.setattr(environment.sys, "version_info", (3, 9, 1))
    monkeypatch.setattr(environment.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"^2$"):
        environment.prepare()
    assert "saddle: Python must be 3.11 or newer, got 3.9.1" in capfd.readouterr().err
    assert environment.calls == []


def test_a_checkout_that_cannot_be_written_to_is_told_in_one_line(environment, monkeypatch, capfd):
    (environment.ROOT / ".venv.lock").mkdir()
    with pytest.raises(SystemExit, match=r"^2$"):
        environment.prepare()
    assert capfd.readouterr().err.startswith(
        f"saddle: {environment.ROOT} must be a folder that can be written"
    )


def test_the_command_works_from_any_folder_and_through_a_link(tmp_path):
    if not (ROOT / ".venv" / "installed.json").exists():
        pytest.skip("this is not the .venv of bin/test")
    link = tmp_path / "saddle"
    link.symlink_to(ROOT / "bin" / "saddle")
    command = [sys.executable, link, "topology", "ring", "10"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith("ring(10): 10 agents")
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["saddle"]
