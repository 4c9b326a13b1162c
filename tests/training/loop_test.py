import dataclasses
import json
import pathlib
import shutil
import time

import jax
import numpy as np
import pytest
from dying import Deadly, Killed

from saddle_jax.base.errors import RunError
from saddle_jax.devices.compilations import compilations
from saddle_jax.runs import run_folder
from saddle_jax.runs.checkpoints import Checkpoints
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop, reopen
from saddle_jax.training.build import build_schedule
from saddle_jax.training.program import build
from saddle_jax.training.progress import Screen

# A small run: three agents, two epochs of 15 steps, seconds.
SMALL = Settings(
    agents=3,
    model="logistic",
    epochs=2,
    batch_size=32,
    learning_rate=0.05,
    partition="dirichlet(1.0)",
    checkpoint_every_steps=5,
    log_every_steps=1,
    eval_every_epochs=1,
)
QUIET = Screen(quiet=True)

pytestmark = pytest.mark.usefixtures("built_once")


def killed_after(steps, config, workdir, **options):
    with pytest.raises(Killed):
        loop.train(config, workdir, Deadly(steps), **options)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, built_once):
    """The small run, once, from end to end."""
    workdir = tmp_path_factory.mktemp("run") / "whole"
    with compilations() as programs:
        result = loop.train(SMALL, workdir, QUIET)
    assert programs.count("jit(run_steps)") == 1  # whatever is due after a step
    return result, workdir


@pytest.fixture(scope="module")
def killed(tmp_path_factory, built_once):
    """The small run, killed once its second checkpoint is written."""
    workdir = tmp_path_factory.mktemp("run") / "killed"
    killed_after(18, SMALL, workdir, since=time.perf_counter() - 1000)
    assert Checkpoints(workdir, 2).steps() == [10, 15]
    return workdir


@pytest.fixture
def died(killed, tmp_path):
    """A copy of the killed run, to damage and to go on with."""
    return pathlib.Path(shutil.copytree(killed, tmp_path / "died"))


def test_a_run_leaves_what_the_readme_says(uninterrupted):
    result, workdir = uninterrupted
    assert result == json.loads((workdir / "result.json").read_text())
    assert result["status"] == "finished"
    assert result["steps"] == 30
    assert 0 < result["ready_seconds"] < result["seconds"] < 1000
    names = {"agent_accuracy_mean", "agent_accuracy_std", "test_loss", "consensus_distance"}
    assert names | {"bytes_sent_per_agent", "paper_bytes_sent_per_agent", "params_sha256"} <= set(result)
    about = json.loads((workdir / "config.json").read_text())
    assert about["config"] == SMALL.to_json()
    assert about["versions"]["jax"] == jax.__version__
    assert len(about["partition"]["fingerprint"]) == 16
    metrics = run_folder.read_metrics(workdir)
    assert [r["step"] for r in metrics if "train_loss" in r] == list(range(1, 31))
    assert [r["step"] for r in metrics if "test_accuracy" in r] == [15, 30]
    assert metrics[-1]["test_accuracy"] == result["test_accuracy"]
    assert list((workdir / "tensorboard").glob("events*"))
    # two neighbours, 650 numbers of four bytes
    assert result["bytes_sent_per_agent"] == result["paper_bytes_sent_per_agent"] == 30 * 2 * 4 * 650


def test_a_run_that_died_goes_on_bit_for_bit(uninterrupted, died):
    """Time counts from the start of every command that went into it; broken lines are passed over."""
    result, workdir = uninterrupted
    with (died / "metrics.jsonl").open("a") as file:
        file.write('5\n{"a": 1}\n{"step": 18, "epo')
    killed_after(3, SMALL, died)  # before the next checkpoint
    again = loop.train(SMALL, died, QUIET, since=time.perf_counter() - 100)
    assert again["params_sha256"] == result["params_sha256"]
    assert run_folder.read_metrics(died) == run_folder.read_metrics(workdir)
    assert 1100 < again["ready_seconds"] < again["seconds"] < 2000


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "n_saddle(compressor=quantize(8), ascent_every=4, ascent_reuse=True)", "seed": 1},
        {"method": "q_saddle(compressor=top_k(0.3), gamma=0.4)", "diagnostics": True},
        {"steps_per_dispatch": 5, "log_every_steps": 5},
    ],
    ids=str,
)
def test_others_go_on_bit_for_bit_too(changes, uninterrupted, tmp_path):
    config = dataclasses.replace(SMALL, epochs=1, schedule="constant", eval_agents="never", **changes)
    whole = loop.train(config, tmp_path / "whole", QUIET)
    for steps in (3, 9, 1):  # before the first checkpoint, after it, and once more
        killed_after(steps, config, tmp_path / "killed")
    result = loop.train(config, tmp_path / "killed", QUIET)
    metrics = run_folder.read_metrics(tmp_path / "whole")
    assert result["params_sha256"] == whole["params_sha256"]
    assert run_folder.read_metrics(tmp_path / "killed") == metrics
    if "steps_per_dispatch" in changes:  # several steps in one call are the same run
        single = {r["step"]: r for r in run_folder.read_metrics(uninterrupted[1]) if "train_loss" in r}
        several = [r for r in metrics if "train_loss" in r]
        assert [r["step"] for r in several] == [5, 10, 15]
        for record in several:
            assert record["train_loss"] == pytest.approx(single[record["step"]]["train_loss"], rel=1e-3)
    elif "seed" in changes:
        assert whole["params_sha256"] != uninterrupted[0]["params_sha256"]


