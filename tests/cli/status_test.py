"""What an exit status says: 1 diverged, 2 a mistake, 3 damaged files, 130 interrupted; 70 is a bug."""

import errno
import json
import os
import pathlib
import re

import forked
import pytest
from damage import CONTENTS
from folders import write_run

from saddle_jax.base.checks import ArgumentError
from saddle_jax.base.errors import DamagedError, RunError
from saddle_jax.base.user_code import UserCodeError
from saddle_jax.cli import __main__ as cli
from saddle_jax.cli import process, verb
from saddle_jax.data import DataError
from saddle_jax.devices.hosts import AgreedError

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Every class of errors that a user can meet, and the exit status of each.
STATUSES = {
    ArgumentError("x must be 1, got 2"): 2,
    RunError("a folder cannot be used"): 2,
    DamagedError("a file cannot be read"): 3,
    AgreedError("all processes must have the same"): 2,
    DataError("dataset must be one of"): 2,
    UserCodeError("mine.py failed", "Traceback of mine.py\n"): 2,
    OSError(errno.ELOOP, "Too many levels of symbolic links", "/file"): 2,
    OSError(errno.ENOSPC, "No space left on device", "/full/file"): 2,
    OSError(errno.EROFS, "Read-only file system", "/file"): 2,
    KeyboardInterrupt(): 130,
    BrokenPipeError(): 141,
}


def raising(monkeypatch, error):
    """Makes a verb that raises an error."""

    def trial(options, out):
        raise error

    monkeypatch.setitem(verb.VERBS, "trial", verb.Verb("trial", "", trial, (), (), False, (), "", 1))


@pytest.mark.parametrize("error", STATUSES, ids=lambda error: type(error).__name__)
def test_every_class_of_errors_has_its_status_and_its_line(error, monkeypatch, capsys):
    monkeypatch.setattr(process, "drop_output", lambda: None)  # which would take the test's own
    raising(monkeypatch, error)
    assert cli.main(["saddle", "trial"]) == STATUSES[error]
    told = capsys.readouterr().err
    if isinstance(error, BrokenPipeError):
        assert told == ""
    elif isinstance(error, UserCodeError):
        assert told == "saddle: mine.py failed\nTraceback of mine.py\n"
    else:
        assert re.fullmatch("saddle: .+\n", told)
        assert "Traceback" not in told


def test_all_classes_of_errors_of_the_package_are_in_the_table():
    """Whoever adds one says which status it has."""
    named = set()
    for path in (ROOT / "saddle_jax").rglob("*.py"):
        named |= set(re.findall(r"^class (\w*Error)\(", path.read_text(), flags=re.MULTILINE))
    within = {
        "InvariantError",
        "InapplicableError",
        "UnavailableError",
        "CannotCompileError",
    }  # caught within
    of_python = {"OSError", "KeyboardInterrupt", "BrokenPipeError"}
    assert named - within == {type(error).__name__ for error in STATUSES} - of_python


def test_a_page_of_the_docs_lists_them():
    table = (ROOT / "docs" / "commands.md").read_text()
    for status in (0, 1, 2, 3, 130, 141, 70):
        assert re.search(rf"^\| {status} \|", table, flags=re.MULTILINE)


def test_anything_else_is_a_bug_and_keeps_its_traceback():
    program = (
        "import sys\n"
        "import saddle_jax.cli.__main__ as cli\n"
        "from saddle_jax.cli.verb import verb\n"
        "@verb('Begin')\n"
        "def trial(options, out):\n"
        "    raise ZeroDivisionError('5 / 0')\n"
        "sys.argv = ['saddle', 'trial']\n"
        "cli.run()\n"
    )
    done = forked.run(program=program)
    assert done.returncode == 70
    assert "ZeroDivisionError: 5 / 0" in done.stderr
    assert done.stderr.endswith("saddle: this is a bug of saddle_jax: please report the lines above\n")


