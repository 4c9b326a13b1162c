"""What the text claims: computed from the printed tables by a second route, and from runs."""

import csv
import dataclasses

import numpy as np
import pytest
from folders import write_run

from saddle_jax.base.registry import split
from saddle_jax.cli.__main__ import main
from saddle_jax.papers.saddle import printed
from saddle_jax.papers.saddle.claims import CLAIMS
from saddle_jax.papers.saddle.experiments import EXPERIMENTS
from saddle_jax.papers.tables import SCALES, Claim, Contrast, Printed, ends


def cells(text):
    """{(agents, method, compressor): means by column}, read from the table's text anew."""
    found = {}
    for line in text.split("\n"):
        if line.split():
            agents, method, compressor, *figures = split(line, " ")
            means = [float(figure.split("±")[0].strip("*")) for figure in figures]
            found[int(agents), method, compressor] = np.array(means)
    return found


def value(text):
    (claim,) = (claim for claim in CLAIMS if claim.text == text)
    return claim.printed()


def test_averages_and_ranges_by_columns_of_the_printed_text():
    one, three = cells(printed.QGM_CIFAR), cells(printed.NGM_CIFAR)
    gains = np.array([one[n, "q_saddle", "none"] - one[n, "qgm", "none"] for n in (5, 10, 20, 40)])
    assert value("CIFAR-10: 8.4 % better") == pytest.approx([gains[:, :2].mean()])
    assert value("CIFAR-100: ~6 % better") == pytest.approx([gains[:, 2:].mean()])
    lost = np.array([three[n, "ngm", "none"] - three[n, "ngm", "sign"] for n in (5, 10, 20)])
    assert value("CIFAR-100: NGM drops ~2-11 %") == pytest.approx([lost[:, 2:].min(), lost[:, 2:].max()])
    top = cells(printed.TOP_K)
    lost = np.array([one[n, "q_saddle", "none"][:2] - top[n, "q_saddle", "top_k(0.3)"] for n in (5, 10, 20)])
    assert value("top-30 %: Q-SADDLe drops ~0.6-18.5 %") == pytest.approx([lost.min(), lost.max()])
    two = cells(printed.TWO_BIT)
    lost = np.array(
        [three[n, "ngm", "none"][:2] - two[n, "ngm", "quantize(2, biased=True)"] for n in (5, 10, 20)]
    )
    assert value("2 bits: NGM drops 4.4 % on average") == pytest.approx([lost.mean()])
    cheap = cells(printed.EFFICIENT)
    lost = np.array([one[n, "q_saddle", "none"][:2] - cheap[n, "q_saddle", "none"] for n in (10, 20)])
    assert value("efficient: 1.75 % below Q-SADDLe") == pytest.approx([lost.mean()])
    plain = cells(printed.DPSGD)
    gains = np.array([plain[n, "d_saddle", "none"] - plain[n, "dpsgd", "none"] for n in (5, 10, 20)])
    assert value("CIFAR-10: D-SADDLe 10 % better") == pytest.approx([gains[:, :2].mean()])
    assert value("CIFAR-100: D-SADDLe 5.4 % better") == pytest.approx([gains[:, 2:].mean()])


def test_every_claim_is_about_pairs_of_one_problem_but_for_alpha():
    for claim in CLAIMS:
        assert claim.contrasts
        for one, other, _ in claim.contrasts:
            if other is not None:
                assert (one.dataset, one.agents, one.topology) == (
                    other.dataset,
                    other.agents,
                    other.topology,
                )
                assert one.problem == other.problem or "alpha" in claim.text or "retains" in claim.text
    # Tables 1 to 5 have 76 pairs of a method with its SADDLe version
    assert len(CLAIMS[0].contrasts) + len(CLAIMS[1].contrasts) == (64 + 16 + 48 + 16 + 8) // 2


@pytest.mark.parametrize(
    ("stated", "values", "expected"),
    [
        (("4.2",), (4.25, 0.0), "yes"),  # 4.25 rounds either way
        (("4.2",), (4.26, 0.0), "nearly"),
        (("1", "6"), (0.82, 6.45), "yes"),
        (("1", "6"), (0.82, 6.9), "nearly"),
        (("1", "6"), (-0.2, 6.0), "no"),
    ],
)
def test_verdicts_go_by_the_last_digit(stated, values, expected):
    entries = [e for e in EXPERIMENTS["levels"].entries if e.printed][:2]
    changed = [
        Contrast(dataclasses.replace(entry, printed=Printed(value)))
        for entry, value in zip(entries, values, strict=True)
    ]
    kept = tuple(changed[: len(stated)])
    assert Claim("", "", stated, kept, ends if len(stated) == 2 else tuple).verdict() == expected


def test_a_gain_under_compression_is_no_drop_in_the_text_but_a_gain_of_ours():
    one, other = (e for e in EXPERIMENTS["levels"].entries if e.name.endswith(("-qgm-none", "-ngm-none")))
    means = {one: -2.0, other: 1.5}
    printed = [Contrast(dataclasses.replace(e, printed=Printed(mean))) for e, mean in means.items()]
    assert Claim("", "", ("0", "1.5"), printed, ends, 0.0).printed() == (0.0, 1.5)
    claim = Claim("", "", ("0", "1.5"), [Contrast(one), Contrast(other)], ends, 0.0)
    assert claim.value(means) == ((-2.0, 1.5), 2)


@pytest.mark.usefixtures("of_one_tensor")
def test_ours_stand_beside_them_as_far_as_there_are_runs(tmp_path, capsys):
    accuracies = {"qgm-none": (0.5, 0.6), "q_saddle-none": (0.61, 0.77), "qgm-quantize8": (0.4,)}
    for entry in EXPERIMENTS["1"].entries:
        for ending, scores in accuracies.items():
            if entry.name == f"cifar10-ring10-alpha0.001-{ending}":
                for seed, score in enumerate(scores):
                    folder = tmp_path / "cpu" / f"{entry.name}-seed{seed}"
                    config = SCALES["cpu"].apply(entry.config(seed))
                    write_run(folder, config, result={"test_accuracy": score})
    assert main(["saddle", "reproduce", "--claims", f"--workdir={tmp_path}"]) == 0
    assert "1.94x" in capsys.readouterr().out
    with (tmp_path / "claims-cpu.csv").open() as file:
        rows = {(row["place"], row["the text says"]): row for row in csv.DictReader(file)}
    assert len(rows) == len(CLAIMS)
    found = rows["Table 1", "CIFAR-10: 8.4 % better"]
    assert (found["the tables say"], found["ours"], found["of them"]) == ("8.43", "14.00", "1")
    found = rows["Figure 4", "QGM drops from about 79 % to 73 %"]
    assert (found["ours"], found["of them"]) == ("55.00 to 40.00", "2")
    assert rows["Table 3", "CIFAR-10: 2.3 % better"]["ours"] == "-"


@pytest.mark.usefixtures("of_one_tensor")
def test_claims_need_no_runs_and_no_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["saddle", "reproduce", "--claims"]) == 0
    assert "efficient: 1.75 % below Q-SADDLe" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert main(["saddle", "reproduce", "--claims", "--table=1"]) == 2
    assert capsys.readouterr().err == "saddle: claims must stand alone: it is about all tables\n"
