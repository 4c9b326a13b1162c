"""Folders that change under a run, or beside one that reads them, and checkpoints that are another run's."""

import dataclasses
import json
import os
import shutil
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest
from folders import write_run

from saddle_jax.base.errors import DamagedError, RunError
from saddle_jax.cli import __main__ as cli
from saddle_jax.runs import run_folder
from saddle_jax.runs.checkpoints import Checkpoints, identity_of
from saddle_jax.training import loop
from saddle_jax.training.progress import Screen

QUIET = Screen(quiet=True)


class Meddler(Screen):
    """Does something to the folder after so many steps."""

    def __init__(self, after, deed):
        super().__init__(quiet=True)
        self._left, self._deed = after, deed

    def advance(self, steps):
        super().advance(steps)
        self._left -= steps
        if self._left == 0:
            self._deed()


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made anew"])
def test_a_run_ends_when_its_folder_is_taken_away(again, small, tmp_path):
    def deed():
        shutil.rmtree(tmp_path / "run")
        if again:  # as a second run of that name does
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / ".lock").write_text("process 1")
            (tmp_path / "run" / "config.json").write_text("another's")

    with pytest.raises(RunError, match="was deleted or replaced while its run was going on"):
        loop.train(small, tmp_path / "run", Meddler(3, deed))
    left = sorted(path.name for path in (tmp_path / "run").iterdir()) if again else []
    assert left == ([".lock", "config.json"] if again else [])
    assert again == (tmp_path / "run").exists()


def test_list_and_best_beside_a_run_that_removes_checkpoints(tmp_path, capsys):
    """Folders below a run come and go; they are not walked into."""
    run = write_run(tmp_path / "runs" / "one")
    ended = threading.Event()

    def come_and_go():
        while not ended.is_set():
            for number in range(8):
                (run / "checkpoints" / f"{number:08d}" / "state" / "d").mkdir(parents=True, exist_ok=True)
            shutil.rmtree(run / "checkpoints", ignore_errors=True)

    worker = threading.Thread(target=come_and_go)
    worker.start()
    try:
        for _ in range(60):
            assert cli.main(["saddle", "list", str(tmp_path / "runs")]) == 0
    finally:
        ended.set()
        worker.join()
    assert capsys.readouterr().out.count("finished") == 60


def test_runs_below_a_run_are_listed_and_its_checkpoints_are_not_searched(tmp_path):
    write_run(tmp_path / "run")
    write_run(tmp_path / "run" / "inner")
    write_run(tmp_path / "run" / "checkpoints" / "planted")
    assert run_folder.folders_below(tmp_path) == [tmp_path / "run", tmp_path / "run" / "inner"]


def test_looking_at_a_lock_does_not_keep_a_run_from_it(tmp_path):
    """Whoever looks holds the lock for a moment; who wants it tries again."""
    with run_folder.locked(tmp_path):
        pass
    ended = threading.Event()

    def look():
        while not ended.is_set():
            run_folder.is_locked(tmp_path)

    workers = [threading.Thread(target=look) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(50):
            with run_folder.locked(tmp_path) as held:
                held.check()
    finally:
        ended.set()
        for worker in workers:
            worker.join()


def test_a_lock_that_stays_is_told_within_two_seconds(tmp_path):
    with run_folder.locked(tmp_path):
        began = time.monotonic()
        with pytest.raises(RunError, match="is in use by another run"), run_folder.locked(tmp_path):
            pytest.fail("was locked twice")
        assert time.monotonic() - began < 2


def tree(value):
    return {"x": jnp.full(3, float(value))}


def test_a_checkpoint_that_is_always_replaced_is_read_all_the_same(tmp_path):
    """With one checkpoint kept, the one that is being read is removed again and again."""
    writer, reader = Checkpoints(tmp_path, keep=1), Checkpoints(tmp_path, keep=1)
    writer.save(1, tree(1))
    ended = threading.Event()

    def replace():
        step = 1
        while not ended.is_set():
            step += 1
            shutil.copytree(tmp_path / "checkpoints" / f"{step - 1:08d}", tmp_path / "copy")
            seal = json.loads((tmp_path / "copy" / "seal.json").read_text())
            (tmp_path / "copy" / "seal.json").write_text(json.dumps(seal | {"step": step}))
            (tmp_path / "copy").rename(tmp_path / "checkpoints" / f"{step:08d}")
            shutil.rmtree(tmp_path / "checkpoints" / f"{step - 1:08d}")
            time.sleep(0.01)

    worker = threading.Thread(target=replace)
    worker.start()
    told = []
    try:
        for _ in range(5):
            found = reader.read_newest(tree(0), told.append)
            assert found is not None
            np.testing.assert_array_equal(found[1]["x"], np.ones(3))
    finally:
        ended.set()
        worker.join()
    assert told == []  # nothing was damaged


def test_checkpoints_that_never_stay_are_told(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=1)
    steps = iter(range(1000))
    monkeypatch.setattr(Checkpoints, "steps", lambda self: [next(steps)])
    with pytest.raises(RunError, match="is being trained, and its checkpoints are replaced before"):
        checkpoints.read_newest(tree(0), print)


def newest(run):
    return run / "checkpoints" / f"{Checkpoints(run, 1).steps()[-1]:08d}"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 1}, "it is of a run with other settings"),
        ({"partition": "dirichlet(0.5)"}, "it is of a run with other settings"),
        ({"epochs": 2}, "it is of a run of other epochs"),
    ],
    ids=str,
)
def test_a_checkpoint_of_another_run_is_refused(change, told, small, trained, copied, capsys):
    other = shutil.copytree(trained, copied.with_name("other"))
    about = json.loads((other / "config.json").read_text())
    about["config"] |= change
    (other / "config.json").write_text(json.dumps(about))
    path = newest(copied) / "seal.json"
    seal = json.loads(path.read_text())
    assert seal["run"] == identity_of(copied).to_json()
    path.write_text(json.dumps(seal | {"run": identity_of(other).to_json()}))
    assert cli.main(["saddle", "evaluate", str(copied)]) == 0  # by an earlier one
    error = capsys.readouterr().err
    assert f"{path.parent} cannot be used ({told}); trying an earlier one" in error
    expected = json.loads((trained / "result.json").read_text())
    (copied / "result.json").unlink()
    lines = []
    screen = Screen(quiet=True)
    screen.warn = lines.append
    result = loop.train(small, copied, screen)
    assert result["params_sha256"] == expected["params_sha256"]
    assert [told in line for line in lines] == [True]