@pytest.mark.parametrize("method", ["dpsgd", "d_saddle", "qgm", "q_saddle", "ngm", "n_saddle"])
def test_every_method_learns_the_digits(method, tmp_path):
    config = dataclasses.replace(SMALL, method=method, learning_rate=0.2, epochs=1, checkpoint_every_steps=99)
    config = dataclasses.replace(config, schedule="constant", log_every_steps=15, eval_agents="never")
    assert loop.train(config, tmp_path / "run", QUIET)["test_accuracy"] > 0.85


DAMAGES = {
    "truncated": lambda folder, file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "flipped": lambda folder, file: file.write_bytes(flipped(file.read_bytes())),
    "emptied": lambda folder, file: (shutil.rmtree(folder), folder.mkdir()),
}


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_is_used(damage, died):
    newest = died / "checkpoints" / "00000015"
    files = (path for path in (newest / "state").rglob("*") if path.is_file())
    largest = max(files, key=lambda path: path.stat().st_size)
    DAMAGES[damage](newest, largest)
    told, like = [], loop.build(SMALL, None).saved_like
    step, _, notes = Checkpoints(died, 2).restore_newest(like, told.append, set_aside=True)
    assert (step, [line.count("00000015 cannot be used") for line in told]) == (10, [1])
    assert notes["seconds"] > 1000
    assert Checkpoints(died, 2).steps() == [10]


def test_a_checkpoint_that_cannot_be_written_leaves_the_others(died, monkeypatch):
    import orbax.checkpoint as ocp

    def full(self, path, *_, **__):
        pathlib.Path(path).mkdir(parents=True)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ocp.StandardCheckpointer, "save", full)
    message = r"20 could not be written \(.*No space left on device\); the last complete one is from .* 15"
    with pytest.raises(RunError, match=message):
        loop.train(SMALL, died, QUIET)
    assert {path.name for path in (died / "checkpoints").iterdir()} == {"00000010", "00000015"}


def test_a_damaged_checkpoint_does_not_push_a_good_one_out(died, capsys):
    shutil.rmtree(died / "checkpoints" / "00000010")
    (died / "checkpoints" / "00000015" / "seal.json").write_text("{}")
    killed_after(7, dataclasses.replace(SMALL, keep_checkpoints=1), died)  # starts anew, and saves at step 5
    assert "00000015 cannot be used (its seal is missing or unreadable)" in capsys.readouterr().err
    assert Checkpoints(died, 1).steps() == [5]
    assert (died / "checkpoints" / "damaged-00000015").is_dir()


def test_dying_in_the_last_evaluation_loses_nothing_and_repeats_nothing(uninterrupted, died, monkeypatch):
    result, workdir = uninterrupted

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(loop, "write_json", die)  # everything is done but result.json
        with pytest.raises(Killed):
            loop.train(SMALL, died, QUIET)
    assert Checkpoints(died, 2).steps()[-1] == 30
    assert loop.train(SMALL, died, QUIET)["params_sha256"] == result["params_sha256"]
    assert run_folder.read_metrics(died) == run_folder.read_metrics(workdir)


def test_models_that_blow_up_in_the_last_step_are_no_result(tmp_path):
    config = dataclasses.replace(SMALL, model="mlp", epochs=1, batch_size=479, learning_rate=1e38)
    result = loop.train(config, tmp_path, QUIET)
    assert result["status"] == "diverged"
    assert json.loads((tmp_path / "result.json").read_text(), parse_constant=pytest.fail) == result


