import dataclasses
import json
import pathlib
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

# A small run: three agents, 15 steps of an epoch, seconds.
SMALL = Settings(
    agents=3,
    model="logistic",
    epochs=4,
    batch_size=32,
    learning_rate=0.05,
    partition="dirichlet(1.0)",
    checkpoint_every_steps=7,
    log_every_steps=1,
    eval_every_epochs=2,
)
QUIET = Screen(quiet=True)


def killed_after(steps, config, workdir):
    with pytest.raises(Killed):
        loop.train(config, workdir, Deadly(steps))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The small run, once, from end to end."""
    workdir = tmp_path_factory.mktemp("run") / "whole"
    return loop.train(SMALL, workdir, QUIET), workdir


def test_a_run_leaves_what_the_readme_says(uninterrupted):
    result, workdir = uninterrupted
    assert result == json.loads((workdir / "result.json").read_text())
    assert result["status"] == "finished"
    assert result["steps"] == 60
    assert result["test_accuracy"] > 0.85
    names = {"agent_accuracy_mean", "agent_accuracy_std", "test_loss", "consensus_distance", "seconds"}
    assert names | {"bytes_sent_per_agent", "paper_bytes_sent_per_agent", "params_sha256"} <= set(result)
    about = json.loads((workdir / "config.json").read_text())
    assert about["config"] == SMALL.to_json()
    assert about["versions"]["jax"] == jax.__version__
    assert len(about["partition"]["fingerprint"]) == 16
    metrics = run_folder.read_metrics(workdir)
    assert [r["step"] for r in metrics if "train_loss" in r] == list(range(1, 61))
    assert [r["step"] for r in metrics if "test_accuracy" in r] == [30, 60]
    assert metrics[-1]["test_accuracy"] == result["test_accuracy"]
    assert list((workdir / "tensorboard").glob("events*"))
    # two neighbours, 650 numbers of four bytes
    assert result["bytes_sent_per_agent"] == result["paper_bytes_sent_per_agent"] == 60 * 2 * 4 * 650


def test_the_same_seed_gives_the_same_numbers_and_another_one_others(uninterrupted, tmp_path):
    result, workdir = uninterrupted
    again = loop.train(SMALL, tmp_path / "again", QUIET)
    assert again["params_sha256"] == result["params_sha256"]
    assert run_folder.read_metrics(tmp_path / "again") == run_folder.read_metrics(workdir)
    other = loop.train(dataclasses.replace(SMALL, seed=1), tmp_path / "other", QUIET)
    assert other["params_sha256"] != result["params_sha256"]


@pytest.mark.parametrize("method", ["dpsgd", "d_saddle", "qgm", "q_saddle", "ngm", "n_saddle"])
def test_every_method_learns_the_digits(method, tmp_path):
    config = Settings(
        method=method,
        agents=5,
        model="mlp",
        epochs=10,
        partition="dirichlet(0.5)",
        learning_rate=0.05,
        eval_agents="never",
    )
    result = loop.train(config, tmp_path / "run", QUIET)
    assert result["test_accuracy"] > 0.85


def test_time_counts_from_the_start_of_every_command_that_went_into_a_run(tmp_path):
    config = dataclasses.replace(SMALL, epochs=1, eval_agents="never")
    with pytest.raises(Killed):
        loop.train(config, tmp_path / "run", Deadly(8), since=time.perf_counter() - 1000)
    result = loop.train(config, tmp_path / "run", QUIET, since=time.perf_counter() - 100)
    assert 1100 < result["ready_seconds"] < result["seconds"] < 1200
    alone = loop.train(config, tmp_path / "alone", QUIET)
    assert 0 < alone["ready_seconds"] < alone["seconds"] < 100


def test_the_step_is_compiled_once(tmp_path):
    with compilations() as programs:
        loop.train(SMALL, tmp_path / "run", QUIET)
    assert programs.count("jit(run_steps)") == 1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"method": "n_saddle(compressor=quantize(8), ascent_every=4, ascent_reuse=True)"},
        {"method": "q_saddle(compressor=top_k(0.3), gamma=0.4)", "diagnostics": True},
    ],
    ids=str,
)
def test_a_run_that_died_goes_on_bit_for_bit(changes, tmp_path):
    config = dataclasses.replace(SMALL, **changes)
    whole = loop.train(config, tmp_path / "whole", QUIET)
    workdir = tmp_path / "killed"
    for steps in (3, 12, 9, 15, 1):  # before the first checkpoint, after one, between
        killed_after(steps, config, workdir)
    result = loop.train(config, workdir, QUIET)
    assert result["params_sha256"] == whole["params_sha256"]
    assert run_folder.read_metrics(workdir) == run_folder.read_metrics(tmp_path / "whole")


def test_several_steps_in_one_call_are_the_same_run(uninterrupted, tmp_path):
    config = dataclasses.replace(SMALL, steps_per_dispatch=5, log_every_steps=5, checkpoint_every_steps=10)
    whole = loop.train(config, tmp_path / "whole", QUIET)
    single = {r["step"]: r for r in run_folder.read_metrics(uninterrupted[1]) if "train_loss" in r}
    several = [r for r in run_folder.read_metrics(tmp_path / "whole") if "train_loss" in r]
    assert [r["step"] for r in several] == list(range(5, 61, 5))
    for record in several:
        assert record["train_loss"] == pytest.approx(single[record["step"]]["train_loss"], rel=1e-3)
    for steps in (12, 25):
        killed_after(steps, config, tmp_path / "killed")
    assert loop.train(config, tmp_path / "killed", QUIET)["params_sha256"] == whole["params_sha256"]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "unsealed", "emptied"])
def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_is_used(
    damage, uninterrupted, tmp_path, capsys
):
    killed_after(25, SMALL, tmp_path)
    assert Checkpoints(tmp_path, 2).steps() == [14, 21]
    newest = tmp_path / "checkpoints" / "00000021"
    largest = max(
        (path for path in newest.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    content = bytearray(largest.read_bytes())
    if damage == "truncated":
        largest.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
        largest.write_bytes(content)
    elif damage == "unsealed":
        (newest / "seal.json").unlink()
    else:
        for path in sorted(newest.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    result = loop.train(SMALL, tmp_path, QUIET)
    told = capsys.readouterr().err
    assert "00000021 cannot be used" in told
    assert result["params_sha256"] == uninterrupted[0]["params_sha256"]


def test_a_checkpoint_that_cannot_be_written_leaves_the_others(uninterrupted, tmp_path, monkeypatch):
    import orbax.checkpoint as ocp

    killed_after(10, SMALL, tmp_path)

    def full(self, path, *_, **__):
        pathlib.Path(path).mkdir(parents=True)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ocp.StandardCheckpointer, "save", full)
        message = r"14 could not be written \(.*No space left on device\); the last complete one is from .* 7"
        with pytest.raises(RunError, match=message):
            loop.train(SMALL, tmp_path, QUIET)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000007"]
    result = loop.train(SMALL, tmp_path, QUIET)
    assert result["params_sha256"] == uninterrupted[0]["params_sha256"]


def test_a_damaged_checkpoint_does_not_push_a_good_one_out(uninterrupted, tmp_path, capsys):
    config = dataclasses.replace(SMALL, keep_checkpoints=1)
    killed_after(18, config, tmp_path)
    (tmp_path / "checkpoints" / "00000014" / "seal.json").write_text("{}")
    killed_after(9, config, tmp_path)  # starts anew, and saves at step 7
    assert "00000014 cannot be used (its seal is missing or unreadable)" in capsys.readouterr().err
    assert Checkpoints(tmp_path, 1).steps() == [7]
    assert (tmp_path / "checkpoints" / "damaged-00000014").is_dir()
    assert loop.train(config, tmp_path, QUIET)["params_sha256"] == uninterrupted[0]["params_sha256"]


def test_dying_in_the_last_evaluation_loses_nothing_and_repeats_nothing(uninterrupted, tmp_path, monkeypatch):
    result, workdir = uninterrupted

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(loop, "write_json", die)  # everything is done but result.json
        with pytest.raises(Killed):
            loop.train(SMALL, tmp_path, QUIET)
    assert Checkpoints(tmp_path, 2).steps()[-1] == 60
    assert loop.train(SMALL, tmp_path, QUIET)["params_sha256"] == result["params_sha256"]
    assert run_folder.read_metrics(tmp_path) == run_folder.read_metrics(workdir)


def test_models_that_blow_up_in_the_last_step_are_no_result(tmp_path):
    config = dataclasses.replace(SMALL, model="mlp", epochs=1, batch_size=479, learning_rate=1e38)
    result = loop.train(config, tmp_path, QUIET)
    assert result["status"] == "diverged"
    assert json.loads((tmp_path / "result.json").read_text(), parse_constant=pytest.fail) == result


@pytest.mark.parametrize(
    ("name", "content"),
    [("result.json", "{}"), ("result.json", "[]"), ("config.json", "[]"), ("config.json", "{")],
)
def test_damaged_files_are_told_in_one_line(name, content, tmp_path):
    killed_after(3, SMALL, tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(RunError, match=name) as caught:
        loop.train(SMALL, tmp_path, QUIET)
    assert "\n" not in str(caught.value)


def test_damaged_lines_of_metrics_are_passed_over(uninterrupted, tmp_path):
    killed_after(10, SMALL, tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('5\n{"a": 1}\n{"step": 8, "epo')
    loop.train(SMALL, tmp_path, QUIET)
    assert run_folder.read_metrics(tmp_path) == run_folder.read_metrics(uninterrupted[1])


def test_divergence_is_told_with_its_step(tmp_path):
    config = dataclasses.replace(SMALL, model="mlp", learning_rate=1e8, schedule="constant")
    result = loop.train(config, tmp_path, QUIET)
    assert result["status"] == "diverged"
    assert 0 < result["diverged_at_step"] < 60
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
    assert step == 60
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
        schedule = build_schedule(
            dataclasses.replace(SMALL, learning_rate=1.0, **changes), steps_per_epoch=10
        )
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


def test_nothing_here_can_be_made_to_run_code():
    """A run folder holds JSON, orbax's arrays, NumPy arrays and event files; pickle is nowhere asked for."""
    package = pathlib.Path(loop.__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text()
        assert "import pickle" not in text
        assert "allow_pickle=True" not in text
