"""The table of runs: a record for each run and seed, lines of each, means over seeds; what is read."""

import builtins
import dataclasses
import io
import json
import pathlib
import re
import sys
import types
from contextlib import redirect_stdout

import pytest
from folders import SMALL, metrics, write_run

import saddle_jax as sj
from saddle_jax.base import reading
from saddle_jax.runs import schema
from saddle_jax.runs.run_folder import read_about
from saddle_jax.runs.table import cell_of, cells_by, runs_below

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_example_in_the_documents_prints_what_it_says(monkeypatch):
    text = (ROOT / "docs" / "runs.md").read_text()
    found = re.search(r"```python\n(import saddle_jax as sj\n.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(ROOT)
    with redirect_stdout(io.StringIO()) as printed:
        exec(found[1], {})
    assert printed.getvalue() == found[2]


@pytest.fixture
def several(tmp_path):
    """Two seeds in one folder, one of which diverged, and a third seed beside it."""
    trials = [
        {"seed": 3, "status": "finished", "test_accuracy": 0.5, "params_sha256": "a"},
        {"seed": 4, "status": "diverged", "test_accuracy": None, "diverged_at_step": 2},
    ]
    lines = [{"step": 1, "epoch": 0.5, "train_loss": 2.0, "train_loss_std": 1}]
    lines[0]["train_loss_by_trial"] = [1, 3]
    config = dataclasses.replace(SMALL, seeds="3,4")
    write_run(tmp_path / "both", config, lines=lines, result={"trials": trials, "diverged": 1})
    write_run(tmp_path / "third", dataclasses.replace(SMALL, seed=5))
    return tmp_path


def test_a_record_for_each_run_and_seed_and_a_line_for_each_logged_step(several):
    runs = sj.load_runs([several])
    records = runs.records()
    assert [(one["run"], one["seed"], one["state"], one["test_accuracy"]) for one in records] == [
        ("both (seed 3)", 3, "finished", 0.5),
        ("both (seed 4)", 4, "diverged", None),
        ("third", 5, "finished", 0.625),
    ]
    assert {one["method"] for one in records} == {"qgm"}
    assert {one["steps"] for one in records} == {8}  # what the folder says of all of them
    assert [run.metrics()[0]["train_loss"] for run in runs[:2]] == [1, 3]
    assert len(runs[2].metrics()) == len(metrics())
    cell = cells_by(runs, lambda run: run.config.method)["qgm"]
    assert (cell.values, cell.seeds, cell.diverged) == ((0.5, 0.625), (3, 5), 1)
    assert cell.text() == "56.25 +- 8.84*"
    assert cell_of(runs, schema.Measure("train_loss", "lower", "", False, "train_loss")).values[0] == 1


def test_frames_need_pandas_and_say_so(several, monkeypatch):
    runs = sj.load_runs([several])
    importing = builtins.__import__

    def without(name, *others):
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return importing(name, *others)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", without)
        for rows in (runs, runs[0].metrics()):
            with pytest.raises(ImportError, match=r"frame\(\) needs pandas: python -m pip install pandas"):
                rows.frame()
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=lambda rows: ("frame", rows)))
    assert runs.frame() == ("frame", runs.records())
    assert runs[2].metrics().frame() == ("frame", runs[2].metrics())


def test_a_list_opens_few_files_and_reads_the_end_of_long_ones(tmp_path, monkeypatch):
    """A thousand folders are listed in a second: three files of each, and of metrics.jsonl the last lines."""
    for seed in range(4):
        lines = metrics(count=20_000) if seed == 0 else None
        write_run(tmp_path / str(seed), dataclasses.replace(SMALL, seed=seed), lines=lines)
    opened, read = [], []
    opening = reading.open_to_read

    class Counted(io.BufferedReader):
        def read(self, size=-1):
            content = super().read(size)
            read.append(len(content))
            return content

    def counted(path):
        opened.append(path)
        return Counted(opening(path).detach())

    for module in (reading, sys.modules["saddle_jax.runs.metrics"]):
        monkeypatch.setattr(module, "open_to_read", counted)
    assert [(one.run, one.step, one.text) for one in runs_below(tmp_path)][1:] == [
        (str(seed), 8, "accuracy 62.50 %") for seed in range(1, 4)
    ]
    assert len(opened) == 3 * 4
    assert (tmp_path / "0" / "metrics.jsonl").stat().st_size > 1_000_000
    assert sum(read) < 200_000


def test_what_a_file_says_is_declared(tmp_path):
    path = write_run(tmp_path / "run") / "result.json"
    sound = json.loads(path.read_text())
    for change, said in (
        ({"status": "done"}, "status must be one of finished, diverged, interrupted, got 'done'"),
        ({"steps": 1.5}, "steps must be a whole number, got '1.5'"),
        ({"seconds": -1}, "seconds must be a number >= 0"),
        ({"test_loss": "low"}, "test_loss must be a number, got 'low'"),
        ({"agent_loss_each": 3}, "agent_loss_each must be a list, got '3'"),
        ({"agent_loss_each": ["x"]}, "agent_loss_each must be a number, got 'x'"),
        ({"last_finite": {"step": 1}}, "train_loss must be there"),
        ({"profile": {}}, "profile must have times"),
        ({"trials": [], "diverged": 0}, "trials must be a list of objects"),
        ({"trials": [{}], "diverged": 0}, "status must be there"),
        ({"test_loss": 1e200}, "test_loss must be a number"),
    ):
        path.write_text(json.dumps(sound | change))
        with pytest.raises(schema.DamagedError, match=re.escape(f"{path} cannot be read: {said}")):
            schema.read_result(tmp_path / "run")
    path.write_text(json.dumps(sound | {"test_loss": float("nan")}))
    assert schema.read_result(tmp_path / "run")["test_loss"] is None
    del sound["seconds"]
    path.write_text(json.dumps(sound))
    with pytest.raises(schema.DamagedError, match="seconds must be there"):
        schema.read_result(tmp_path / "run")


def test_every_name_that_is_declared_is_what_a_run_writes_and_documented(tmp_path):
    about = read_about(write_run(tmp_path / "run"))
    declared = {field.name for field in dataclasses.fields(schema.ConfigFile)}
    assert set(about) - declared == {"format", "parameters", "steps"}
    text = (ROOT / "docs" / "runs.md").read_text()
    names = {field.name for field in dataclasses.fields(schema.ResultFile)}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