@pytest.mark.parametrize(
    ("name", "content"),
    [("result.json", "{}"), ("result.json", "[]"), ("config.json", "[]"), ("config.json", "{")],
)
def test_damaged_files_are_told_in_one_line(name, content, died):
    (died / name).write_text(content)
    with pytest.raises(RunError, match=name) as caught:
        loop.train(SMALL, died, QUIET)
    assert "\n" not in str(caught.value)


def test_divergence_is_told_with_its_step(tmp_path):
    config = dataclasses.replace(SMALL, learning_rate=1e30, schedule="constant")
    result = loop.train(config, tmp_path, QUIET)
    assert result["status"] == "diverged"
    assert 0 < result["diverged_at_step"] < 30
    assert result["last_finite"]["step"] < result["diverged_at_step"]
    assert np.isfinite(result["last_finite"]["train_loss"])
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        assert "NaN" not in line
        assert "Infinity" not in line
    assert loop.train(config, tmp_path, QUIET) == result  # and is not tried again


def test_a_finished_run_is_left_alone(uninterrupted, capsys):
    result, workdir = uninterrupted
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*.json*")}
    assert loop.train(SMALL, workdir, Screen()) == result
    assert "holds this run already: finished" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in workdir.rglob("*.json*")}


def test_a_folder_in_use_or_of_another_run_is_refused(uninterrupted):
    _, workdir = uninterrupted
    with (
        run_folder.locked(workdir),
        pytest.raises(RunError, match=r"in use by another run \(process \d+\)"),
    ):
        loop.train(SMALL, workdir, QUIET)
    other = dataclasses.replace(SMALL, learning_rate=0.2, seed=3)
    with pytest.raises(RunError, match=r"other settings: learning_rate 0.05 -> 0.2, seed 0 -> 3"):
        loop.train(other, workdir, QUIET)


def test_a_run_can_be_opened_again(uninterrupted):
    result, workdir = uninterrupted
    trial, step, params = reopen.open_run(workdir, pytest.fail)
    assert step == 30
    assert trial.evaluate(reopen.choose(params, None))["accuracy"] == result["test_accuracy"]
    agents = [trial.evaluate(reopen.choose(params, agent))["accuracy"] for agent in range(3)]
    assert np.mean(agents) == pytest.approx(result["agent_accuracy_mean"])
    with pytest.raises(ValueError, match="agent must be 0 to 2, got 3"):
        reopen.choose(params, 3)


def test_streamed_images_train_as_stored_ones_do(uninterrupted, tmp_path, monkeypatch):
    """The same images, decoded batch by batch instead of gathered on the device."""

    class Streamed:
        def __init__(self, images):
            self._images, self.shape, self.dtype = images, images.shape, images.dtype

        def ahead(self, samples):
            return lambda: self._images[samples]

    program = build(SMALL)
    images = Streamed(program.trial.dataset.train["inputs"])
    dataset = dataclasses.replace(
        program.trial.dataset, train={**program.trial.dataset.train, "inputs": images}
    )
    streamed = dataclasses.replace(program, trials=(dataclasses.replace(program.trial, data=dataset),))
    monkeypatch.setattr(loop, "build", lambda config, trial: streamed)
    result = loop.train(SMALL, tmp_path, QUIET)
    assert result["test_accuracy"] == pytest.approx(uninterrupted[0]["test_accuracy"], abs=0.006)
    stored = run_folder.read_metrics(uninterrupted[1])
    for one, other in zip(run_folder.read_metrics(tmp_path), stored, strict=True):
        if "train_loss" in other:
            assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)


def test_schedules_by_hand():
    def rates(**changes):
        schedule = build_schedule(dataclasses.replace(SMALL, **{"epochs": 4, **changes}), 10, 1.0)
        return lambda epoch: float(schedule(int(epoch * 10)))

    step = rates(schedule="step", epochs=8)
    assert [step(e) for e in (0, 3.9, 4, 5.9, 6, 7.9)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    imagenet = rates(schedule="imagenet", epochs=60)
    assert [imagenet(e) for e in (18, 19, 39, 40, 53, 54)] == pytest.approx([1, 0.1, 0.1, 0.01, 0.01, 0.001])
    exponential = rates(schedule="exponential")
    assert [exponential(e) for e in (0, 0.9, 1, 3)] == pytest.approx([1, 1, 0.981, 0.981**3])
    assert rates(schedule="constant")(3) == 1
    cosine = rates(schedule="cosine", epochs=4)
    assert [cosine(e) for e in (0, 2, 4)] == pytest.approx([1, 0.5, 0], abs=1e-6)
    warm = rates(schedule="constant", warmup_epochs=2)
    assert [warm(e) for e in (0, 0.9, 1.9, 3)] == pytest.approx([0.05, 0.5, 1, 1])
