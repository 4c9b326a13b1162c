"""What runs say of the paper's statements: intervals and verdicts by a second route."""

import csv
import math

import pytest
from folders import write_run

from saddle_jax.cli.__main__ import main
from saddle_jax.paper.experiments import EXPERIMENTS
from saddle_jax.paper.scales import SCALES
from saddle_jax.paper.statements import STATEMENTS

ROW = "cifar10-ring10-alpha0.001"
T_OF_2 = 4.302652729749464  # Student's t at 97.5 % with two degrees of freedom


def write(tmp_path, tables, ending, accuracies, otherwise="", **more):
    """Writes a run of an entry for each accuracy, from seed 0 on; `otherwise` is how its name goes on."""
    (entry,) = {
        entry for name in tables for entry in EXPERIMENTS[name].entries if entry.name == f"{ROW}-{ending}"
    }
    for seed, accuracy in enumerate(accuracies):
        config = SCALES["study"].apply(entry.config(seed))
        own = {name: value[seed] if isinstance(value, list) else value for name, value in more.items()}
        lines = own.pop("lines", None)
        folder = tmp_path / "study" / f"{entry.name}{otherwise}-seed{seed}"
        result = {"test_accuracy": accuracy, "steps": 8}
        write_run(folder, config, result=result, lines=lines, about={"partition": {}}, **own)


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
    assert rows["accuracy", "q_saddle", "quantize8"]["verdict"] == "not shown"  # 20, -5, 0
    drop = rows["drop", "q_saddle", "quantize8"]
    # Compression does 0, -22, -17 to Q-SADDLe, and -10, -5, -8 to QGM.
    assert drop["ours"] == f"{(10 - 17 - 9) / 3:+.2f}"
    assert drop["paper"] == f"{(85.57 - 86.33) - (73.03 - 79.48):+.2f}"
    assert (tmp_path / "evidence-study.png").exists()
    assert "SADDLe is above its base method" in capsys.readouterr().out


def test_what_is_said_to_be_smaller_is_judged_the_other_way(tmp_path):
    for ending, factor in (("qgm-quantize8", 1.0), ("q_saddle-quantize8", 1.2)):
        errors = [lines("compression_error", [factor * seed, factor * seed * 3]) for seed in (1, 2, 4)]
        write(tmp_path, "1", ending, (0.5, 0.6, 0.7), lines=errors)
    found = evidence(tmp_path)["compression error", "q_saddle", "quantize8"]
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
    expected = 100 * ((10 / 40 + 12 / 44 + 16 / 60) / 3 - 1)
    assert (found["ours"], found["verdict"]) == (f"{expected:+.2f}%", "shown")
    early = tmp_path / "early"
    for ending in values:
        write(early, "1", ending, (0.5, 0.6), sharpness=sharpness([(4, 1.0)]))
    assert ("flatness", "q_saddle", "none") not in evidence(early)


def test_a_seed_that_diverged_is_not_compared_but_marked(tmp_path):
    write(tmp_path, "1", "q_saddle-none", (0.60, 0.72, 0.79))
    write(tmp_path, "1", "qgm-none", (0.50, 0.60, 0.70), status=["finished", "finished", "diverged"])
    found = evidence(tmp_path)["accuracy", "q_saddle", "none"]
    assert (found["seeds"], found["ours"]) == ("2", "+11.00*")


def table(path):
    with path.open() as file:
        return list(csv.reader(file))


def test_every_cell_is_listed_over_its_seeds(tmp_path):
    measured = [sharpness([(8, value)]) for value in (90.0, 110.0)]
    write(tmp_path, "1", "qgm-none", (0.50, 0.60), sharpness=measured)
    write(tmp_path, "1", "q_saddle-none", (0.6, 0.7, 0.8), status=["finished", "finished", "diverged"])
    write(tmp_path, ["rho"], "q_saddle-none-rho0.2", (0.9,))
    evidence(tmp_path)
    half = 12.706204736 * 10 / 2  # Student's t with one degree of freedom, by the standard error
    assert table(tmp_path / "evidence-study-accuracies.csv")[1:] == [
        [f"{ROW}-q_saddle-none", "65.00 +- 7.07*", f"[{65 - half:.2f}, {65 + half:.2f}]", "2", "-", "0"],
        [f"{ROW}-q_saddle-none-rho0.2", "90.00", "-", "1", "-", "0"],
        [f"{ROW}-qgm-none", "55.00 +- 7.07", f"[{55 - half:.2f}, {55 + half:.2f}]", "2", "100 +- 14", "2"],
    ]


def test_other_readings_stand_beside_the_default_over_the_same_seeds(tmp_path):
    write(tmp_path, "1", "qgm-none", (0.50, 0.60, 0.90))
    write(tmp_path, "1", "q_saddle-none", (0.60, 0.72, 0.10))
    evidence(tmp_path)
    assert not (tmp_path / "evidence-study-readings.csv").exists()
    write(tmp_path, "1", "qgm-none", (0.55, 0.61), "-nesterov=false")
    write(tmp_path, "1", "q_saddle-none", (0.60, 0.70), "-nesterov=false")
    write(tmp_path, "1", "qgm-none", (0.55,), "-norm=evonorm_sigmoid")
    write(tmp_path, ["efficient"], "q_saddle-none-every5", (0.5,))
    write(tmp_path, ["efficient"], "q_saddle-none-every5", (0.6,), "-ascent_reuse=true")
    evidence(tmp_path)
    head, *rows = table(tmp_path / "evidence-study-readings.csv")
    assert [row[:3] for row in rows] == [
        ["ascent_reuse=true", "0.001", "q_saddle every 5"],
        ["nesterov=false", "0.001", "qgm"],
        ["nesterov=false", "0.001", "q_saddle"],
        ["norm=evonorm_sigmoid", "0.001", "qgm"],
    ]
    half = 12.706204736 * 4 / 2  # of +5 and +1
    _, base, saddle, single = (dict(zip(head, row, strict=True)) for row in rows)
    assert (base["difference"], base["seeds"]) == ("+3.00", "2")
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
            assert bases is None or {base.compressor for base in bases} == {"none"}
    compressors = {contrast.one.compressor for contrast in by_name["drop"].contrasts}
    assert compressors == {"quantize8", "quantize10", "top_k0.3", "sign", "quantize2_biased"}


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
