"""A second paper, with invented figures: its rows run and are compared, and its claims are tested."""

import pytest
from folders import cell

from saddle_jax.papers import evidence, runs
from saddle_jax.papers.tables import (
    SCALES,
    Claim,
    Experiment,
    Hyperparameters,
    Paper,
    Statement,
    entries_of,
    mean,
)
from saddle_jax.training.program import build

SETTINGS = {"cifar10": Hyperparameters(0.1, 0.0, 200, 32, "resnet20", 50_000)}
PATH = """
16  dpsgd      none  66.5±1.2  75.1*
16  relay_sgd  none  86.5±0.5  89.1±0.3
"""
COLUMNS = (("cifar10", 0.01), ("cifar10", 0.1))
ENTRIES = tuple(entries_of(PATH, COLUMNS, SETTINGS, topology="path"))
PAPER = Paper({"1": Experiment("a path of 16 agents", ENTRIES)}, bases={"relay_sgd": "dpsgd"})
GAINS = PAPER.gains("relay_sgd", "dpsgd", "1")


def test_its_rows_are_settings_of_runs_at_every_scale():
    config = PAPER.variant("smoke/cifar10-path16-alpha0.01-relay_sgd-none", default="")
    assert (config.topology, config.agents, config.model) == ("path", 16, "logistic")
    assert build(config).trial.steps == 2
    assert runs.size_of(ENTRIES[0].config()).steps == SETTINGS["cifar10"].steps(16) == 200 * 98
    assert runs.table_rows(PAPER)[1:] == [["1", "1", "4", "a path of 16 agents"]]


def test_its_claims_and_statements_are_about_its_own_methods():
    claim = Claim("Table 1", "17 points better", ("17",), GAINS, mean)
    assert claim.printed() == pytest.approx(((86.5 - 66.5 + 89.1 - 75.1) / 2,))
    cells = {entry: cell((50.0 + row,), seeds=(0,)) for row, entry in enumerate(ENTRIES)}
    head, *rows = evidence.contrasts(PAPER, cells)
    assert [row[head.index("contrast")] for row in rows] == ["relay_sgd - dpsgd"] * 2
    assert [row[head.index("paper")] for row in rows] == ["+20.00", "+14.00"]
    assert evidence.beside_the_paper(cells, SCALES["cpu"])[2][6:8] == ["75.10*", "51.00"]
    assert evidence.findings([Statement("gain", "it is better", "accuracy", 1, GAINS)], {}) == []
