"""Numbers over seeds, against scipy.stats and by hand; where tables, CSV, LaTeX and pages have them."""

import csv
import dataclasses
import io

import numpy as np
import pytest
from folders import SMALL, cell, make_page, with_compressor, write_run
from scipy import stats

from saddle_jax.report.comparisons import cells_of, comparison, differences, intervals, numbers
from saddle_jax.report.figures import plot_curves
from saddle_jax.report.tables import as_csv, as_latex, in_form
from saddle_jax.runs.schema import CLASSIFICATION
from saddle_jax.runs.statistics import Summary, paired, summarise
from saddle_jax.runs.table import load_runs
from saddle_jax.training.sweep import read_axes


def test_the_interval_is_students():
    values = [71.2, 70.1, 74.9, 69.0]
    found = summarise(values)
    assert found[:3] == pytest.approx((4, np.mean(values), np.std(values, ddof=1)))
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))
    # Two seeds: 12.706 standard errors to either side.
    assert summarise([1.0, 3.0]).high == pytest.approx(2 + 12.706, abs=1e-3)
    assert summarise([5.0]) == Summary(1, 5.0)
    assert summarise([]) == Summary(0)
    assert summarise([5.0]).interval() == "-"
    assert summarise([4.0, 4.0]).interval() == "[4.00, 4.00]"


def test_an_interval_of_accuracies_ends_at_100_percent():
    found = cell((99.0, 90.0, 98.0), seeds=(0, 1, 2))
    assert summarise(found.scores).high > 100
    assert (found.summary.low, found.summary.high) == (summarise(found.scores).low, 100.0)
    assert found.minus(cell((1.0, 9.0, 2.0), seeds=(0, 1, 2))).high > 100  # a difference may be anything
    assert CLASSIFICATION[1].bounds == (-np.inf, np.inf)


def test_differences_are_over_the_seeds_of_both():
    one, other = {0: 80.0, 1: 70.0, 2: 60.0, 5: 1.0}, {2: 58.0, 0: 79.0, 1: 67.0, 7: 99.0}
    found = paired(one, other)
    result = stats.ttest_rel([80.0, 70.0, 60.0], [79.0, 67.0, 58.0]).confidence_interval(0.95)
    assert found[:3] == pytest.approx((3, 2.0, 1.0))
    assert (found.low, found.high) == pytest.approx(tuple(result))
    assert paired({0: 1.0}, {1: 1.0}) == Summary(0)


def test_cells_are_paired_by_seed_and_say_so_if_they_cannot_be():
    one, other = cell((80.0, 70.0), seeds=(3, 4)), cell((70.0, 75.0), seeds=(4, 3))
    assert one.minus(other)[:2] == (2, 2.5)
    assert one.minus(cell((60.0,), seeds=(9,))) == Summary(0, 15.0)
    assert one.minus(cell(())) == Summary(0)
    assert cell((1.0, 2.0), seeds=(3, 3)).by_seed == {}  # which of the two would it be?


def write_grid(folder):
    scores = {("qgm", "none"): [0.5, 0.7], ("q_saddle", "none"): [0.6, 0.9], ("qgm", "sign"): [0.25, None]}
    for (method, compressor), accuracies in scores.items():
        for seed, accuracy in enumerate(accuracies):
            config = dataclasses.replace(SMALL, method=with_compressor(method, compressor), seed=seed)
            yield write_run(
                folder / f"{method}-{compressor}-{seed}",
                config,
                status="diverged" if accuracy is None else "finished",
                result={"test_accuracy": accuracy},
            )


def test_a_grid_in_numbers_and_differences(tmp_path):
    axes = read_axes("method=qgm,q_saddle method.compressor=none,sign")
    cells = cells_of(load_runs(write_grid(tmp_path)), axes)
    rows = list(csv.DictReader(io.StringIO(as_csv(numbers(cells, axes, CLASSIFICATION[0])))))
    assert [(row["method"], row["method.compressor"], row["n"], row["diverged"]) for row in rows] == [
        ("qgm", "none", "2", "0"),
        ("qgm", "sign", "1", "1"),
        ("q_saddle", "none", "2", "0"),
        ("q_saddle", "sign", "0", "0"),
    ]
    assert [float(rows[0][name]) for name in ("mean", "std", "seed 0", "seed 1")] == pytest.approx(
        [60.0, 200**0.5, 50.0, 70.0]
    )
    assert float(rows[0]["low"]) == 0.0  # 60 - 127.06 is no accuracy
    assert (rows[1]["seed 0"], rows[1]["seed 1"], rows[3]["mean"]) == ("25", "", "")
    assert intervals(cells, axes) == [
        ["method", "method.compressor", "mean", "deviation", "95 % interval", "seeds"],
        ["qgm", "none", "60.00", "14.14", "[0.00, 100.00]", "2"],
        ["qgm", "sign", "25.00", "-", "-", "1"],
        ["q_saddle", "none", "75.00", "21.21", "[0.00, 100.00]", "2"],
        ["q_saddle", "sign", "-", "-", "-", "0"],
    ]
    found = differences(cells, axes)
    assert found[0] == ["method", "method.compressor", "minus", "difference", "95 % interval", "seeds"]
    assert found[1:] == [
        ["qgm", "sign", "none", "-25.00", "-", "1"],
        ["q_saddle", "none", "qgm", "+15.00", "[-48.53, +78.53]", "2"],
        ["q_saddle", "sign", "qgm", "-", "-", "0"],
        ["q_saddle", "sign", "none", "-", "-", "0"],
    ]


