"""What runs say of the paper's statements: intervals and verdicts by a second route."""

import csv
import dataclasses
import math

import pytest
import scipy.stats
from folders import write_run

from saddle_jax.cli.__main__ import main
from saddle_jax.papers.saddle.claims import STATEMENTS
from saddle_jax.papers.saddle.experiments import EXPERIMENTS
from saddle_jax.papers.tables import SCALES

ROW = "cifar10-ring10-alpha0.001"
T_OF_2 = 4.302652729749464  # Student's t at 97.5 % with two degrees of freedom


def write(tmp_path, tables, ending, accuracies, otherwise="", row=ROW, **more):
    """Writes a run of an entry for each accuracy, from seed 0 on; `otherwise` is how its name goes on."""
    (entry,) = {
        entry for name in tables for entry in EXPERIMENTS[name].entries if entry.name == f"{row}-{ending}"
    }
    for seed, accuracy in enumerate(accuracies):
        config = SCALES["study"].apply(entry.config(seed), entry.times)
        own = {name: value[seed] if _is_by_seed(value) else value for name, value in more.items()}
        lines, about = own.pop("lines", None), {"partition": {}, **own.pop("about", {})}
        folder = tmp_path / "study" / f"{entry.name}{otherwise}-seed{seed}"
        result = {"test_accuracy": accuracy, "steps": 8}
        write_run(folder, config, result=result, lines=lines, about=about, **own)


def _is_by_seed(value):
    return isinstance(value, list) and value and not (isinstance(value[0], dict) and "epoch" in value[0])


def lines(name, values):
    return [{"step": step, "epoch": step / 2, name: value} for step, value in enumerate(values, start=1)]


def evidence(tmp_path):
    assert main(["saddle", "reproduce", "--evidence", "--scale=study", f"--workdir={tmp_path}"]) == 0
    with (tmp_path / "evidence-study.csv").open() as file:
        return {(row["statement"], row["method"], row["compressor"]): row for row in csv.DictReader(file)}


def test_differences_are_paired_and_decided_by_their_interval(tmp_path, capsys):
    write(tmp_path, "1", "qgm-none", (0.50, 0.60, 0.70))
    write(tmp_path, "1", "q_saddle-none", (0.60, 0.72, 0.79))
    write(tmp_path, "1", "qgm-quantize8", (0.40, 0.55, 0.62))
    write(tmp_path, "1", "q_saddle-quantize8", (0.60, 0.50, 0.62))
    rows = evidence(tmp_path)
    found = rows["accuracy", "q_saddle", "none"]
    gains = (10.0, 12.0, 9.0)
    mean = sum(gains) / 3
    half = T_OF_2 * math.sqrt(sum((gain - mean) ** 2 for gain in gains) / 2 / 3)
    assert found["ours"] == f"{mean:+.2f}"
    assert found["95 % interval"] == f"[{mean - half:+.2f}, {mean + half:+.2f}]"
    assert (found["paper"], found["seeds"], found["verdict"]) == ("+6.85", "3", "shown")
    assert rows["accuracy", "q_saddle", "quantize(8)"]["verdict"] == "not shown"  # 20, -5, 0
    drop = rows["drop", "q_saddle", "quantize(8)"]
    # Compression does 0, -22, -17 to Q-SADDLe, and -10, -5, -8 to QGM.
    assert drop["ours"] == f"{(10 - 17 - 9) / 3:+.2f}"
    assert drop["paper"] == f"{(85.57 - 86.33) - (73.03 - 79.48):+.2f}"
    assert (tmp_path / "evidence-study.png").exists()
    assert "SADDLe is above its base method" in capsys.readouterr().out


def test_what_is_said_to_be_smaller_is_judged_the_other_way(tmp_path):
    for ending, factor in (("qgm-quantize8", 1.0), ("q_saddle-quantize8", 1.2)):
        errors = [lines("compression_error", [factor * seed, factor * seed * 3]) for seed in (1, 2, 4)]
        write(tmp_path, "1", ending, (0.5, 0.6, 0.7), lines=errors)
    found = evidence(tmp_path)["model error", "q_saddle", "quantize(8)"]
    assert (found["ours"], found["verdict"]) == ("+20.00%", "contradicted")
    assert found["paper"] == "-"