@pytest.mark.parametrize("kind", ["deep", "list", "no utf-8", "digits", "empty", "null"])
@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.jsonl"])
def test_one_damaged_folder_does_not_take_the_others_from_the_list(name, kind, tmp_path, capsys):
    write_run(tmp_path / "good")
    (write_run(tmp_path / "bad") / name).write_bytes(CONTENTS[kind])
    assert cli.main(["saddle", "list", str(tmp_path)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[-1].split()[:2] == ["good", "finished"]
    passed_over = name == "metrics.jsonl" and kind in ("empty", "list", "null")
    assert ("unreadable" in rows[-2]) != passed_over


@pytest.mark.parametrize("kind", ["pipe", "folder", "endless"])
@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.jsonl", ".lock"])
def test_list_is_not_held_up_by_what_is_no_file(name, kind, tmp_path, capsys):
    write_run(tmp_path / "good")
    place = write_run(tmp_path / "bad") / name
    place.unlink(missing_ok=True)
    makers = {"pipe": os.mkfifo, "folder": os.mkdir, "endless": lambda path: os.symlink("/dev/zero", path)}
    makers[kind](place)
    assert cli.main(["saddle", "list", str(tmp_path)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 4
    assert ("unreadable" in rows[-2]) == (name != ".lock")


def test_list_builds_no_graph(tmp_path, capsys):
    """A folder that names ten thousand agents, each of which hears all, is listed at once."""
    run = write_run(tmp_path / "run")
    about = json.loads((run / "config.json").read_text())
    about["config"] |= {"agents": 10_000, "topology": "complete"}
    (run / "config.json").write_text(json.dumps(about))
    assert cli.main(["saddle", "list", str(tmp_path)]) == 0
    assert "finished" in capsys.readouterr().out


def test_control_characters_reach_no_terminal(tmp_path, capsys):
    run = write_run(tmp_path / "a\x1b]0;owned\x07b")
    assert cli.main(["saddle", "list", str(tmp_path)]) == 0
    (run / "result.json").write_text('{"status": "\\u001b[2J"}')
    assert cli.main(["saddle", "report", str(run)]) == 3
    shown = capsys.readouterr()
    assert "a\\x1b]0;owned\\x07b" in shown.out
    assert "\x1b" not in shown.out + shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    "damage",
    [
        {"status": "x"},
        {"status": None},
        {"steps": None},
        {"seconds": "1"},
        {"bytes_sent_per_agent": float("inf")},
        {"bytes_sent_per_agent": None},
        {"trials": 5},
        {"trials": [{}]},
        {"settings": 5},
        {"profile": 5},
        {"profile": {}},
        {"diverged_at_step": "x"},
        {"test_accuracy": "x"},
        {"agent_accuracy_each": "x"},
        {"last_finite": 5},
        {"swept": [5]},
    ],
    ids=str,
)
@pytest.mark.parametrize("command", [["report"], ["figure", "bits"]], ids=" ".join)
def test_results_that_no_run_writes_are_told(command, damage, tmp_path, capsys):
    run = write_run(tmp_path / "run", result=damage)
    assert cli.main(["saddle", *command, str(run), f"--output={tmp_path / 'o.png'}"]) == 3
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "result.json cannot be read: " in told


def test_streams_that_are_full_closed_or_narrow(tmp_path):
    write_run(tmp_path / "é")
    full = forked.run("list", ".", cwd=tmp_path, streams={1: "/dev/full"})
    assert (full.returncode, full.stderr) == (2, "saddle: standard output: No space left on device\n")
    narrow = forked.run("list", ".", cwd=tmp_path, encoding="ascii")
    assert (narrow.returncode, narrow.stderr) == (0, "")
    assert "\\xe9" in narrow.stdout
    closed = forked.run("list", ".", cwd=tmp_path, streams={2: None})
    assert closed.returncode == 0
    assert forked.run("list", "nowhere", cwd=tmp_path, streams={2: None}).returncode == 2
