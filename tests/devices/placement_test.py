"""Runs on devices: where agents go, and that a run is the same wherever it was computed."""

import dataclasses
import json
import os
import shutil

import chex
import jax
import pytest

from saddle_jax.base.errors import RunError
from saddle_jax.cli import __main__ as cli
from saddle_jax.devices.machine import use_every_core
from saddle_jax.devices.placement import Placement, place
from saddle_jax.runs import checkpoints, run_folder
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop, reopen
from saddle_jax.training.progress import Screen
from saddle_jax.version import RUN_FORMAT

QUIET = Screen(quiet=True)
SMALL = Settings(
    agents=5,
    model="logistic",
    epochs=2,
    partition="dirichlet(1.0)",
    learning_rate=0.05,
    eval_every_epochs=1,
    method="q_saddle(compressor=top_k(0.5), gamma=0.5)",
    diagnostics=True,
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The result and the folder of a run on one device."""
    workdir = tmp_path_factory.mktemp("run") / "alone"
    return loop.train(dataclasses.replace(SMALL, devices="1"), workdir, QUIET), workdir


@pytest.mark.parametrize(
    ("agents", "devices", "expected"),
    [
        (10, "auto", (4, 1, 12)),  # three on each, two of them idle
        (6, "auto", (3, 1, 6)),  # four devices would hold no fewer than two each
        (40, "auto", (4, 1, 40)),
        (2, "auto", (2, 1, 2)),  # cores share a batch anyway
        (6, "4", (4, 1, 8)),
        (2, "4", (2, 2, 2)),
        (10, "1", (1, 1, 10)),
    ],
)
def test_agents_are_placed(agents, devices, expected):
    placement = place(agents, 32, devices)
    assert (placement.devices, placement.batch_devices, placement.size) == expected


def test_it_says_where():
    assert str(Placement(10, 4)) == "4 x cpu, 3 agents on each, 2 idle"
    assert str(Placement(2, 2, 2)) == "4 x cpu, 1 agents on each, batches cut over 2"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["--devices=9"], "devices must be at most 4, the number available, got 9"),
        (["--devices=0"], "devices must be auto or a whole number >= 1, got '0'"),
        (["--devices=all"], "devices must be auto or a whole number >= 1, got 'all'"),
        (["--agents=3", "--devices=4"], "devices must be at most agents = 3, or a multiple"),
        (["--agents_per_call=-1"], "agents_per_call must be an integer >= 0, got -1"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(settings, message, tmp_path, capsys):
    assert cli.main(["saddle", "train", f"--workdir={tmp_path / 'run'}", *settings]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_run_is_the_same_on_four_devices(tmp_path, alone):
    result = loop.train(dataclasses.replace(SMALL, devices="4"), tmp_path / "run", QUIET)
    expected, folder = alone
    for name in ("test_loss", "consensus_distance", "bytes_sent_per_agent", "agent_accuracy_each"):
        assert result[name] == pytest.approx(expected[name], rel=1e-4), name
    metrics = run_folder.read_metrics(folder), run_folder.read_metrics(tmp_path / "run")
    for one, other in zip(*metrics, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert other[name] == pytest.approx(value, rel=2e-3, abs=1e-6), name


def test_a_checkpoint_of_some_devices_goes_on_on_others(tmp_path, monkeypatch, alone):
    """5 agents: on four devices there are three idle rows, on two there is one, on one there is none."""
    whole, folder = alone
    config = dataclasses.replace(SMALL, checkpoint_every_steps=5)
    stops = iter([5, 10])

    def stop(self, *arguments):
        advance(self, *arguments)
        if self.step == stop.at:
            raise KeyboardInterrupt

    advance = loop._Run._advance
    monkeypatch.setattr(loop._Run, "_advance", stop)
    for devices in ("4", "2"):
        stop.at = next(stops) + 1
        with pytest.raises(KeyboardInterrupt):
            loop.train(dataclasses.replace(config, devices=devices), tmp_path / "moved", QUIET)
    monkeypatch.setattr(loop._Run, "_advance", advance)
    moved = loop.train(dataclasses.replace(config, devices="1"), tmp_path / "moved", QUIET)
    assert moved["test_loss"] == pytest.approx(whole["test_loss"], rel=1e-5)
    _, step, params = reopen.open_run(tmp_path / "moved", pytest.fail)
    _, _, expected = reopen.open_run(folder, pytest.fail)
    assert step == whole["steps"]
    chex.assert_tree_shape_prefix(params, (5,))
    chex.assert_trees_all_close(params, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("stored", "expected", "same"),
    [
        ([[4, 3], [4]], [[4, 3], [4]], True),
        ([[8, 3], [8], []], [[5, 3], [5], []], True),  # idle rows
        ([[4, 3], [4, 7]], [[4, 5], [4, 7]], False),  # a layer has become wider
        ([[8, 3], [4]], [[5, 3], [4]], False),
        ([[4, 3, 3]], [[4, 3, 5]], False),
        ([[4, 3], [4, 3, 3]], [[4, 5], [4, 5, 5]], False),
        ([[4]], [[4, 1]], False),
    ],
)
def test_only_idle_rows_may_differ_in_a_checkpoint(stored, expected, same):
    assert checkpoints._differ_in_idle_rows_alone(stored, expected, axis=0) is same
    trials = [[[2, *shape] for shape in shapes] for shapes in (stored, expected)]
    assert checkpoints._differ_in_idle_rows_alone(*trials, axis=1) is same


def test_names_that_are_no_checkpoints_do_not_count(tmp_path):
    for name in ("00000003", "99", "damaged-00000005", "000000007"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert checkpoints.Checkpoints(tmp_path, 1).steps() == [3]


def test_another_format_is_told_in_one_line(tmp_path, alone):
    shutil.copytree(alone[1], tmp_path, dirs_exist_ok=True)
    seals = sorted(tmp_path.glob("checkpoints/*/seal.json"))
    assert {json.loads(seal.read_text())["format"] for seal in seals} == {RUN_FORMAT}
    about = json.loads((tmp_path / "config.json").read_text())
    assert about["format"] == RUN_FORMAT
    for seal in seals:
        seal.write_text(json.dumps({**json.loads(seal.read_text()), "format": RUN_FORMAT + 1}))
    warnings = []
    with pytest.raises(RunError, match="no whole checkpoint"):
        reopen.open_run(tmp_path, warnings.append)
    assert f"it is in format {RUN_FORMAT + 1}, and this version reads format {RUN_FORMAT}" in warnings[0]
    del about["format"]
    (tmp_path / "config.json").write_text(json.dumps(about))
    with pytest.raises(
        RunError, match=f"holds a run in format 1, and this version reads format {RUN_FORMAT}: train it again"
    ):
        run_folder.read_config(tmp_path)


def test_more_devices_than_agents_train_the_same(tmp_path):
    config = dataclasses.replace(SMALL, agents=2, epochs=1)
    alone = loop.train(dataclasses.replace(config, devices="1"), tmp_path / "alone", QUIET)
    shared = loop.train(dataclasses.replace(config, devices="4"), tmp_path / "shared", QUIET)
    assert shared["test_loss"] == pytest.approx(alone["test_loss"], rel=1e-5)
    assert "batches cut over 2" in str(place(2, 32, "4"))


def test_cores_are_devices_unless_somebody_said_otherwise(monkeypatch):
    updates = []
    monkeypatch.setattr(jax.config, "update", lambda name, value: updates.append((name, value)))
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
    use_every_core()
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "7")
    use_every_core()
    assert updates == []
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES")
    use_every_core()
    assert updates == [("jax_num_cpu_devices", len(os.sched_getaffinity(0)))]
    assert os.environ["JAX_NUM_CPU_DEVICES"] == str(updates[0][1])
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES")
