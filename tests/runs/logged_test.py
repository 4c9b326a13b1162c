"""metrics.jsonl read in three ways: all of it, from its end, and downsampled."""

import json
import os

import numpy as np
import pytest
from damage import CONTENTS

from saddle_jax.base.errors import DamagedError
from saddle_jax.runs import metrics
from saddle_jax.runs.downsample import read_downsampled
from saddle_jax.runs.metrics import last_evaluation, newest, read_metrics, sampled


def write(folder, lines):
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)


def steps(count, every=0):
    """Lines of steps, and an evaluation after each `every`-th."""
    for step in range(1, count + 1):
        yield {"step": step, "epoch": step / 10, "train_loss": 1 / step}
        if every and step % every == 0:
            yield {"step": step, "epoch": step / 10, "test_loss": 2 / step, "test_accuracy": step / count}


def test_all_three_agree_on_a_short_file(tmp_path):
    write(tmp_path, steps(20, every=5))
    records = read_metrics(tmp_path)
    assert len(records) == 24
    assert list(newest(tmp_path)) == records[::-1]
    downsampled = read_downsampled(tmp_path, 100)
    assert downsampled.records == records
    assert downsampled.is_whole
    assert read_metrics(tmp_path / "nowhere") == [] == list(newest(tmp_path / "nowhere"))


@pytest.mark.parametrize("block", [1, 7, 64, 2**16])
def test_lines_from_the_end_whatever_is_read_at_once(block, tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "_BLOCK", block)
    write(tmp_path, [*steps(50, every=10), '{"step": 51, "epo'])
    assert list(newest(tmp_path)) == read_metrics(tmp_path)[::-1]
    assert [record["step"] for record in newest(tmp_path, "test_loss")] == [50, 40, 30, 20, 10]
    assert last_evaluation(tmp_path)["evaluated_at_step"] == 50


def test_what_a_crash_leaves_is_passed_over(tmp_path):
    write(tmp_path, [*steps(3), "\0\0\0\n", "5\n", '{"a": 1}\n', "\n", '{"step": 4, "epoch": 1}'])
    assert [record["step"] for record in read_metrics(tmp_path)] == [1, 2, 3, 4]
    assert [record["step"] for record in newest(tmp_path)] == [4, 3, 2, 1]


def test_numbers_that_are_not_finite_become_none(tmp_path):
    write(tmp_path, ['{"step": 1, "epoch": 1, "a": NaN, "b": 1e999, "c_by_layer": [Infinity, 1]}\n'])
    assert read_metrics(tmp_path) == [{"step": 1, "epoch": 1, "a": None, "b": None, "c_by_layer": [None, 1]}]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"step": "a"}, "'step' must be a number, got 'a'"),
        ({"step": None}, "'step' must be a whole number >= 0"),
        ({"step": -1}, "'step' must be a whole number >= 0"),
        ({"step": 1.5}, "'step' must be a whole number >= 0"),
        ({"step": True}, "'step' must be a number"),
        ({"epoch": None}, "'epoch' must be a number"),
        ({"epoch": float("inf")}, "'epoch' must be a number"),
        ({"train_loss": "x"}, "'train_loss' must be a number, got 'x'"),
        ({"train_loss": [1]}, "'train_loss' must be a number, got a list"),
        ({"train_loss": {}}, "'train_loss' must be a number, got a dict"),
        ({"train_loss_by_trial": 5}, "'train_loss_by_trial' must be a list, got '5'"),
        ({"train_loss_by_trial": [[1]]}, "'train_loss_by_trial' must be a number, got a list"),
        ({"x_by_layer": [[1]]}, "'x_by_layer' must be a number, got a list"),
    ],
    ids=str,
)
def test_wrong_values_are_told_with_their_line(change, told, tmp_path):
    write(tmp_path, [*steps(2), {"step": 3, "epoch": 1} | change])
    for read in (
        read_metrics,
        lambda folder: list(newest(folder)),
        lambda folder: read_downsampled(folder, 2),
    ):
        with pytest.raises(
            DamagedError, match=r"metrics\.jsonl cannot be read: (line 3|near its end): "
        ) as caught:
            read(tmp_path)
        assert told in str(caught.value)


def test_lists_of_trials_and_layers_may_be_nested(tmp_path):
    write(tmp_path, [{"step": 1, "epoch": 0, "x_by_layer_by_trial": [[1, 2], None], "a_each": [1, None]}])
    assert read_metrics(tmp_path)[0]["x_by_layer_by_trial"] == [[1, 2], None]


@pytest.mark.parametrize("kind", ["no utf-8", "deep", "digits", "4000 digits"])
def test_bytes_that_no_run_writes_are_told(kind, tmp_path):
    content = b'{"step": 1, "epoch": 1}\n' + CONTENTS[kind] + b"\n"
    (tmp_path / "metrics.jsonl").write_bytes(content)
    for read in (read_metrics, lambda folder: list(newest(folder))):
        with pytest.raises(DamagedError, match="cannot be read"):
            read(tmp_path)


def test_a_line_without_an_end_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "LONGEST", 1000)
    (tmp_path / "metrics.jsonl").write_text("[" * 5000)
    for read in (read_metrics, lambda folder: list(newest(folder))):
        with pytest.raises(DamagedError, match="a line has more than 1,000 bytes"):
            read(tmp_path)


def test_a_pipe_hangs_nobody(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(DamagedError, match="it is a pipe"):
        next(newest(tmp_path))


def test_samples_come_from_all_over_a_file_however_long(tmp_path):
    write(tmp_path, steps(20_000, every=100))
    found = [record["step"] for record in sampled(tmp_path, 32)]
    assert len(found) == 32
    assert found[0] == 1
    np.testing.assert_allclose(np.diff(found), 20_000 / 32, rtol=0.1)
    write(tmp_path, steps(10))
    assert [record["step"] for record in sampled(tmp_path, 32)] == list(range(1, 11))
    assert list(sampled(tmp_path / "nowhere", 32)) == []
