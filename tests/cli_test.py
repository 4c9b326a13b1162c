import pathlib
import subprocess
import sys

import pytest

from saddle_jax import cli

GOOD = {
    "torus": (["topology", "torus", "40"], "torus(5, 8): 40 agents, degree 4"),
    "rows and columns": (["topology", "torus", "4", "8"], "torus(4, 8): 32 agents"),
    "ring": (["topology", "ring", "10"], "spectral gap 0.1273"),
    "version": (["version"], "0."),
}
BAD = {
    "nothing": ([], "VERB must be one of topology, version, got ''"),
    "verb": (["fly"], "VERB must be one of topology, version, got 'fly'"),
    "name": (["topology", "rng", "10"], "NAME must be one of ring, torus"),
    "no size": (["topology", "ring"], "SIZE must be a number of agents"),
    "size": (["topology", "ring", "ten"], "SIZE must be a number of agents"),
    "sizes": (["topology", "ring", "3", "4"], "SIZE must be a number of agents"),
    "small": (["topology", "ring", "1"], "n must be an integer >= 2, got 1"),
    "prime": (["topology", "torus", "7"], "got 7, a prime"),
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
    printed = capsys.readouterr()
    assert expected in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out


def test_the_command_as_a_process():
    command = [sys.executable, "-m", "saddle_jax.cli", "topology", "ring", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_the_installed_command_has_help_and_one_line_errors():
    command = [pathlib.Path(sys.executable).with_name("saddle")]
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
    assert "topology NAME SIZE" in done.stdout
    done = subprocess.run([*command, "topology", "ring", "-1"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
