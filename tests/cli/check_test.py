"""saddle check and saddle new: what they print, what they write, and what they refuse in one line."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from saddle_jax.cli import __main__
from saddle_jax.testing import kinds
from saddle_jax.testing.scaffold import SETTINGS, name_in

MEAN = """
import jax
import saddle_jax as sj

def mine(topology, learning_rate, pull=0.1):
    def step(s, x, state):
        half = jax.tree.map(lambda x, g: x - learning_rate(s.t) * g, x, s.gradient(x))
        return jax.tree.map(lambda x: x + pull * (x.mean(axis=0, keepdims=True) - x), half), state
    return sj.Method("mine", topology, sj.Rule(lambda x: (), step))

def nothing(x, y, z):
    return 3

instance = sj.sam(0.1)
method = mine(sj.ring(8), 0.1)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, with one file of ours in it."""
    monkeypatch.chdir(tmp_path)
    pathlib.Path("mine.py").write_text(MEAN)
    return tmp_path


def call(*arguments):
    return __main__.main(["saddle", *arguments])


def test_an_invariant_that_fails_is_shown_and_the_status_is_two(folder, capsys):
    assert call("check", "mine.py:mine(pull=0.2)") == 2
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("what the network does not deliver")]
    assert "FAILS" in line
    assert "without communication agent 0 changed agent 1 by" in line
    assert lines[-1].startswith("method mine.py:mine(pull=0.2): of ")
    assert lines[-1].endswith("fail")


def test_a_list_for_other_programs(folder, capsys):
    assert call("check", "torus(2, 4)", "--json") == 0
    verdicts = json.loads(capsys.readouterr().out)
    assert {each["kind"] for each in verdicts} == {"graph"}
    assert verdicts[0] == {
        "kind": "graph",
        "invariant": "the graph has the agents that were asked for",
        "status": "holds",
        "seen": "8 agents: torus(2, 4)",
    }


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        (["karate", "--agents=34"], "graph karate: of 6 invariants that apply 6 hold, 0 fail"),
        (
            ["logistic", "--kind=objective", "--dataset=convex(kind=logistic)"],
            "objective logistic: of 5 invariants that apply 5 hold, 0 fail",
        ),
        (["digits"], "dataset digits: of 7 invariants that apply 7 hold, 0 fail"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_names_of_ours_are_checked_too(folder, capsys, arguments, last):
    assert call("check", *arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_the_kind_follows_from_the_name_or_the_object(folder):
    kinds_of = {
        "mine.py:instance": "gradient",
        "mine.py:mine": "method",
        "karate": "graph",
        "sign": "compressor",
        "cnn": "model",
        "digits": "dataset",
        "d_saddle": "method",
    }
    assert {name: kinds.kind_of(name) for name in kinds_of} == kinds_of


BAD = {
    "name": (["check", "qgmm"], "did you mean 'qgm'.*thing must be FILE.py:NAME, .* got 'qgmm'"),
    "kind": (["check", "qgm", "--kind=rule"], "kind must be one of 'method', .* got 'rule'"),
    "both": (["check", "logistic"], "kind must be model or objective, which logistic both is"),
    "no file": (["check", "none.py:mine"], "thing must name a file that exists, got 'none.py'"),
    "no name": (
        ["check", "mine.py:min"],
        "did you mean 'mine'.*thing must be in mine.py, got no 'min' there",
    ),
    "unknown": (["check", "mine.py:nothing"], "kind must be one of method, .* told what mine.py:nothing is"),
    "made": (
        ["check", "mine.py:method"],
        "method must be a function of topology .* got the method mine.py:method",
    ),
    "other": (["check", "mine.py:instance", "--kind=graph"], "graph mine.py:instance must be a graph, got a"),
    "option": (
        ["check", "mine.py:mine(bull=2)"],
        "did you mean 'pull'. method mine.py:mine takes .* got option 'bull'",
    ),
    "no dataset": (["check", "cnn", "--dataset=nope"], "dataset must be one of .* got 'nope'"),
    "new": (["new"], "arguments must be KIND NAME and options, got nothing"),
    "new kind": (["new", "rule", "a"], "kind must be one of 'method', .* got 'rule'"),
    "new name": (["new", "method", "a-b"], "name must be a word of letters, digits and _.* got 'a-b'"),
    "keyword": (["new", "method", "class"], "name must be a word .* got 'class'"),
    "module": (["new", "method", "jax"], "name must hide no module that Python has, got 'jax'"),
    "library": (["new", "method", "json"], "name must hide no module that Python has, got 'json'"),
    "there": (
        ["new", "method", "mine"],
        "name must be one whose files are not there, got 'mine.py', which is",
    ),
    "folder": (["new", "method", "a", "--folder=x/y"], "folder must be one that is there, got 'x/y'"),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_told_in_one_line(folder, capsys, name):
    arguments, message = BAD[name]
    assert call(*arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert re.search(f"^saddle: {message}", told.err)
    assert [path.name for path in folder.iterdir()] == ["mine.py"]


def test_a_program_that_fails_shows_its_traceback_once(folder, capsys):
    pathlib.Path("broken.py").write_text("import saddle_jax\n1 / 0\n")
    assert call("check", "broken.py:mine") == 2
    told = capsys.readouterr().err
    assert told.startswith(
        "saddle: thing broken.py:mine cannot be imported: ZeroDivisionError: division by zero\n"
    )
    assert told.count("Traceback") == 1


@pytest.mark.usefixtures("unrendered")
def test_what_new_writes_keeps_its_invariants(tmp_path, monkeypatch, capsys):
    """The files of all kinds in one clean folder: plain pytest, the printed commands, and our own linter."""
    monkeypatch.chdir(tmp_path)
    settings = {}
    for kind in SETTINGS:
        assert call("new", kind, f"my_{kind}") == 0
        told = capsys.readouterr().out.splitlines()
        spec = f"my_{kind}.py:{name_in(kind, f'my_{kind}')}"
        settings[kind] = f"--{SETTINGS[kind]}={spec}"
        assert told[1:] == [
            f"  saddle check {spec}",
            f"  pytest my_{kind}_test.py",
            f"  saddle train {settings[kind]}",
        ]
    assert call("check", settings["graph"].partition("=")[2]) == 0
    assert capsys.readouterr().out.endswith(" 0 fail\n")
    for setting in settings.values():  # tests/training trains with code of one's own
        assert call("settings", setting) == 0
    alone = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "JAX_NUM"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    assert done.returncode == 0, done.stdout
    assert f"{len(SETTINGS)} passed" in done.stdout
    written = sorted(tmp_path.glob("*.py"))
    private = re.compile(r"saddle_jax\.|from saddle_jax import (?!training|testing)")
    assert not [path.name for path in written if private.search(path.read_text())]
    ruff, ours = [sys.executable, "-m", "ruff"], ["--isolated", "--line-length=110"]
    subprocess.run([*ruff, "check", *ours, "--select=B,E,F,I,N,UP,W", *written], check=True)
    subprocess.run([*ruff, "format", *ours, "--check", *written], check=True)


def test_new_writes_where_it_is_told(folder, capsys):
    (folder / "sub").mkdir()
    assert call("new", "model", "small_net", "--folder=sub") == 0
    assert "saddle check sub/small_net.py:SmallNet" in capsys.readouterr().out
    assert call("new", "model", "small_net", "--folder=sub") == 2
    assert capsys.readouterr().err == (
        "saddle: name must be one whose files are not there, got 'sub/small_net.py', which is\n"
    )
