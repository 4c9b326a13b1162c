"""Curves over runs: what they are drawn against, over seeds, and beside the paper's figures."""

import dataclasses

import folders
import numpy as np
import pytest
from folders import COMPRESSED, lines_of

from saddle_jax.base.errors import DamagedError, RunError
from saddle_jax.cli import __main__ as cli
from saddle_jax.report import figures


def test_curves_are_means_over_the_seeds_that_did_not_diverge(tmp_path, drawn):
    runs = [
        folders.write_run(
            tmp_path / f"seed{seed}", dataclasses.replace(COMPRESSED, seed=seed), lines=folders.metrics(f)
        )
        for seed, f in enumerate((1.0, 3.0))
    ]
    lost = folders.metrics(100.0, count=2)
    config = dataclasses.replace(COMPRESSED, seed=2)
    runs.append(folders.write_run(tmp_path / "lost", config, status="diverged", lines=lost))
    figures.draw("curves", runs, tmp_path / "out.png")
    loss, accuracy, _ = drawn[0].axes
    (label,) = lines_of(loss)
    assert label == "qgm(compressor=quantize(8)), 1 of 3 diverged"
    np.testing.assert_allclose(lines_of(loss)[label], 5.0 / (np.arange(1, 9) + 0.1))
    np.testing.assert_allclose(lines_of(accuracy)[label], 100 * (0.1 + 2 * np.array([4, 8]) / 37))
    heights = loss.collections[0].get_paths()[0].vertices[:, 1]
    assert loss.get_yscale() == "log"  # where the deviation is that of the logarithm, to first order
    factor = np.exp(2.5 * np.sqrt(2) / 5.0)
    assert heights.max() == pytest.approx(5.0 / 1.1 * factor)
    assert heights.min() == pytest.approx(5.0 / 8.1 / factor)

    figures.draw("curves", [runs[0], runs[2]], tmp_path / "out.png")  # alone, a run that diverged is drawn
    figures.draw("curves", [runs[2]], tmp_path / "out.png")
    np.testing.assert_allclose(lines_of(drawn[-1].axes[0])["lost"], 250.0 / np.array([1.1, 2.1]))


def test_curves_against_what_they_cost(tmp_path, drawn):
    """Two seeds whose agents waited differently long; the second one's clock runs at twice the pace."""

    def timed(pace):
        return [{**line, "simulated_seconds": pace * line["step"]} for line in folders.metrics()]

    about = {"passes_per_step": 1.5}
    runs = [
        folders.write_run(
            tmp_path / f"seed{seed}",
            dataclasses.replace(COMPRESSED, seed=seed),
            lines=timed(pace),
            about=about,
        )
        for seed, pace in enumerate((1.0, 2.0))
    ]
    steps = np.array([4, 8])
    places = {
        "epoch": steps / 4,
        "step": steps,
        "bytes": 1000 * steps,
        "passes": 1.5 * steps,
        "seconds": 1.5 * steps,
    }
    for x, expected in places.items():
        figures.draw("curves", runs, tmp_path / "out.png", x)
        loss, accuracy, _ = drawn[-1].axes
        np.testing.assert_allclose(accuracy.lines[0].get_xdata(), expected)
        np.testing.assert_allclose(loss.lines[0].get_xdata()[[3, 7]], expected)
        assert accuracy.get_xlabel() == figures.AXES[x].title
    figures.draw("curves", runs, tmp_path / "out.png")  # epochs, and the accuracy against all of that
    titles = [cell.get_xlabel() for cell in drawn[-1].axes]
    costs = ["bytes sent per agent", "backward passes per agent", "simulated seconds"]
    assert titles == ["epoch"] * 3 + costs
    np.testing.assert_allclose(drawn[-1].axes[5].lines[0].get_xdata(), places["seconds"])

    untimed = folders.write_run(tmp_path / "untimed")
    for x, said in (("seconds", "which simulates time, got untimed"), ("passes", "of a version that counts")):
        with pytest.raises(RunError, match=said):
            figures.draw("curves", [runs[0], untimed], tmp_path / "out.png", x)


def test_runs_whose_steps_cost_differently_are_drawn_against_what_they_cost(tmp_path, drawn):
    one = folders.write_run(tmp_path / "one", about={"passes_per_step": 1.0})
    double = dataclasses.replace(folders.SMALL, method="q_saddle")
    two = folders.write_run(tmp_path / "two", double, about={"passes_per_step": 2.0})
    figures.draw("curves", [one, two], tmp_path / "out.png")
    titles = [cell.get_xlabel() for cell in drawn[-1].axes]
    assert titles == ["epoch"] * 3 + ["step", "bytes sent per agent", "backward passes per agent"]
    passes = [line.get_xdata()[-1] for line in drawn[-1].axes[5].lines]
    assert passes == [8, 16]
    slower = dataclasses.replace(folders.SMALL, method="qgm(beta=0.5)")
    same = folders.write_run(tmp_path / "same", slower, about={"passes_per_step": 1.0})
    figures.draw("curves", [one, same], tmp_path / "out.png")
    assert len(drawn[-1].axes) == 3
    unknown = folders.write_run(tmp_path / "unknown")  # of an older version
    figures.draw("curves", [two, unknown], tmp_path / "out.png")
    assert len(drawn[-1].axes) == 3


def test_the_papers_figures_are_lines_across_the_accuracy(tmp_path, drawn, capsys):
    def paper(figure):
        return {"table": "1", "row": "r", "paper": figure, "scale": "full: as the paper has it"}

    slower = dataclasses.replace(folders.SMALL, method="qgm(beta=0.5)")
    better = dataclasses.replace(folders.SMALL, method="q_saddle")
    runs = [
        folders.write_run(tmp_path / "one", paper=paper("79.48 +- 2.76")),
        folders.write_run(tmp_path / "two", better, paper=paper("86.33")),
        folders.write_run(tmp_path / "own", slower, paper=paper(None)),
    ]
    figures.draw("curves", runs, tmp_path / "out.png", with_paper=True)
    loss, accuracy, _ = drawn[-1].axes
    across = [line for line in accuracy.lines if line.get_linestyle() == ":"]
    assert [line.get_ydata() for line in across] == [[79.48] * 2, [86.33] * 2]
    assert [line.get_color() for line in across] == [line.get_color() for line in accuracy.lines[:2]]
    assert not [line for line in loss.lines if line.get_linestyle() == ":"]
    shown = [text.get_text() for text in drawn[-1].legends[0].get_texts()]
    assert shown[3:] == ["one: 79.48 +- 2.76 in the paper", "two: 86.33 in the paper"]
    figures.draw("curves", runs, tmp_path / "out.png")
    assert not [line for line in drawn[-1].axes[1].lines if line.get_linestyle() == ":"]

    damaged = folders.write_run(tmp_path / "damaged", paper=paper("1e999"))
    with pytest.raises(DamagedError, match=r"must have a figure such as 79.48 .* got '1e999'"):
        figures.draw("curves", [damaged], tmp_path / "out.png", with_paper=True)
    command = ["figure", "curves", "--paper", *map(str, runs), f"--output={tmp_path / 'typed.png'}"]
    assert cli.main(["saddle", *command]) == 0
    assert (tmp_path / "typed.png").exists()
