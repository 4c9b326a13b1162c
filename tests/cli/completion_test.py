"""The scripts for shells: bash completes verbs, options, settings and values; making them imports no JAX."""

import json
import shutil
import subprocess
import sys

import pytest

from saddle_jax.cli import __main__ as cli
from saddle_jax.cli import completion_scripts, completion_words

BASH = shutil.which("bash")
COMPLETED = {
    "verbs": (["tr"], ["train"]),
    "all verbs": (["comp"], ["completion", "compare"]),
    "options": (["list", "--q"], ["--quiet"]),
    "settings": (["train", "--config.learn"], ["--config.learning_rate="]),
    "of compare": (["compare", "--config.tim"], ["--config.timing="]),
    "no settings": (["list", "--config.learn"], []),
    "values": (["train", "--config.method", "=", "q_"], ["q_saddle"]),
    "all values": (["train", "--config.schedule", "=", "co"], ["constant", "cosine"]),
    "own values": (["sharpness", "--data", "=", "o"], ["own"]),
    "verbs of verbs": (["data", "pa"], ["partition"]),
    "their options": (["data", "partition", "--par"], ["--partition="]),
    "files": (["report", "ru"], []),  # bash completes them itself
}  # fmt: skip


def completed(words):
    """What bash offers for the last of these words."""
    listed = " ".join(f"'{word}'" for word in ["saddle", *words])
    asked = f"COMP_WORDS=({listed}); COMP_CWORD={len(words)}; _saddle; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    script = completion_scripts.script("bash", completion_words.read()) + "compopt() { :; }\n" + asked
    done = subprocess.run([BASH, "--norc", "-u"], input=script, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize("case", COMPLETED)
def test_bash_completes(case):
    words, expected = COMPLETED[case]
    assert completed(words) == expected


def test_the_words_that_are_written_down_are_those_that_there_are():
    found = json.loads(json.dumps(completion_words.find()))
    assert completion_words.read() == found, "run: bin/saddle completion --update"


def test_making_a_script_imports_nothing_heavy():
    code = (
        "import sys; from saddle_jax.cli.__main__ import main\n"
        "status = main(['saddle', 'completion', 'zsh'])\n"
        "sys.exit(status or any(name in sys.modules for name in ('jax', 'numpy', 'flax')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("#compdef saddle")


@pytest.mark.parametrize("shell", completion_scripts.SHELLS)
def test_each_script_is_one_that_its_shell_can_read(shell, capsys, tmp_path):
    assert cli.main(["saddle", "completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    assert "q_saddle" in script.read_text()
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    subprocess.run([program, "-n", script], check=True)


def test_another_shell_is_refused(capsys):
    assert cli.main(["saddle", "completion", "tcsh"]) == 2
    assert capsys.readouterr().err == "saddle: SHELL must be one of bash, zsh, fish, got 'tcsh'\n"
