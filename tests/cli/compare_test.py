"""A comparison varies methods with options, estimators, graphs and lost messages; what cannot be is told."""

import csv
import json
import pathlib
import re

import pytest

from saddle_jax.base.checks import ArgumentError
from saddle_jax.cli import __main__ as cli
from saddle_jax.runs.run_name import run_name, safe
from saddle_jax.settings.settings import Settings
from saddle_jax.training.sweep import over_seeds, read_axes, runs_of_sweep

TINY = ["--agents=4", "--model=logistic", "--epochs=1", "--devices=1", "--quiet"]
BAD = {
    "method": (["--compare=method=qgm,gutt"], "did you mean 'gut'.*method must be one of .* got 'gutt'"),
    "option": (["--compare=method=gut(nu=1)"], "method gut takes .* got option 'nu'"),
    "gradient": (["--compare=gradient=sam,asamm"], "gradient must be one of .* got 'asamm'"),
    "graph": (["--compare=topology=rng"], "topology must be one of .* got 'rng'"),
    "drop": (["--compare=faults.drop=0,1.5"], "drop must be a number >= 0 and < 1, got 1.5"),
    "no number": (["--compare=faults.drop=some"], "drop must be a number >= 0 and < 1, got 'some'"),
    "tree": (["--compare=method=relay_sgd"], "topology must be a tree for relay_sgd"),
    "option of none": (
        ["--compare=method=sgp", "--method.gamma=2"],
        "sgp has no option|takes .* got option 'gamma'",
    ),
    "no file": (
        ["--compare=method=dpsgd,none.py:method"],
        "method must name a file that exists, got 'none.py'",
    ),
    "label": (
        ["--compare=method=dpsgd,mine=none.py:method"],
        "must name a file that exists, got 'mine=none.py'",
    ),
    "no name": (["--compare=method=dpsgd,math:sqrtt"], "did you mean 'sqrt'. method must be in math"),
    "no method": (
        ["--compare=method=dpsgd,builtins:dict"],
        "method builtins:dict must return a Method, got {}",
    ),
    "no graph": (
        ["--compare=topology=ring,none.edges"],
        "topology must name a file that exists, got 'none.edges'",
    ),
    "no estimator": (
        ["--compare=method=dpsgd", "--compare=gradient=plain,none.py:climb"],
        "gradient must name a file that exists",
    ),
    "labels": (["--labels=one,two,three"], "labels must name each of 2 lines, got one,two,three"),
    "unknown": (["methods-of-mine"], "arguments must be nothing and options"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_in_a_grid_is_one_line_and_leaves_nothing(case, tmp_path, capsys):
    arguments, expected = BAD[case]
    folder = tmp_path / "grid"
    assert cli.main(["saddle", "compare", f"--workdir={folder}", *arguments, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert re.search(expected, error)
    assert error.count("\n") == 1
    assert not folder.exists()


def table(folder):
    """The table that people read."""
    caption, _, head, _, *body = (folder / "comparison.md").read_text().splitlines()
    assert re.fullmatch(r"test .*, mean \+- standard deviation over seeds \(n = \d+\)", caption)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in (head, *body)]


def numbers(folder):
    """The table that programs read, row by row."""
    with (folder / "comparison.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_grid_of_everything_goes_on_past_what_cannot_be(tmp_path, capsys):
    grid = ["--compare=method=dpsgd,gradient_tracking(variant=diging)", "--seeds=0"]
    grid += [
        "--compare=gradient=plain,sam(rho=0.1)",
        "--compare=topology=ring,karate",
        f"--workdir={tmp_path}",
    ]
    assert cli.main(["saddle", "compare", *grid, *TINY]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 4  # karate has 34 agents; each combination once
    assert "method=dpsgd-gradient=plain-topology=karate: topology 'karate' cannot have 4 agents" in told.err
    names = {path.parent.name for path in tmp_path.glob("*/result.json")}
    written = "gradient_tracking_variant=diging"
    assert names == {
        f"method={method}-gradient={estimator}-topology=ring-seed0"
        for method in ("dpsgd", written)
        for estimator in ("plain", "sam_rho=0.1")
    }
    rows = table(tmp_path)
    assert rows[0] == ["method", "topology", "plain", "sam(rho=0.1)"]
    result = json.loads(
        (tmp_path / f"method={written}-gradient=sam_rho=0.1-topology=ring-seed0" / "result.json").read_text()
    )
    assert rows[3][:2] == ["gradient_tracking(variant=diging)", "ring"]
    assert rows[3][3] == f"{100 * result['test_accuracy']:.2f}"
    assert rows[4][2:] == ["-", "-"]
    alone = numbers(tmp_path)
    assert len(alone) == 8
    found = next(row for row in alone if row["method"].startswith("g") and row["gradient"] == "sam(rho=0.1)")
    assert float(found["mean"]) == float(found["seed 0"]) == pytest.approx(100 * result["test_accuracy"])
    assert (found["n"], found["std"], found["low"], found["topology"]) == ("1", "", "", "ring")
    assert alone[-1]["n"] == "0"
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_shares_of_lost_messages_are_one_program_and_columns_of_the_table(tmp_path, capsys):
    grid = ["compare", "--compare=method=dpsgd", "--compare=faults.drop=0,0.2,0.9", "--seeds=0", *TINY]
    assert cli.main(["saddle", *grid, f"--workdir={tmp_path / 'one'}"]) == 0
    assert cli.main(["saddle", *grid, f"--workdir={tmp_path / 'apart'}", "--nosingle_program"]) == 0
    capsys.readouterr()
    names = {path.parent.name for path in (tmp_path / "one").glob("*/result.json")}
    assert names == {"method=dpsgd-faults.drop=0,0.2,0.9-seed0"}
    names = {path.parent.name for path in (tmp_path / "apart").glob("*/result.json")}
    assert names == {f"method=dpsgd-faults.drop={drop}-seed0" for drop in ("0", "0.2", "0.9")}
    assert table(tmp_path / "one") == table(tmp_path / "apart")
    assert numbers(tmp_path / "one") == numbers(tmp_path / "apart")
    assert table(tmp_path / "one")[0] == ["method", "drop 0", "drop 0.2", "drop 0.9"]


def runs_of(text, folder=pathlib.Path("grid"), seeds=(0,), fixed=None, **changes):
    config = Settings(**{"agents": 4, "model": "logistic"} | changes)
    axes = read_axes(text)
    found = runs_of_sweep(config, axes, folder, fixed=fixed, single_program=False, below=True)
    return over_seeds(found, seeds, single_program=False)


def test_options_beside_a_varied_method_are_for_those_that_have_them():
    fixed = {"method.nesterov": "false", "method.self_gradient": "mixed"}
    found = runs_of("method=qgm,kgt,ngm", fixed=fixed)
    assert found.refused == []
    assert [config.method for config in found.runs.values()] == [
        "qgm(nesterov=False)",
        "kgt",
        "ngm(nesterov=False, self_gradient=mixed)",
    ]
    assert found.notes == [
        "qgm has no method.self_gradient: run without it",
        "kgt has no method.nesterov: run without it",
        "kgt has no method.self_gradient: run without it",
    ]
    with pytest.raises(ArgumentError, match=r"did you mean 'nesterov'.*got option 'nesterof'"):
        runs_of("method=qgm,ngm", fixed={"method.nesterof": "false"})


def test_folders_are_named_after_what_is_compared_and_the_seed():
    found = runs_of("method=qgm,dpsgd method.compressor=none,sign", seeds=(0, 1))
    assert [path.name for path in found.runs] == [
        f"method={method}-method.compressor={compressor}-seed{seed}"
        for seed in (0, 1)
        for method in ("qgm", "dpsgd")
        for compressor in ("none", "sign")
    ]


def test_what_a_network_with_losses_refuses_is_told_once_for_all_seeds():
    found = runs_of("method=dpsgd method.compressor=none,sign faults.drop=0,0.1", seeds=(0, 1, 2))
    assert len(found.refused) == 1
    assert found.refused[0].startswith("method=dpsgd-method.compressor=sign-faults.drop=0.1: faults must")
    assert len(found.runs) == 9


def test_commas_belong_to_the_graph_or_method_that_they_stand_in():
    axes = read_axes(
        "method=gut(mu=0.5, point=current),qgm "
        "topology=circulant([1, 2]),equi_static(4, undirected=True),ring"
    )
    assert axes["method"] == ["gut(mu=0.5, point=current)", "qgm"]
    assert axes["topology"] == ["circulant([1, 2])", "equi_static(4, undirected=True)", "ring"]
    with pytest.raises(ArgumentError, match="topology must be one of"):
        read_axes("topology=ring,five")


def test_folders_have_names_that_need_no_quotes():
    assert safe("gut(mu=0.5, point='current')") == "gut_mu=0.5,point=current"
    assert [safe(text) for text in ("top_k(0.3)", "torus(5, 8)", "ring+star")] == [
        "top_k_0.3",
        "torus_5,8",
        "ring+star",
    ]
    config = Settings(method="gut(mu=0.05, point=current)", gradient="looksam(every=10)")
    assert run_name(config) == "digits-gut_mu=0.05,point=current-looksam_every=10-ring10-seed0"
    assert run_name(Settings(topology="torus(2, 5)")) == "digits-q_saddle-torus_2,5_10-seed0"


def test_methods_and_gradients_are_listed_and_described(capsys):
    assert cli.main(["saddle", "methods"]) == 0
    assert re.search(r"^kgt +2/5 +1 +2 +yes +doubly stochastic", capsys.readouterr().out, re.M)
    assert cli.main(["saddle", "methods", "gut"]) == 0
    assert "--method='gut(beta=0.9)'" in capsys.readouterr().out
    assert cli.main(["saddle", "methods", "--gradients"]) == 0
    assert re.search(r"^esam +1.5", capsys.readouterr().out, re.M)
    assert cli.main(["saddle", "methods", "--gradients", "looksam", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["name"], record["passes"], record["options"][1]["default"]) == ("looksam", 1.2, 5)
    assert cli.main(["saddle", "methods", "qgn"]) == 2
    assert "did you mean 'qgm'? method" in capsys.readouterr().err