def sharpness(steps_and_values):
    stages = [
        {"step": step, "epoch": step / 2, "whose": "consensus", "lambda_max": value, "density": None}
        for step, value in steps_and_values
    ]
    return {"stages": stages}


def test_flatness_is_that_of_the_end(tmp_path):
    values = {"qgm-none": (40.0, 44.0, 60.0), "q_saddle-none": (10.0, 12.0, 16.0)}
    for ending, ends in values.items():
        measured = [sharpness([(4, 1.0), (8, end)]) for end in ends]
        write(tmp_path, "1", ending, (0.5, 0.6, 0.7), sharpness=measured)
    found = evidence(tmp_path)["flatness", "q_saddle", "none"]
    # Ratios, and so their logarithms: the geometric mean, and an interval that no ratio below 0 is in.
    logs = [math.log(10 / 40), math.log(12 / 44), math.log(16 / 60)]
    mean = sum(logs) / 3
    half = T_OF_2 * math.sqrt(sum((log - mean) ** 2 for log in logs) / 2 / 3)
    low, mean, high = (100 * (math.exp(log) - 1) for log in (mean - half, mean, mean + half))
    assert (found["ours"], found["verdict"]) == (f"{mean:+.2f}%", "shown")
    assert found["95 % interval"] == f"[{low:+.2f}, {high:+.2f}]"
    early = tmp_path / "early"
    for ending in values:
        write(early, "1", ending, (0.5, 0.6), sharpness=sharpness([(4, 1.0)]))
    assert ("flatness", "q_saddle", "none") not in evidence(early)


def test_a_seed_that_diverged_is_not_compared_but_marked(tmp_path):
    write(tmp_path, "1", "q_saddle-none", (0.60, 0.72, 0.79))
    write(tmp_path, "1", "qgm-none", (0.50, 0.60, 0.70), status=["finished", "finished", "diverged"])
    found = evidence(tmp_path)["accuracy", "q_saddle", "none"]
    assert (found["seeds"], found["ours"]) == ("2", "+11.00*")


def test_what_diverged_altogether_is_told(tmp_path):
    write(tmp_path, "1", "q_saddle-none", (0.60, 0.72))
    write(tmp_path, "1", "qgm-none", (0.50, 0.60), status="diverged")
    found = evidence(tmp_path)["accuracy", "q_saddle", "none"]
    assert (found["ours"], found["seeds"], found["verdict"]) == ("-*", "0", "diverged")
    (row,) = (row for row in table(tmp_path / "evidence-study-summary.csv") if row[0] == "accuracy")
    assert row[2:] == ["0", "0", "0", "1 diverged", "-", "-", "-"]


def test_chance_is_told_for_each_difference_and_for_all_of_them(tmp_path):
    accuracies = {
        "qgm-none": (0.50, 0.60, 0.70),
        "q_saddle-none": (0.60, 0.72, 0.79),
        "qgm-quantize8": (0.40, 0.55, 0.62),
        "q_saddle-quantize8": (0.60, 0.50, 0.62),
    }
    for ending, values in accuracies.items():
        write(tmp_path, "1", ending, values, lines=[])
    rows = evidence(tmp_path)
    full, eight, drop = (
        rows[key]
        for key in (
            ("accuracy", "q_saddle", "none"),
            ("accuracy", "q_saddle", "quantize(8)"),
            ("drop", "q_saddle", "quantize(8)"),
        )
    )
    plain = scipy.stats.ttest_rel(accuracies["q_saddle-none"], accuracies["qgm-none"]).pvalue
    few = scipy.stats.ttest_rel(accuracies["q_saddle-quantize8"], accuracies["qgm-quantize8"]).pvalue
    both = scipy.stats.ttest_1samp([10, -17, -9], 0).pvalue
    assert [float(row["p"]) for row in (full, eight, drop)] == pytest.approx([plain, few, both], abs=5e-5)
    # Holm: three tests, of which the smallest p counts threefold and the next one twice.
    assert both < few
    corrected = [3 * plain, max(2 * both, few), 2 * both]
    assert [row["p of all"] for row in (full, eight, drop)] == [f"{min(1.0, p):.2f}" for p in corrected]


