"""Sweeps over anything: what shares a program and what does not, and what the command leaves behind."""

import csv
import json
import math
import pathlib
import re

import pytest

from saddle_jax.cli import __main__ as cli
from saddle_jax.methods import base_methods
from saddle_jax.runs.run_folder import read_config
from saddle_jax.sam import GRADIENTS
from saddle_jax.settings.settings import Settings
from saddle_jax.training.build import is_argument
from saddle_jax.training.program import build
from saddle_jax.training.sweep import read_axes, runs_of_sweep

TINY = ["--agents=4", "--model=logistic", "--epochs=1", "--devices=1", "--quiet"]


@pytest.mark.parametrize(
    ("settings", "name", "expected"),
    [
        ({}, "learning_rate", True),
        ({}, "method.mu", True),
        ({"method": "slowmo(q_saddle, every=3)"}, "method.beta", True),
        ({}, "partition.alpha", False),  # it decides the data
        ({}, "method.rho", True),
        ({}, "faults.drop", True),
        ({"faults": "faults(drop=0.1)"}, "faults.burst", True),
        ({"timing": "timing(compute=1)"}, "timing.compute_sigma", True),
        ({"timing": "timing(compute=1)"}, "timing.latency", False),  # a table
        ({"method": "qgm", "gradient": "looksam"}, "gradient.alpha", True),
        ({"method": "qgm", "gradient": "esam"}, "gradient.rho", True),
        ({"method": "qgm", "gradient": "esam"}, "gradient.gamma", False),  # a shape
        ({"method": "motef(compressor=top_k(0.3))"}, "method.lam", True),
    ],
    ids=str,
)
def test_a_trace_tells_whether_a_step_takes_a_number_as_an_argument(settings, name, expected):
    assert is_argument(Settings(**settings), name, {name: 2.0 if name == "faults.burst" else 0.5}) is expected


def swept(tmp_path, text, **settings):
    return runs_of_sweep(Settings(**settings), read_axes(text), tmp_path)


def names(found):
    return {path.name: config.sweep for path, config in found.runs.items()}


def test_numbers_share_a_program_and_everything_else_has_a_folder(tmp_path):
    found = swept(tmp_path, "method=qgm,q_saddle batch_size=16,32 learning_rate=0.1,0.2")
    both = "learning_rate=0.1,0.2"
    assert names(found) == {
        f"method={method}-batch_size={size}-{both}": both
        for method in ("qgm", "q_saddle")
        for size in (16, 32)
    }
    assert swept(tmp_path, "method.beta=0.1,0.2").runs.keys() == {tmp_path}
    assert names(swept(tmp_path, "method.mu=0.1,0.5", method="qgm")) == {tmp_path.name: "method.mu=0.1,0.5"}
    assert names(swept(tmp_path, "timing.latency=1,2", timing="timing(compute=1)")) == {
        "timing.latency=1": "",
        "timing.latency=2": "",
    }
    assert names(swept(tmp_path, "partition.alpha=0.1,1 method.nesterov=true,false")) == {
        f"partition.alpha={alpha}-method.nesterov={nesterov}": ""
        for nesterov in ("true", "false")
        for alpha in ("0.1", "1")
    }


def test_options_of_spellings_may_be_swept(tmp_path):
    found = swept(tmp_path, "method.mu=0.1,0.3 method.point=mixed,current", method="gut(beta=0.0)")
    assert names(found) == {
        f"method.mu=0.1,0.3-method.point={point}": "method.mu=0.1,0.3" for point in ("mixed", "current")
    }
    assert [config.method for config in found.runs.values()] == [
        f"gut(beta=0.0, point={point})" for point in ("mixed", "current")
    ]
    found = swept(
        tmp_path, "gradient.rho=0.1,0.3 gradient.alpha=0,1", method="qgm", gradient="looksam(every=3)"
    )
    assert found.runs[tmp_path].sweep == "gradient.rho=0.1,0.3 gradient.alpha=0,1"
    assert [each.gradient for each in found.runs[tmp_path].each()][1] == (
        "looksam(every=3, rho=0.1, alpha=1.0)"
    )
    found = swept(tmp_path, "gradient.every=2,3", method="qgm", gradient="looksam")
    assert [config.gradient for config in found.runs.values()] == ["looksam(every=2)", "looksam(every=3)"]