def test_options_that_are_compared_or_fixed_are_no_part_of_a_methods_name(tmp_path):
    methods = ("qgm(mu=0.5)", "qgm(mu=0.5, compressor=sign)", "q_saddle(rho=0.2)", "dpsgd")
    for number, method in enumerate(methods):
        config = dataclasses.replace(SMALL, method=method)
        write_run(tmp_path / f"{number}", config, result={"test_accuracy": number / 10})
    runs = load_runs([tmp_path / f"{number}" for number in range(4)])
    axes = {"method": ["qgm", "q_saddle"], "method.compressor": [None, "sign"]}
    cells = cells_of(runs, axes, fixed=["method.mu", "method.rho"])
    assert {key: cell.scores for key, cell in cells.items()} == {
        ("qgm", "none"): (0.0,),
        ("qgm", "sign"): (10.0,),
        ("q_saddle", "none"): (20.0,),
        ("dpsgd", "none"): (30.0,),
    }
    assert cells_of(runs, axes).keys() >= {("qgm(mu=0.5)", "none"), ("q_saddle(rho=0.2)", "none")}


def test_latex_has_rules_of_booktabs_and_the_papers_names():
    text = as_latex([["method", "a_b"], ["q_saddle every 5", "71.2 +- 0.4"], ["gut(mu=0.5)", "5 % & {~}"]])
    assert text.splitlines() == [
        r"% needs \usepackage{booktabs}",
        r"\begin{tabular}{ll}",
        r"\toprule",
        r"method & a\_b \\",
        r"\midrule",
        r"Q-SADDLe every 5 & 71.2 $\pm$ 0.4 \\",
        r"gut(mu=0.5) & 5 \% \& \{\textasciitilde{}\} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_the_page_has_intervals_and_differences(tmp_path):
    page = make_page(tmp_path, *write_grid(tmp_path / "runs")).read_text()
    assert "[0.00, 100.00]" in page  # 60 +- 127.06, of accuracies
    assert "Differences over the same seeds" in page
    assert '<td class="number">[-48.53, +78.53]</td>' in page


def test_differences_stay_within_a_problem(tmp_path):
    """The same seeds of other data, of another partition or of more agents are no pair."""
    runs = [*write_grid(tmp_path / "runs")]
    others = {
        "data": {"dataset": "synthetic"},
        "agents": {"agents": 2},
        "parts": {"partition": "dirichlet(0.7)"},
    }
    for name, changes in others.items():
        for seed in (0, 1):
            config = dataclasses.replace(SMALL, seed=seed, **changes)
            about = {"partition": {"class_counts": [[4, 2]] * config.agents}}
            runs.append(write_run(tmp_path / f"{name}-{seed}", config, about=about))
    page = make_page(tmp_path, *runs).read_text()
    table = page.partition('data-csv="differences"')[2].partition("</table>")[0]
    assert table.count("<tr>") == 1 + 2  # the heading, and what else was tried on the one problem
    for seed in (0, 1):
        config = dataclasses.replace(SMALL, seed=seed, method="dpsgd", agents=2)
        runs.append(
            write_run(tmp_path / f"dpsgd-{seed}", config, about={"partition": {"class_counts": [[4, 2]] * 2}})
        )
    page = make_page(tmp_path, *runs).read_text()
    table = page.partition('data-csv="differences"')[2].partition("</table>")[0]
    assert table.count("<tr>") == 1 + 3  # and the pair of two agents


def test_bands_are_named_alike_in_picture_page_and_latex(tmp_path, drawn):
    runs = [*write_grid(tmp_path / "runs")]
    plot_curves(runs, tmp_path / "curves.png")
    assert drawn[-1].get_supxlabel() == "lines: mean of 2 seeds; bands: ± standard deviation"
    plot_curves(runs[:1], tmp_path / "curves.png")
    assert drawn[-1].get_supxlabel() == ""  # one run has no band
    page = make_page(tmp_path, *runs).read_text()
    assert 'std: "± standard deviation"' in page
    assert 'band: "std"' in page  # what the page begins with
    cells = {("qgm",): cell((1.0, 2.0), seeds=(0, 1))}
    caption = "mean +- standard deviation over seeds (n = 2)"
    shown = in_form(comparison(cells, {"method": ["qgm"]}), "tex", caption)
    assert shown.startswith(f"% {caption}\n")
