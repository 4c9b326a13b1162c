import pathlib
import re
import subprocess
import sys

import pytest

from saddle_jax.cli import __main__ as cli

GOOD = {
    "torus": (["topology", "torus", "40"], "torus(5, 8): 40 agents, degree 4"),
    "rows and columns": (["topology", "torus", "4", "8"], "torus(4, 8): 32 agents"),
    "ring": (["topology", "ring", "10"], "spectral gap 0.1273"),
    "version": (["version"], "0."),
    "bench": (["bench", "input", "--model=logistic", "--agents=3", "--batch_size=4"], "input / step = "),
    "help": (["--help"], "data partition"),
    "embedded": (["data", "prepare", "digits"], "nothing to prepare"),
}
BAD = {
    "nothing": ([], "VERB must be one of bench, data, topology, version, help, got ''"),
    "verb": (["fly"], "VERB must be one of bench, data, topology, version, help, got 'fly'"),
    "name": (["topology", "rng", "10"], "NAME must be one of ring, torus"),
    "no size": (["topology", "ring"], "SIZE must be a number of agents"),
    "size": (["topology", "ring", "ten"], "SIZE must be a number of agents"),
    "sizes": (["topology", "ring", "3", "4"], "SIZE must be a number of agents"),
    "small": (["topology", "ring", "1"], "n must be an integer >= 2, got 1"),
    "prime": (["topology", "torus", "7"], "got 7, a prime"),
    "bench": (["bench", "speed"], "CASE must be input, got 'speed'"),
    "data verb": (["data", "lst"], "data VERB must be one of list, prepare, show, partition, got 'lst'"),
    "data name": (["data", "show"], "arguments must be NAME and options, got nothing"),
    "option": (["data", "partition", "--agent=3"], "Unknown command line flag 'agent'"),
    "number": (["data", "partition", "--agents=x"], "flag --agents=x"),
    "dataset": (["data", "partition", "--dataset=digit"], "got 'digit'; did you mean 'digits'?"),
    "alpha": (["data", "partition", "--alpha=0"], "alpha must be a number > 0, got 0.0"),
    "agents": (["data", "partition", "--agents=5000"], "agents must be at most .* got 5000"),
    "plot": (["data", "partition", "--plot=/nowhere/x.png"], "plot must be a file .* got '/nowhere/x.png'"),
    "prepare": (["data", "prepare", "cifar10"], "pip install 'saddle_jax\\[prepare\\]'"),
}


@pytest.mark.parametrize("case", GOOD)
def test_verbs(case, capsys):
    arguments, expected = GOOD[case]
    assert cli.main(["saddle", *arguments]) == 0
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize("case", BAD)
def test_a_users_mistake_is_one_line_and_status_two(case, capsys):
    arguments, expected = BAD[case]
    assert cli.main(["saddle", *arguments]) == 2
    error = capsys.readouterr().err
    assert re.search(expected, error)
    assert error.count("\n") == 1


def test_data_is_listed_shown_and_dealt_out(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["saddle", "data", "list"]) == 0
    printed = capsys.readouterr().out
    assert "digits       embedded" in printed
    assert "cifar10      not prepared: saddle data prepare cifar10" in printed
    assert cli.main(["saddle", "data", "show", "digits"]) == 0
    assert "train     1,437 images 8x8x1, 135 to 154 per class" in capsys.readouterr().out
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
    command = ["data", "partition", "--agents=5", "--alpha=0.01", f"--plot={tmp_path / 'p.png'}"]
    assert cli.main(["saddle", *command]) == 0
    assert "dirichlet(5 agents, alpha=0.01, seed=0), fingerprint" in capsys.readouterr().out
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_as_a_process():
    command = [sys.executable, "-m", "saddle_jax.cli", "topology", "ring", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_the_installed_command_has_help_and_one_line_errors():
    command = [pathlib.Path(sys.executable).with_name("saddle")]
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
    assert "topology NAME SIZE" in done.stdout
    done = subprocess.run(
        [*command, "data", "partition", "--help"], capture_output=True, text=True, check=False
    )
    assert "--alpha" in done.stdout
    assert done.returncode == 0
    done = subprocess.run([*command, "topology", "ring", "-1"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
