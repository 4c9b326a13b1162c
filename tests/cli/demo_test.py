"""`saddle demo`, with models so small that it takes seconds: what it writes and says, and that it resumes."""

import json

import pytest
from folders import cell

from saddle_jax.cli import __main__ as cli
from saddle_jax.cli import papers
from saddle_jax.papers.saddle import demonstration
from saddle_jax.runs.statistics import Summary, summarise

TINY = {"agents": 3, "model": "logistic", "epochs": 25, "devices": "1", "eval_every_epochs": 25}


@pytest.fixture
def tiny(monkeypatch, unrendered):
    monkeypatch.setattr(papers, "DEMO", {**papers.DEMO, **TINY, "partition": "dirichlet(0.1)"})
    monkeypatch.setattr(papers, "_POINTS", 3)
    monkeypatch.setattr(papers, "_IMAGES", 32)
    monkeypatch.setattr(papers, "_ITERATIONS", 2)


def test_the_demonstration(tiny, tmp_path, capsys):
    command = ["saddle", "demo", "--seeds=0,1", f"--workdir={tmp_path / 'd'}"]
    assert cli.main(command) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.replace(str(tmp_path), "").splitlines())) <= 80
    assert "Q-SADDLe reaches" in printed
    for name in ("report.html", "landscape/landscape.html", "comparison.png"):
        assert (tmp_path / "d" / name).exists()
    page = (tmp_path / "d" / "report.html").read_text()
    assert "seed 1" in page
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "d").rglob("metrics.jsonl")}
    assert len(before) == 2
    assert cli.main([*command, "--json"]) == 0  # nothing is trained or measured again
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    accuracies = {method: one["accuracies"] for method, one in found["methods"].items()}
    assert len(accuracies["qgm"]) == len(accuracies["q_saddle"]) == 2
    paired = [a - b for a, b in zip(accuracies["q_saddle"], accuracies["qgm"], strict=True)]
    assert found["difference"]["mean"] == pytest.approx(sum(paired) / 2)
    assert found["methods"]["qgm"]["lambda_max"]["seeds"] == 2
    assert found["page"] == str(tmp_path / "d" / "report.html")


def shown(base, saddle, sharp=15.0, flat=5.0):
    seeds = tuple(range(len(base)))
    cells = {"qgm": cell(base, seeds=seeds), "q_saddle": cell(saddle, seeds=seeds)}
    return demonstration.Shown(cells, {"qgm": summarise([sharp]), "q_saddle": Summary(1, flat)})


@pytest.mark.parametrize(
    ("base", "saddle", "expected"),
    [
        ((90.0, 91.0, 92.0), (93.0, 94.1, 95.0), "3.03 points more than QGM"),
        ((90.0, 91.0, 92.0), (93.0, 94.1, 95.0), "The 95 % interval is above zero"),
        ((93.0, 94.1, 95.0), (90.0, 91.0, 92.0), "3.03 points less"),
        ((93.0, 94.1, 95.0), (90.0, 91.0, 92.0), "below zero: this contradicts"),
        ((90.0, 95.0), (91.0, 94.0), "contains zero: 2 seeds do not decide it"),
        ((90.0,), (91.0,), "One seed decides nothing"),
        ((), (91.0,), "A method diverged"),
    ],
)  # fmt: skip
def test_what_is_said_follows_from_the_numbers(base, saddle, expected):
    assert expected in " ".join(demonstration.meaning(shown(base, saddle)).split())


def test_sharper_models_are_not_called_flatter():
    text = " ".join(demonstration.meaning(shown((90.0, 91.0), (93.0, 94.5), sharp=4.0, flat=5.0)).split())
    assert "not flatter here: 5 against 4" in text
