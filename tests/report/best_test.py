"""The best setting of every group, against numbers that are worked out by hand."""

import csv
import json
import math
import re

import pytest

from saddle_jax.cli import __main__ as cli
from saddle_jax.runs.run_folder import folders_below
from saddle_jax.settings.settings import Settings
from saddle_jax.version import RUN_FORMAT

ENDED = {"steps": 1, "seconds": 1.0, "bytes_sent_per_agent": 1, "paper_bytes_sent_per_agent": 1}


def ended(accuracy, **more):
    if accuracy is None:
        return {"status": "diverged", "test_accuracy": 0.99, "diverged_at_step": 1, **more}
    return {"status": "finished", "test_accuracy": accuracy, "test_loss": 1 - accuracy, **more}


def write(folder, config, result, **about):
    folder.mkdir(parents=True)
    content = {"format": RUN_FORMAT, "config": config.to_json(), **about}
    (folder / "config.json").write_text(json.dumps(content))
    if result is not None:
        (folder / "result.json").write_text(json.dumps({**ENDED, **result}))


def best(capsys, *arguments, status=0):
    assert cli.main(["saddle", "list", "--best", *map(str, arguments)]) == status
    return capsys.readouterr()


def chosen(capsys, *arguments):
    return json.loads(best(capsys, *arguments, "--json").out)


@pytest.fixture
def grid(tmp_path):
    """QGM at three learning rates with two seeds each, in one folder; D-PSGD in single runs."""
    config = Settings(method="qgm", seeds="0,1", sweep="learning_rate=0.02,0.1,0.5")
    values = [0.5, 0.6, 0.7, 0.8, 0.9, None]
    rates = [0.02, 0.02, 0.1, 0.1, 0.5, 0.5]
    trials = [
        {"seed": seed, "learning_rate": rate, **ended(value)}
        for seed, rate, value in zip([0, 1] * 3, rates, values, strict=True)
    ]
    write(tmp_path / "qgm", config, {"status": "finished", "diverged": 1, "trials": trials})
    for rate, value in ((0.02, 0.9), (0.1, 0.4), (0.5, None)):
        write(tmp_path / f"dpsgd{rate}", Settings(method="dpsgd", learning_rate=rate), ended(value))
    return tmp_path


def test_the_best_has_its_seeds_its_neighbours_and_the_edge(grid, capsys):
    qgm, dpsgd = sorted(chosen(capsys, grid)["groups"], key=lambda one: one["group"]["method"], reverse=True)
    assert qgm["group"] == {"method": "qgm"}
    assert qgm["setting"] == {"learning_rate": 0.1}  # 0.5 is higher, but a seed of it diverged
    assert qgm["best"]["mean"] == pytest.approx(0.75)
    assert qgm["best"]["std"] == pytest.approx(0.1 / math.sqrt(2))
    assert qgm["best"]["seeds"] == 2
    below, above = qgm["neighbours"]["learning_rate"]
    assert below["setting"] == {"learning_rate": 0.02}
    assert below["mean"] == pytest.approx(0.55)
    assert above["values"] == [0.9]
    assert above["diverged"] == 1
    assert qgm["edges"] == []
    assert dpsgd["setting"] == {"learning_rate": 0.02}
    assert dpsgd["edges"] == [{"setting": "learning_rate", "try": "below", "value": 0.02}]
    assert dpsgd["candidates"][2]["mean"] is None


def test_the_table_is_written_in_every_form(grid, capsys):
    told = best(capsys, grid, f"--output={grid / 'best.csv'}").out
    assert "best settings by test_accuracy" in told
    with (grid / "best.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == [
        "method",
        "best setting",
        "test_accuracy, %",
        "seeds",
        "neighbours",
        "edge of the grid",
    ]
    near = "learning_rate 0.02: 55.00 +- 7.07, 0.5: 90.00*"
    assert ["qgm", "learning_rate 0.1", "75.00 +- 7.07", "2", near, "-"] in rows
    near, edge = "learning_rate 0.1: 40.00", "try learning_rate below 0.02"
    assert ["dpsgd", "learning_rate 0.02", "90.00", "1", near, edge] in rows
    for ending, expected in (("tex", r"75.00 $\pm$ 7.07"), ("md", "| qgm |"), ("txt", "75.00 +- 7.07")):
        best(capsys, grid, f"--output={grid / 'best'}.{ending}")
        assert expected in (grid / f"best.{ending}").read_text()


def test_less_is_better_where_the_metric_says_so(grid, tmp_path, capsys):
    by_method = {one["group"]["method"]: one for one in chosen(capsys, grid, "--metric=test_loss")["groups"]}
    assert by_method["dpsgd"]["best"]["mean"] == pytest.approx(0.1)
    turned = chosen(capsys, grid, "--metric=test_loss", "--better=higher")["groups"]
    by_method = {one["group"]["method"]: one for one in turned}
    assert by_method["dpsgd"]["best"]["mean"] == pytest.approx(0.6)


def test_the_objective_of_runs_names_their_first_metric(tmp_path, capsys):
    metric = {"name": "regret", "better": "lower", "title": "regret", "percent": False}
    objective = {"name": "own", "metrics": [metric]}
    for rho, regret in ((0.0, 3.5), (0.1, 2.5), (0.2, 3.0)):
        result = {"status": "finished", "test_regret": regret}
        write(tmp_path / f"{rho}", Settings(method=f"q_saddle(rho={rho})"), result, objective=objective)
    found = chosen(capsys, tmp_path)
    assert (found["metric"], found["better"]) == ("test_regret", "lower")
    assert found["groups"][0]["setting"] == {"method.rho": 0.1}
    assert found["groups"][0]["edges"] == []
    assert re.search(r"method.rho 0.1 +2.5 +1 +method.rho 0: 3.5, 0.2: 3 ", best(capsys, tmp_path).out)


