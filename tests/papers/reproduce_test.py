"""`saddle reproduce`: tables and figures of the paper, run, planned, drawn and listed."""

import contextlib
import dataclasses
import fnmatch
import io
import json
import re
import shutil

import numpy as np
import pytest

from saddle_jax.cli.__main__ import main
from saddle_jax.cli.verb import first_words, load
from saddle_jax.core.comm_cost import passes_per_step
from saddle_jax.methods import METHODS
from saddle_jax.papers import runs, tables
from saddle_jax.papers.saddle.experiments import EXPERIMENTS, PAPER
from saddle_jax.papers.saddle.figures import FIGURES, command_of, named_figure
from saddle_jax.papers.saddle.printed import SETTINGS
from saddle_jax.papers.tables import SCALES
from saddle_jax.training.program import build

ROW = "cifar10-ring5-alpha0.01-qgm-quantize8"
COMMAND = ["saddle", "reproduce", "--table=1", f"--rows={ROW}", "--scale=smoke"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the runs of one row, and what the command printed."""
    folder, shown = tmp_path_factory.mktemp("made"), io.StringIO()
    with contextlib.redirect_stdout(shown):
        assert main([*COMMAND, "--seeds=2", f"--workdir={folder}"]) == 0
    return folder, shown.getvalue()


@pytest.fixture
def folder(made, tmp_path):
    """A copy of that folder."""
    return shutil.copytree(made[0], tmp_path / "made")


def test_reproduce_runs_what_is_missing_and_writes_the_table(made, capsys):
    folder, shown = made
    assert "2 runs, 0 of them made already" in shown
    runs = sorted((folder / "smoke").iterdir())
    assert [run.name for run in runs] == [f"{ROW}-seed0", f"{ROW}-seed1"]
    accuracies = [100 * json.loads((run / "result.json").read_text())["test_accuracy"] for run in runs]
    assert f"{np.mean(accuracies):.2f} +- {np.std(accuracies, ddof=1):.2f}" in shown
    assert SCALES["smoke"].meaning in (folder / "table-1-smoke.md").read_text()
    assert (folder / "table-1-smoke.png").stat().st_size > 100
    for ending in ("txt", "md", "csv", "tex"):
        written = (folder / f"table-1-smoke.{ending}").read_text()
        assert "smoke test, not a result" in written  # in the table itself
        assert "86.85" not in written  # the paper's number
    assert "smoke test, not a result" in shown
    assert "86.85" not in shown
    assert json.loads((runs[0] / "paper.json").read_text()) == {
        "table": "1",
        "row": ROW,
        "paper": "86.85 +- 0.73",
        "scale": f"smoke: {SCALES['smoke'].meaning}",
    }
    written = (runs[0] / "metrics.jsonl").stat().st_mtime_ns
    assert main([*COMMAND, "--seeds=2", f"--workdir={folder}"]) == 0
    assert "2 runs, 2 of them made already" in capsys.readouterr().out
    assert (runs[0] / "metrics.jsonl").stat().st_mtime_ns == written


def test_every_figure_is_made_of_rows_that_exist_and_verbs_that_exist(capsys):
    load()
    for figure in FIGURES.values():
        for picture in figure.pictures:
            assert command_of(picture, "out", [1], 64)[0] in first_words()
        if figure.table is not None:
            names = [entry.name for entry in EXPERIMENTS[figure.table].entries]
            for part in figure.rows:
                assert fnmatch.filter(names, f"*{part}*")
    assert main(["saddle", "reproduce", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^{name} +(\d( and 8)?|-) +(table|none)", shown, re.M) for name in FIGURES)
    for figure in FIGURES.values():
        for picture in figure.pictures:
            verb, arguments = command_of(picture, "out", [1], 64)
            assert ("--directions=orthogonal" in arguments) == (verb == "landscape")


def test_tables_and_figures_have_the_numbers_of_the_paper(tmp_path, capsys):
    assert main(["saddle", "reproduce", "--table=6", "--list"]) == 0
    assert capsys.readouterr().out.count("-every5 ") == 8
    names = [PAPER.table_name(str(number)) for number in range(1, 10)]
    assert names == ["1", "2", "3", "4", "5", "efficient", "dpsgd", "top-k", "2-bit"]
    our_own = {"rho", "beyond", "curves"}
    assert set(map(named_figure, "123456789")) == set(FIGURES) - our_own
    command = ["saddle", "reproduce", "--figure=3", f"--workdir={tmp_path / 'new'}"]
    assert main([*command, "--plan"]) == 0
    assert capsys.readouterr().out.count("\nsaddle topology ") == 2
    assert not (tmp_path / "new").exists()
    assert main(command) == 0
    for graph in ("ring", "torus"):
        assert (tmp_path / "new" / f"figure-graphs-cpu-{graph}.png").read_bytes().startswith(b"\x89PNG")


def test_a_plan_needs_neither_a_folder_nor_data(tmp_path, monkeypatch, capsys):
    """The shapes of the paper's datasets are known; a run without its data stops before it begins."""
    monkeypatch.chdir(tmp_path)
    command = ["saddle", "reproduce", "--table=1", "--rows=cifar10-ring5-alpha0.01-qgm-none", "--seeds=1"]
    command += [f"--data_dir={tmp_path}"]
    assert main([*command, "--plan"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"cifar10-ring5-alpha0.01-qgm-none +1 +\d+", told)
    assert "about" in told
    assert "1 runs, 0 of them made already" in told
    assert main(command) == 2
    assert "workdir must be given" in capsys.readouterr().err
    assert main([*command, "--workdir=runs"]) == 2
    assert "'cifar10' is not prepared" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_plan_of_a_figure_prints_the_commands_that_draw_it(tmp_path, capsys):
    command = ["saddle", "reproduce", "--figure=9", "--scale=smoke", f"--workdir={tmp_path}", "--plan"]
    assert main(command) == 0
    (line,) = re.findall(r"^saddle landscape .*", capsys.readouterr().out, re.M)
    assert "--directions=orthogonal" in line
    assert re.findall(r"alpha0.001-(\w+-\w+)-seed0", line) == [
        "ngm-none",
        "n_saddle-none",
        "ngm-sign",
        "n_saddle-sign",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_figure_makes_its_runs_and_calls_its_verbs(tmp_path, capsys):
    command = ["saddle", "reproduce", "--figure=compression", "--scale=smoke", "--seeds=1"]
    assert main([*command, f"--workdir={tmp_path}", "--quiet"]) == 0
    assert re.search(
        r"^saddle figure compression --output=\S+ \S+qgm-quantize8-exponential-seed0 ",
        capsys.readouterr().out,
        re.M,
    )
    assert (tmp_path / "figure-compression-smoke.png").stat().st_size > 1000
    assert len(list((tmp_path / "smoke").iterdir())) == 2


def test_a_folder_that_holds_another_run_is_refused_and_left_alone(folder, capsys):
    command = [*COMMAND, "--seeds=1", "--quiet", f"--workdir={folder}"]
    run = folder / "smoke" / f"{ROW}-seed0"
    about = json.loads((run / "config.json").read_text())
    about["config"]["learning_rate"] = 0.7
    (run / "config.json").write_text(json.dumps(about))
    (run / "paper.json").unlink()
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "holds a run with other settings: learning_rate 0.7 -> 0.1; choose another workdir" in error
    assert error.count("\n") == 1
    assert not (run / "paper.json").exists()
    (run / "result.json").write_text("{")
    about["config"]["learning_rate"] = 0.1
    (run / "config.json").write_text(json.dumps(about))
    assert main(command) == 3
    assert re.search(r"result.json cannot be read", capsys.readouterr().err)


def test_a_plan_counts_gradients_and_what_a_checkpoint_saved(tmp_path):
    def size(**changes):
        return runs.size_of(dataclasses.replace(smoke, **changes))

    smoke = SCALES["smoke"].apply(EXPERIMENTS["1"].entries[0].config())
    passes = {
        "qgm": 1,
        "q_saddle": 2,
        "ngm": 3,
        "n_saddle": 6,
    }
    assert {method: size(method=method).passes for method in passes} == passes
    assert size(method="q_saddle(ascent_every=5)").passes == pytest.approx(1.2)
    assert runs.seconds_of(size(epochs=2)) > runs.seconds_of(size()) > 0
    planned = runs.plan(EXPERIMENTS["1"].entries[:1], SCALES["smoke"], 2, tmp_path, "")
    assert [run.status for run in planned] == ["missing", "missing"]
    (planned[0].workdir / "checkpoints" / "00000001").mkdir(parents=True)
    assert (planned[0].status, planned[0].steps_done) == ("interrupted", 1)


@pytest.mark.parametrize("changes", [{}, {"method": "n_saddle(compressor=sign)", "agents": 7}])
def test_a_size_told_from_settings_is_that_of_the_run(changes):
    entry = EXPERIMENTS["1"].entries[0]
    config = dataclasses.replace(SCALES["smoke"].apply(entry.config()), **changes)
    found, built = runs.size_of(config), build(config)
    assert found.steps == built.trial.steps
    assert found.bytes_sent == built.comm_cost.wire_bytes_per_agent(found.steps)
    assert found.passes == passes_per_step(built.method, built.shapes_of_one.params)


def test_a_size_is_that_of_the_papers_data_without_the_data():
    config = EXPERIMENTS["1"].entries[0].config()
    found = runs.size_of(config)
    assert config.dataset == "cifar10"
    assert found.steps == SETTINGS["cifar10"].steps(config.agents)
    # ResNet-20 takes 41 million multiplications for an image of CIFAR-10.
    per_image = found.operations / (3 * config.agents * config.batch_size)
    assert per_image == pytest.approx(2 * 41e6, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--table=17"], r"table must be one of 1, 2, 3, .*, 9, got '17'$"),
        (["--table=12"], r"table must be .*, got '12'; `saddle reproduce costs` has tables 10 to 14"),
        ([], r"table must be one of .*, got nothing"),
        (["--table=1", "--rows=ring11"], r"rows must match a row of table 1, such as \S+, got ring11"),
        (["--table=1", "--scale=big"], r"scale must be one of full, long, cpu, study, smoke, got 'big'"),
        (["--table=1"], r"workdir must be given"),
        (["--table=1", "--rows=ring5,"], r"rows must be parts of names, got an empty one"),
        (["--table=1", "--rows=ring5-alpha0.01-qgm", "--scale=smoke", "--workdir=/dev/null"], r"/dev/null"),
        (["--figure=10"], r"figure must be one of landscape, .*, or 1 to 9, got '10'"),
        (["--figure=levels", "--table=1"], r"figure must stand alone"),
        (["--figure=levels", "--json"], r"json must not be given with --figure"),
        (["--table=1", "--seeds=0"], r"seeds"),
        (
            ["--table=1", "--rows=ring5-alpha0.01-qgm-none", "--workdir=w", "--data_dir=nowhere"],
            r"cifar10.*nowhere",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["saddle", "reproduce", *arguments]) == 2
    error = capsys.readouterr().err
    assert re.search(expected, error)
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_list_names_every_experiment_and_row(capsys):
    assert main(["saddle", "reproduce", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(
        re.search(rf"^{re.escape(name)} +\S+ +{len(e.entries)} ", shown, re.M)
        for name, e in EXPERIMENTS.items()
    )
    assert main(["saddle", "reproduce", "--list", "--table=5"]) == 0
    assert "cifar10-torus40-alpha0.001-qgm-quantize8" in capsys.readouterr().out


def test_interpretations_change_the_runs_that_they_mean_something_to():
    by_name = {e.name: e.config() for found in EXPERIMENTS.values() for e in found.entries}

    def changed(name, **given):
        default = by_name[name]
        config = tables.interpreted_as(default, given)
        return tables.interpretation_suffix(config, default), config

    compressed, plain = "cifar10-ring10-alpha0.01-qgm-quantize8", "cifar10-ring10-alpha0.01-qgm-none"
    assert changed(compressed, order="paper")[0] == "-order=paper"
    assert "order=paper" in changed(compressed, order="paper")[1].method
    assert changed(plain, order="paper") == ("", by_name[plain])
    assert changed(plain, nesterov=False, norm="evonorm_sigmoid")[0] == "-nesterov=false-norm=evonorm_sigmoid"
    assert changed(plain, self_gradient="mixed")[0] == ""
    signs = "cifar10-ring10-alpha0.01-ngm-sign"
    assert changed(signs, self_gradient="mixed", order="paper")[0] == "-self_gradient=mixed"
    assert changed(plain, ascent_reuse=True)[0] == ""
    every = changed("cifar10-ring10-alpha0.01-q_saddle-none-every5", ascent_reuse=True)[1]
    assert METHODS.given(every.method)["ascent_reuse"] is True
    two = "cifar10-ring10-alpha0.01-ngm-quantize2_biased"
    assert changed(two, biased=False)[0] == "-compressor=quantize2"
    assert changed(two, biased=True)[0] == ""
    assert tables.compressor_of(changed(compressed, biased=True)[1]) == "quantize(8, biased=True)"
    assert changed(signs, biased=False)[0] == ""


def test_runs_of_another_reading_have_folders_and_tables_of_their_own(folder, capsys):
    command = [*COMMAND, "--seeds=1", f"--workdir={folder}"]
    assert main([*command, "--order=paper"]) == 0
    shown = capsys.readouterr().out
    assert "1 runs, 0 of them made already" in shown
    assert shown.count("order=paper") >= 3
    names = {path.name for path in (folder / "smoke").iterdir()}
    assert names == {f"{ROW}-seed0", f"{ROW}-seed1", f"{ROW}-order=paper-seed0"}
    about = json.loads((folder / "smoke" / f"{ROW}-order=paper-seed0" / "config.json").read_text())
    assert "order=paper" in about["config"]["method"]
    assert "order=paper" in (folder / "table-1-smoke-order=paper.md").read_text()
    assert "order=paper" not in (folder / "table-1-smoke.md").read_text()
    assert main([*command, "--order=mine"]) == 2
    assert "flag --order=mine: value should be one of <choco|paper>" in capsys.readouterr().err