def test_what_a_method_does_not_have_is_not_swept_for_it(tmp_path):
    found = swept(tmp_path, "method=qgm,q_saddle method.rho=0,0.1")
    assert names(found) == {"method=qgm": "", "method=q_saddle-method.rho=0,0.1": "method.rho=0,0.1"}
    assert found.notes == ["qgm has no method.rho: run without it"]
    found = swept(tmp_path, "method=qgm,relay_sgd,cga method.beta=0,0.5")
    assert [line.split(":")[0] for line in found.refused] == ["method=relay_sgd"]  # a ring is no tree


@pytest.mark.parametrize("method", base_methods())
def test_every_method_can_sweep_its_learning_rate(method):
    config = Settings(method=method, topology="path", agents=4)
    assert is_argument(config, "learning_rate", {"learning_rate": 0.1})


@pytest.mark.parametrize("estimator", [name for name in GRADIENTS if name != "plain"])
def test_every_gradient_can_sweep_its_radius(estimator):
    name = "gradient.rho_max" if estimator == "gsam" else "gradient.rho"
    assert is_argument(Settings(method="qgm", gradient=estimator), name, {name: 0.1})


BAD = {
    "method lacks": (
        ["--sweep=method.rho=0,0.1", "--method=qgm"],
        "method qgm takes .* got option 'rho'",
    ),
    "unknown": (["--sweep=learning_rat=1,2"], "did you mean 'learning_rate'.* got 'learning_rat'"),
    "whole": (["--sweep=batch_size=16,x"], "sweep: batch_size must be an integer, got 'x'"),
    "bound": (["--sweep=agents=0,2"], "agents must be an integer >= 1 and <= 10000, got 0"),
    "choice": (["--sweep=method=qgm,qgmm"], "did you mean 'qgm'.*method must be one of .* got 'qgmm'"),
    "truth": (["--sweep=method.nesterov=yes"], "nesterov must be True or False, got 'yes'"),
    "twice": (
        ["--sweep=method.beta=0.1,0.10"],
        "sweep of method.beta must name each value once, got '0.1,0.10'",
    ),
    "seeds": (["--sweep=seeds=0,1"], "sweep must name seed, got 'seeds'"),
    "place": (["--sweep=devices=1,2"], "sweep must name what changes a number of a run, got 'devices'"),
    "none": (["--sweep=method.beta"], "sweep must be SETTING=VALUE,VALUE,..., .* got 'method.beta'"),
    "an option": (["--sweep=beta=0,0.9"], "did you mean 'method.beta'.* got 'beta'"),
    "impossible": (
        ["--sweep=topology=karate,les_miserables"],
        "topology=karate: topology 'karate' cannot have",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_in_a_sweep_is_one_line_and_leaves_nothing(case, tmp_path, capsys):
    arguments, expected = BAD[case]
    folder = tmp_path / "sweep"
    assert cli.main(["saddle", "train", f"--workdir={folder}", *arguments, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert re.search(expected, error)
    assert error.count("\n") == 1
    assert not folder.exists()


def test_what_one_program_cannot_vary_is_refused_by_the_program():
    with pytest.raises(ValueError, match=r"sweep must name numbers on which a step .* got partition.alpha"):
        build(Settings(sweep="partition.alpha=0.1,1"))


def test_whole_numbers_are_no_arguments():
    with pytest.raises(ValueError, match=r"sweep must name numbers on which a step .* got gradient.every"):
        build(Settings(method="qgm", gradient="looksam", sweep="gradient.every=2,3"))


@pytest.mark.parametrize("text", ["method.mu=0.1,7", "method.mu=7,0.1"])
def test_every_number_of_a_sweep_is_checked(text):
    with pytest.raises(ValueError, match=r"mu must be .* got 7"):
        build(Settings(method="gut(beta=0.0)", sweep=text))


def test_a_sweep_of_choices_makes_folders_and_a_table_and_goes_on(tmp_path, unrendered, capsys):
    sweep = ["--sweep=method=dpsgd,d_saddle", "--sweep=method.rho=0,0.2", "--seeds=0,1"]
    command = ["saddle", "train", *sweep, *TINY, f"--workdir={tmp_path / 'one'}"]
    assert cli.main(command) == 0
    told = capsys.readouterr().out
    assert "test_accuracy, mean +- standard deviation over seeds (higher is better)" in told
    with (tmp_path / "one" / "sweep.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["method", "method.rho", "test_accuracy, %", "seeds"]
    results = {name: json.loads((tmp_path / "one" / name / "result.json").read_text())
               for name in ("method=dpsgd", "method=d_saddle-method.rho=0,0.2")}  # fmt: skip
    first, second = (100 * one["test_accuracy"] for one in results["method=dpsgd"]["trials"])
    spread = abs(first - second) / math.sqrt(2)
    assert rows[1] == ["dpsgd", "-", f"{(first + second) / 2:.2f} +- {spread:.2f}", "2"]
    assert [row[:2] for row in rows[2:]] == [["d_saddle", "0"], ["d_saddle", "0.2"]]
    assert (tmp_path / "one" / "sweep.png").is_file()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert cli.main(command) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_folders_are_named_after_the_sweep_where_the_user_names_none(
    tmp_path, unrendered, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["saddle", "train", *TINY, "--method=dpsgd", "--sweep=batch_size=64,128"]) == 0
    (folder,) = pathlib.Path("runs").iterdir()
    assert folder.name.startswith("digits-sweep-batch_size-")
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"batch_size=64", "batch_size=128"}
    assert read_config(folder / "batch_size=64").batch_size == 64
    assert "batch_size" in capsys.readouterr().out


MINE = """
import saddle_jax as sj

def method(topology, learning_rate, strength, rounds=1):
    return sj.dpsgd(topology, lambda t: strength * learning_rate(t), local_steps=rounds)

def estimator(radius=0.1):
    return sj.sam(radius)
"""


def test_options_of_things_that_are_brought_may_be_swept(tmp_path, unrendered, capsys):
    (tmp_path / "mine.py").write_text(MINE)
    brought = {"method": f"{tmp_path / 'mine.py'}:method", "gradient": f"{tmp_path / 'mine.py'}:estimator"}
    found = swept(
        tmp_path / "run", "method.strength=0.5,1 method.rounds=1,2 gradient.radius=0,0.1", **brought
    )
    together = "method.strength=0.5,1 gradient.radius=0,0.1"
    assert names(found) == {
        f"method.strength=0.5,1-method.rounds={rounds}-gradient.radius=0,0.1": together for rounds in (1, 2)
    }
    given = [f"--{name}={value}" for name, value in brought.items()]
    command = [*given, *TINY, "--sweep=method.strength=0.5,1", f"--workdir={tmp_path / 'run'}"]
    assert cli.main(["saddle", "train", *command]) == 0
    half, whole = json.loads((tmp_path / "run" / "result.json").read_text())["trials"]
    alone = [*given[1:], f"--method={brought['method']}(strength=0.5)", *TINY]
    assert cli.main(["saddle", "train", *alone, f"--workdir={tmp_path / 'alone'}"]) == 0
    result = json.loads((tmp_path / "alone" / "result.json").read_text())
    assert half["test_loss"] == pytest.approx(result["test_loss"], rel=1e-4)
    assert half["test_loss"] != pytest.approx(whole["test_loss"], rel=1e-2)
    assert cli.main(["saddle", "train", *command[:-2], "--sweep=method.strenght=1,2"]) == 2
    assert "did you mean 'strength'" in capsys.readouterr().err
