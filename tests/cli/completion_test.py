"""Shells complete verbs, options, settings and values by asking `saddle __complete`."""

import os
import shutil
import subprocess
import sys

import pytest

from saddle_jax.cli import __main__ as cli
from saddle_jax.cli.complete import complete

BASH = shutil.which("bash")
COMPLETED = {
    "verbs": (["tr"], ["train"]),
    "all verbs": (["s"], ["serve", "settings", "sharpness"]),
    "nothing yet": (["land", ""], []),
    "options": (["list", "--q"], ["--quiet"]),
    "help": (["list", "--h"], ["--help"]),
    "settings": (["train", "--learn"], ["--learning_rate="]),
    "of compare": (["compare", "--tim"], ["--timing="]),
    "not of compare": (["compare", "--sw"], []),
    "no settings": (["list", "--learn"], []),
    "values": (["train", "--method=q_"], ["--method=q_saddle"]),
    "values as bash has them": (["train", "--method", "=", "q_"], ["q_saddle"]),
    "after =": (["sharpness", "--data", "="], ["train", "own"]),
    "all values": (["train", "--schedule=co"], ["--schedule=constant", "--schedule=cosine"]),
    "of no name": (["train", "--learning_rate=0"], []),
    "verbs of verbs": (["data", "pa"], ["partition"]),
    "beside a verb": (["reproduce", "co"], ["costs"]),
    "their options": (["data", "partition", "--par"], ["--partition="]),
    "files": (["report", "ru"], []),  # the shell completes them itself
    "no verb": (["fly", "--q"], []),
}


@pytest.mark.parametrize("case", COMPLETED)
def test_what_the_last_word_may_become(case):
    words, expected = COMPLETED[case]
    assert sorted(complete(words)) == sorted(expected)


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_bash_asks_and_offers(capsys, tmp_path):
    assert cli.main(["saddle", "--completion=bash"]) == 0
    program = tmp_path / "saddle"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m saddle_jax.cli "$@"\n')
    program.chmod(0o755)
    asked = (
        f"compopt() {{ :; }}\nCOMP_WORDS=({program} data partition --par); COMP_CWORD=3; _saddle\n"
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    script = capsys.readouterr().out + asked
    done = subprocess.run([BASH, "--norc", "-u"], input=script, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("--partition=\n", "")


def test_nothing_heavy_is_imported_for_it():
    program = """
import sys
from saddle_jax.cli.__main__ import main
for words in sys.argv[1:]:
    main(["saddle", *words.split()])
    print("after", words, *(name for name in ("jax", "flax") if name in sys.modules))
"""
    asked = ["--completion=zsh", "__complete tr", "__complete list --q", "__complete sharpness --data="]
    asked += ["__complete train --method=q", "__complete compare --topology=to"]
    done = subprocess.run([sys.executable, "-c", program, *asked], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    for words in asked:
        assert f"after {words}" in lines
        assert not lines[lines.index(f"after {words}") - 1].startswith("after")  # it printed something


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_is_one_that_its_shell_can_read(shell, capsys, tmp_path):
    assert cli.main(["saddle", f"--completion={shell}"]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    assert "__complete" in script.read_text()
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    subprocess.run([program, "-n", script], check=True, env=os.environ)


def test_another_shell_is_refused(capsys):
    assert cli.main(["saddle", "--completion=tcsh"]) == 2
    assert capsys.readouterr().err == "saddle: completion must be one of bash, zsh, fish, got 'tcsh'\n"