def test_all_contrasts_of_a_statement_are_one_mean_for_each_seed(tmp_path):
    write(tmp_path, "1", "qgm-none", (0.50, 0.60, 0.70))
    write(tmp_path, "1", "q_saddle-none", (0.60, 0.72, 0.79))
    write(tmp_path, "1", "qgm-quantize8", (0.40, 0.55))
    write(tmp_path, "1", "q_saddle-quantize8", (0.60, 0.56))
    for ending in ("qgm-top_k0.3", "q_saddle-top_k0.3"):
        write(tmp_path, ["top-k"], ending, (0.5,))  # one seed decides nothing, and takes no other's away
    evidence(tmp_path)
    head, *rows = table(tmp_path / "evidence-study-summary.csv")
    found = dict(zip(head, next(row for row in rows if row[0] == "accuracy"), strict=True))
    means = [(10 + 20) / 2, (12 + 1) / 2]  # of the two seeds that both have
    half = 12.706204736 * abs(means[0] - means[1]) / 2
    middle = sum(means) / 2
    assert found["mean of all"] == f"{middle:+.2f}"
    assert found["95 % interval"] == f"[{middle - half:+.2f}, {middle + half:+.2f}]"
    assert (found["shown"], found["not shown"], found["together"]) == ("1", "1", "not shown")
    assert found["other"] == "1 one seed"


def test_what_is_counted_is_no_matter_of_chance(tmp_path):
    for tables, ending, passes in ((["efficient"], "q_saddle-none-every5", 12), ("1", "q_saddle-none", 20)):
        counted = lines("backward_passes", [passes / 2, passes])
        write(tmp_path, tables, ending, (0.5, 0.6), lines=counted, about={"passes_per_step": passes / 8})
    found = evidence(tmp_path)["efficient costs", "q_saddle every 5", "none"]
    assert (found["ours"], found["verdict"], found["p"]) == ("-40.00%", "counted", "-")


def test_a_base_method_may_compute_as_much(tmp_path):
    write(tmp_path, "1", "q_saddle-none", (0.60, 0.72))
    write(tmp_path, ["passes"], "qgm-none-times2", (0.59, 0.73))
    found = evidence(tmp_path)["equal passes", "q_saddle", "none"]
    assert (found["ours"], found["paper"], found["verdict"]) == ("+0.00", "-", "not shown")
    (longer,) = (entry for entry in EXPERIMENTS["passes"].entries if entry.method == "qgm")
    for scale in SCALES.values():
        base = scale.apply(dataclasses.replace(longer, times=1).config())
        assert scale.apply(longer.config(), longer.times) == dataclasses.replace(base, epochs=2 * base.epochs)


def test_the_best_evaluation_of_each_run_counts_too(tmp_path):
    curves = {"qgm-none": [0.3, 0.6, 0.2], "q_saddle-none": [0.4, 0.5, 0.55]}
    for ending, scores in curves.items():
        write(tmp_path, "1", ending, (scores[-1],) * 2, lines=lines("test_accuracy", scores))
    rows = evidence(tmp_path)
    assert rows["accuracy", "q_saddle", "none"]["ours"] == "+35.00"
    assert rows["best", "q_saddle", "none"]["ours"] == "-5.00"


def test_the_papers_star_is_kept(tmp_path):
    for ending in ("qgm-top_k0.3", "q_saddle-top_k0.3"):
        write(tmp_path, ["top-k"], ending, (0.5,), row="cifar10-ring10-alpha0.01")
    found = evidence(tmp_path)["accuracy", "q_saddle", "top_k(0.3)"]
    assert (found["paper"], found["verdict"]) == ("+28.11*", "one seed")


def table(path):
    with path.open() as file:
        return list(csv.reader(file))