def test_bounds_of_an_option_are_no_edge(tmp_path, capsys):
    for gamma, beta, value in ((1.0, 0.0, 0.9), (0.5, 0.0, 0.8), (1.0, 0.9, 0.7)):
        config = Settings(method=f"qgm(gamma={gamma}, beta={beta})")
        write(tmp_path / f"{gamma}{beta}", config, ended(value))
    (group,) = chosen(capsys, tmp_path)["groups"]
    assert group["setting"] == {"method.beta": 0.0, "method.gamma": 1.0}
    assert group["edges"] == [{"setting": "method.gamma", "try": "above", "value": 1.0}]  # it may be above 1
    assert list(group["neighbours"]) == ["method.beta", "method.gamma"]


def test_a_run_that_does_not_name_an_option_has_its_default(tmp_path, capsys):
    for number, (method, value) in enumerate({"qgm(beta=0.5)": 0.5, "qgm": 0.9, "dpsgd": 0.4}.items()):
        write(tmp_path / f"{number}", Settings(method=method), ended(value))
    groups = {one["group"]["method"]: one for one in chosen(capsys, tmp_path)["groups"]}
    assert groups["qgm"]["setting"] == {"method.beta": 0.9}
    assert groups["dpsgd"]["setting"] == {}


def test_other_problems_are_other_groups_and_options_are_settings(tmp_path, capsys):
    for alpha, mu, value in ((0.1, 0.1, 0.5), (0.1, 0.3, 0.6), (10.0, 0.1, 0.9)):
        method = f"gut(mu={mu}, point=mixed, beta=0.0)"
        config = Settings(partition=f"dirichlet(alpha={alpha})", method=method)
        write(tmp_path / f"{alpha}{mu}", config, ended(value))
    groups = {one["group"]["partition.alpha"]: one for one in chosen(capsys, tmp_path)["groups"]}
    assert groups[0.1]["group"] == {"method": "gut", "partition.alpha": 0.1}
    assert groups[0.1]["setting"] == {"method.mu": 0.3}
    assert groups[10.0]["setting"] == {}
    told = best(capsys, tmp_path).out
    assert "grouped by partition.alpha too" in told
    assert "the only one" in told
    assert len(chosen(capsys, tmp_path, "--by=method.mu,partition.alpha")["groups"]) == 3


def test_ties_are_told_and_a_group_may_diverge(tmp_path, capsys):
    for batch_size, value in ((16, 0.5), (32, 0.5), (64, 0.5)):
        write(tmp_path / f"{batch_size}", Settings(batch_size=batch_size), ended(value))
    for seed in (0, 1):
        write(tmp_path / f"bad{seed}", Settings(method="dpsgd", seed=seed), ended(None))
    told = best(capsys, tmp_path).out
    assert "batch_size 16 (tied with 2 others)" in told
    assert re.search("dpsgd +- +all 2 runs diverged", told)


def test_what_is_damaged_unfinished_or_there_twice_is_told(grid, capsys):
    write(grid / "going", Settings(method="qgm(beta=0.5)"), None)
    write(grid / "again", Settings(method="dpsgd", learning_rate=0.1), ended(0.99))
    write(grid / "old", Settings(method="dpsgd(beta=0.1)"), {"status": "finished"})
    (grid / "torn").mkdir()
    (grid / "torn" / "config.json").write_text("{")
    assert len(folders_below(grid)) == 8
    told = best(capsys, grid).out
    lines = [line for line in told.splitlines() if line.startswith("left out: ")]
    assert len(lines) == 4
    assert any(re.search(r"going: unfinished at step 0", line) for line in lines)
    assert any(re.search(r"dpsgd0.1: the same run as .*again", line) for line in lines)
    assert any(re.search(r"old: has no test_accuracy", line) for line in lines)
    assert any(re.search(r"torn.config.json cannot be read", line) for line in lines)


def test_runs_of_python_objects_are_told_apart_by_what_they_compute(tmp_path, capsys):
    for number, (method, computes, value) in enumerate(
        [
            ("<mine>", "aa", 0.5),
            ("<mine>", "bb", 0.6),
            ("<own(mu=0.1)>", "cc", 0.7),
            ("<own(mu=0.2)>", "cc", 0.8),
        ]
    ):
        write(tmp_path / f"{number}", Settings(method=method), ended(value), computes=computes)
    mine, own = chosen(capsys, tmp_path)["groups"]
    assert (mine["group"]["method"], mine["setting"]) == ("<mine>", {"computes": "bb"})
    assert (own["group"]["method"], own["setting"]) == ("<own>", {"method.mu": 0.2})


BAD = {
    "nowhere": (["nowhere"], "DIR must be a folder, got"),
    "empty": (["empty"], "no run below .* has ended"),
    "metric": (["--metric=accuracy"], "did you mean.*metric must be one of .*test_accuracy.* got 'accuracy'"),
    "better": (["--metric=steps"], "better must be higher or lower for steps, whose runs do not say it"),
    "by": (["--by=metod"], "did you mean 'method'.*by must name settings, got 'metod'"),
    "no setting": (["--by=seed"], "by must name settings that tell candidates apart, got 'seed'"),
    "output": (["--output=best.pdf"], "output must end in .txt, .md, .csv, .tex, got 'best.pdf'"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line(case, grid, capsys):
    arguments, expected = BAD[case]
    (grid / "empty").mkdir()
    given = [grid / arguments[0]] if case in ("nowhere", "empty") else [grid, *arguments]
    error = best(capsys, *given, status=2).err
    assert re.search(expected, error)
    assert error.count("\n") == 1