def test_a_checkpoint_under_another_step_is_refused(copied, capsys):
    place = newest(copied)
    place.rename(place.with_name("00009999"))
    assert cli.main(["saddle", "export", str(copied)]) == 0
    told = f"00009999 cannot be used (it is of step {int(place.name)}); trying an earlier one"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"files": {}},
        {"files": []},
        {"notes": {"seconds": None}},
        {"step": "4"},
        {"shapes": 5},
        {"format": []},
    ],
    ids=str,
)
def test_a_seal_that_says_nothing_is_no_seal(change, copied, capsys):
    path = newest(copied) / "seal.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert cli.main(["saddle", "export", str(copied)]) == 0
    assert "(its seal is missing or unreadable); trying an earlier one" in capsys.readouterr().err


def test_a_file_that_nobody_sealed_is_refused(copied, capsys):
    (newest(copied) / "state" / "planted").write_text("x")
    assert cli.main(["saddle", "export", str(copied)]) == 0
    assert "(planted is missing or damaged)" in capsys.readouterr().err


def test_when_all_checkpoints_are_damaged_the_status_is_that_of_damage(copied, capsys):
    for folder in (copied / "checkpoints").iterdir():
        (folder / "seal.json").unlink()
    assert cli.main(["saddle", "export", str(copied)]) == 3
    assert "has no whole checkpoint: train it first" in capsys.readouterr().err
    with pytest.raises(DamagedError, match="cannot be used"):
        Checkpoints(copied, 1).restore(2, {})


def test_an_older_seal_without_the_run_is_taken(copied):
    path = newest(copied) / "seal.json"
    seal = json.loads(path.read_text())
    assert seal.pop("run")["partitions"]
    path.write_text(json.dumps(seal))
    assert cli.main(["saddle", "export", str(copied)]) == 0


def test_a_setting_that_is_new_makes_no_other_run(copied):
    about = json.loads((copied / "config.json").read_text())
    before = identity_of(copied)
    about["config"].pop("timing")  # as if an earlier version had not had it
    (copied / "config.json").write_text(json.dumps(about))
    assert identity_of(copied) == before
    about["config"]["learning_rate"] = 0.7
    (copied / "config.json").write_text(json.dumps(about))
    assert identity_of(copied) != before


def test_a_longer_run_still_knows_its_own_checkpoints(small, tmp_path):
    copied = tmp_path / "run"
    longer = dataclasses.replace(small, epochs=2, schedule="constant")
    short = loop.train(dataclasses.replace(longer, epochs=1), copied, QUIET)
    told = []
    screen = Screen(quiet=True)
    screen.warn = told.append
    result = loop.train(longer, copied, screen)
    assert told == []
    assert result["steps"] == 2 * short["steps"]
    assert os.path.samefile(newest(copied), copied / "checkpoints" / f"{result['steps']:08d}")