def test_every_cell_is_listed_over_its_seeds(tmp_path):
    measured = [sharpness([(8, value)]) for value in (90.0, 110.0)]
    write(tmp_path, "1", "qgm-none", (0.50, 0.60), sharpness=measured)
    write(tmp_path, "1", "q_saddle-none", (0.6, 0.7, 0.8), status=["finished", "finished", "diverged"])
    write(tmp_path, ["rho"], "q_saddle-none-rho0.2", (0.9,))
    write(tmp_path, ["levels"], "ngm-quantize2_biased", (0.4,))  # which the table of 2 bits has, too
    evidence(tmp_path)
    half = 12.706204736 * 10 / 2  # Student's t with one degree of freedom, by the standard error
    assert table(tmp_path / "evidence-study-accuracies.csv")[1:] == [
        [f"{ROW}-ngm-quantize2_biased", "40.00", "-", "1", "-", "0"],
        [f"{ROW}-q_saddle-none", "65.00 +- 7.07*", f"[{65 - half:.2f}, 100.00]", "2", "-", "0"],
        [f"{ROW}-q_saddle-none-rho0.2", "90.00", "-", "1", "-", "0"],
        [f"{ROW}-qgm-none", "55.00 +- 7.07", "[0.00, 100.00]", "2", "100 +- 14", "2"],
    ]


def test_other_interpretations_stand_beside_the_default_over_the_same_seeds(tmp_path):
    write(tmp_path, "1", "qgm-none", (0.50, 0.60, 0.90))
    write(tmp_path, "1", "q_saddle-none", (0.60, 0.72, 0.10))
    evidence(tmp_path)
    assert not (tmp_path / "evidence-study-interpretations.csv").exists()
    write(tmp_path, "1", "qgm-none", (0.55, 0.61), "-nesterov=false")
    write(tmp_path, "1", "q_saddle-none", (0.60, 0.70), "-nesterov=false")
    write(tmp_path, "1", "qgm-none", (0.55,), "-norm=evonorm_sigmoid")
    write(tmp_path, ["efficient"], "q_saddle-none-every5", (0.5,))
    write(tmp_path, ["efficient"], "q_saddle-none-every5", (0.6,), "-ascent_reuse=true")
    evidence(tmp_path)
    head, *rows = table(tmp_path / "evidence-study-interpretations.csv")
    assert [[row[0], row[2], row[4]] for row in rows] == [
        ["ascent_reuse=true", "0.001", "q_saddle every 5"],
        ["nesterov=false", "0.001", "qgm"],
        ["nesterov=false", "0.001", "q_saddle"],
        ["norm=evonorm_sigmoid", "0.001", "qgm"],
    ]
    half = 12.706204736 * 4 / 2  # of +5 and +1
    _, base, saddle, single = (dict(zip(head, row, strict=True)) for row in rows)
    assert (base["difference"], base["seeds"]) == ("+3.00", "2")
    assert base["default"] == "55.00 +- 7.07"  # of the seeds that both have
    assert base["95 % interval"] == f"[{3 - half:+.2f}, {3 + half:+.2f}]"
    # Over the first two seeds: 10 and 12 by default, 5 and 9 otherwise.
    assert (saddle["gain by default"], saddle["gain otherwise"]) == ("+11.00", "+7.00")
    assert (single["difference"], single["95 % interval"], single["gain otherwise"]) == ("+5.00", "-", "-")


def test_statements_are_about_the_tables_that_have_both():
    by_name = {statement.name: statement for statement in STATEMENTS}
    gains = by_name["accuracy"].contrasts
    methods = {(contrast.one.method, contrast.other.method) for contrast in gains}
    assert methods == {("q_saddle", "qgm"), ("n_saddle", "ngm"), ("d_saddle", "dpsgd")}
    for statement in STATEMENTS:
        assert statement.contrasts
        for one, other, bases in statement.contrasts:
            assert one.problem == other.problem
            assert one != other
            assert not bases or {base.compressor for base in bases} == {"none"}
    compressors = {contrast.one.compressor for contrast in by_name["drop"].contrasts}
    assert compressors == {"quantize(8)", "quantize(10)", "top_k(0.3)", "sign", "quantize(2, biased=True)"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--table=1"], "saddle: evidence must stand alone: it is about all tables\n"),
        ([], "there are no runs to compare in"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, expected, tmp_path, capsys):
    assert main(["saddle", "reproduce", "--evidence", f"--workdir={tmp_path}", *arguments]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
