"""Settings files, variables and names around a command that cannot be used: one line, status 2."""

import io
import math
import os
import pathlib
import subprocess
import sys

import forked
import pytest
from folders import write_run

from saddle_jax.base.checks import ArgumentError
from saddle_jax.cli import __main__ as cli
from saddle_jax.cli import process
from saddle_jax.settings.settings import Settings, load_settings

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANY = "9" * 400


def saddle(*arguments, **variables):
    command = [sys.executable, "-m", "saddle_jax.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("JAX_NUM_CPU_DEVICES", "abc", 'Invalid value "abc" for JAX flag jax_num_cpu_devices'),
        ("JAX_NUM_CPU_DEVICES", "0", "JAX_NUM_CPU_DEVICES in the environment must be at least 1, got 0"),
        (
            "XLA_FLAGS",
            "--nonsense",
            "XLA cannot use XLA_FLAGS of the environment: Unknown flag in XLA_FLAGS: ",
        ),
    ],
)
def test_variables_that_jax_does_not_understand(name, value, told):
    done = saddle("topology", "ring", "4", **{name: value})
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_platform_that_is_not_here(tmp_path):
    done = saddle("train", "--model=mlp", f"--workdir={tmp_path / 'run'}", JAX_PLATFORMS="cuda")
    assert done.returncode == 2, done.stderr
    assert "JAX cannot use the devices which JAX_PLATFORMS=cuda asks for" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("saddle: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    assert process.unusable_devices() is None  # here there are some


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", f"--epochs={MANY}"], "epochs must be an integer >= 1 and <= 2147483647, got 9"),
        (["train", "--epochs=2000000000"], "epochs must be at most 429,496,729 with 5 steps each"),
        (["train", f"--seeds={','.join(map(str, range(20_000)))}"], "at most 4,096 runs in one pro"),
        (["train", f"--seeds={'0' * 5000}"], "seeds must be whole numbers >= 0 with commas between"),
        (["train", f"--devices={'1' * 5000}"], "devices must be auto or a whole number >= 1, got"),
        (["topology", "ring", "4" * 5000], "AGENTS"),
        (["train", f"--method.compressor=quantize{'4' * 5000}"], "method"),
        (
            ["reproduce", "theory", f"--steps={MANY}"],
            "steps must be an integer >= 1 and <= 1000000",
        ),
        (["landscape", "run", "--points=100000001"], "points must be an integer >= 3 and <= 2001, got 1000"),
        (["list", ".", "--flagfile=binary"], "flagfile must be a text of options"),
        (["list", ".", "--flagfile=pipe"], "flagfile must be a file, got 'pipe'"),
        (["report", "run", "--output=."], "output must be a file, new or to be replaced, got '.'"),
        (["report", "run", "--output=/"], "output must be a file, new or to be replaced, got '/'"),
        (["export", "run", "--output=."], "output must be a file, new or to be replaced, got '.'"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_numbers_and_files_that_cannot_be(arguments, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    (tmp_path / "binary").write_bytes(b"\x7fELF\xd0\x00")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert cli.main(["saddle", *arguments]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_value_as_long_as_a_book_is_shown_by_its_ends(capsys):
    assert cli.main(["saddle", "settings", f"--schedule={'a' * 50_000}{'z' * 50_000}"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("saddle: schedule must be one of step, ")
    assert " ... " in told
    assert told.endswith("zzz'\n")
    assert len(told) < 2_000


SETTINGS = """
from saddle_jax.settings.settings import Settings
def get_config(variant=""):
    return Settings(seed=len(variant))
"""


def test_a_settings_file_that_ends_the_program(tmp_path):
    for program in ("import sys; sys.exit(0)", "raise SystemExit", "def get_config():\n    exit()"):
        (tmp_path / "a.py").write_text(program)
        with pytest.raises(ArgumentError, match=r"config .*a\.py: SystemExit: "):
            load_settings(str(tmp_path / "a.py"))


def test_colons_in_the_path_of_a_settings_file(tmp_path):
    (tmp_path / "a:b").mkdir()
    for name in ("c.py", "c:d.py"):
        path = tmp_path / "a:b" / name
        path.write_text(SETTINGS)
        assert load_settings(str(path)).seed == 0
        assert load_settings(f"{path}:xyz").seed == 3
        assert load_settings(f"{path}:x:z").seed == 3
    for text in (":", "a:b", "", "\0", f"{tmp_path}:x"):
        with pytest.raises(ArgumentError, match="config must be a file"):
            load_settings(text)


def test_so_many_runs_are_told_from_their_settings_alone():
    assert len(Settings(seeds="0,1", sweep="method.rho=0.1,0.2 learning_rate=0.1,0.2,0.3").each()) == 12
    sweep = " ".join(
        f"{name}={','.join(map(str, range(1, 18)))}"
        for name in ("method.rho", "learning_rate", "method.weight_decay")
    )
    with pytest.raises(ArgumentError, match="at most 4,096 runs in one program, got 4,913"):
        Settings(sweep=sweep)
    assert math.prod([17, 17, 17]) == 4913


def test_what_matplotlib_warns_of_is_not_shown(tmp_path):
    """Numbers that cannot be drawn as they are: no bytes on a logarithmic axis, and a huge loss."""
    lines = [{"step": 1, "epoch": 0.5, "train_loss": 1e308}, {"step": 2, "epoch": 1.0, "train_loss": 1.0}]
    run = write_run(tmp_path / "run", lines=lines, result={"bytes_sent_per_agent": 0})
    for kind in ("bits", "curves"):
        done = forked.run("figure", kind, run, f"--output={tmp_path / kind}.png")
        assert (done.returncode, done.stderr) == (0, "")


NOT_UTF8 = os.fsdecode(b"run-\xff")


@pytest.mark.parametrize("verb", ["list", "report", "figure", "evaluate", "train"])
def test_folders_whose_names_are_no_utf8(verb, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / NOT_UTF8)
    arguments = {"list": ["."], "figure": ["curves", NOT_UTF8, "--output=o.png"]}.get(verb, [NOT_UTF8])
    if verb == "train":
        arguments = ["--model=logistic", f"--workdir={NOT_UTF8}-2", "--quiet"]
    opens = verb in ("evaluate", "train")
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), errors="backslashreplace"))
    assert cli.main(["saddle", verb, *arguments]) == (2 if opens else 0)
    error = capsys.readouterr().err
    assert ("cannot hold checkpoints: its path must be UTF-8" in error) == opens
    assert error.count("\n") == opens
    assert not (tmp_path / f"{NOT_UTF8}-2").exists()


def test_streams_that_are_closed_are_not_taken_for_other_files(tmp_path):
    """A file that is opened while standard error is closed would get its number, and our lines."""
    write_run(tmp_path / "run")
    program = (
        "import os, sys\nos.close(2)\nos.close(0)\nsys.stderr = None\n"
        "from saddle_jax.cli import process\nprocess.mend_streams()\n"
        f"first = os.open({str(tmp_path / 'x')!r}, os.O_CREAT | os.O_WRONLY)\nsys.exit(first)\n"
    )
    assert forked.run(program=program).returncode >= 3
