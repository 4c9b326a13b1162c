"""Few lines of a long metrics.jsonl: no peak is lost, and a file that grows is read on where it ended."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logged_test import steps, write

from saddle_jax.base.errors import DamagedError
from saddle_jax.runs import downsample
from saddle_jax.runs.downsample import Following, extremes, read_downsampled
from saddle_jax.runs.metrics import read_metrics


def brute(stretch, values):
    """The first line of each stretch, and the first that has the lowest and the highest of each number."""
    kept = set()
    for number in sorted(set(stretch)):
        lines = [i for i, one in enumerate(stretch) if one == number]
        kept.add(lines[0])
        for column in range(values.shape[1]):
            finite = [i for i in lines if not math.isnan(values[i, column])]
            if finite:
                kept.add(min(finite, key=lambda i: (values[i, column], i)))
                kept.add(min(finite, key=lambda i: (-values[i, column], i)))
    return sorted(kept)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(0, 3), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_extremes_are_those_of_brute_force(seed, lines, names, length):
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, (lines, names)).astype(float)
    values[rng.random(values.shape) < 0.2] = np.nan
    places = np.sort(rng.choice(4 * lines, lines, replace=False))
    assert extremes(places // length, values) == brute((places // length).tolist(), values)


def noisy(count, seed=0):
    rng = np.random.default_rng(seed)
    for step in range(1, count + 1):
        yield {"step": step, "epoch": step / 10, "train_loss": rng.random(), "norm": rng.standard_normal()}


@pytest.mark.parametrize("count", [999, 5000, 20_000])
def test_every_stretch_of_a_long_file_keeps_its_extremes(tmp_path, count):
    write(tmp_path, noisy(count))
    every, few = read_metrics(tmp_path), read_downsampled(tmp_path, 400)
    assert few.lines == count
    assert len(few.records) <= 800
    assert (few.records[0], few.records[-1]) == (every[0], every[-1])
    assert all(record in every for record in few.records[:: len(few.records) // 20])
    kept = {record["step"] for record in few.records}
    length = 2 ** math.ceil(math.log2(count / (400 // 5)))
    for start in range(0, count, length):
        part = every[start : start + length]
        assert part[0]["step"] in kept
        for name in ("train_loss", "norm"):
            for best in (min, max):
                assert best(part, key=lambda record, name=name: record[name])["step"] in kept


def test_no_evaluation_is_lost_among_many_steps(tmp_path):
    write(tmp_path, steps(10_000, every=1000))
    few = read_downsampled(tmp_path, 100)
    assert (few.lines, few.is_whole) == (10_010, False)
    evaluated = [record["step"] for record in few.records if "test_loss" in record]
    assert evaluated == list(range(1000, 10_001, 1000))
    ordered = [record["step"] for record in few.records]
    assert ordered == sorted(ordered)
    assert len(ordered) <= 200 + 10


def test_runs_that_log_alike_have_lines_in_common(tmp_path):
    """A mean over seeds is taken where all of them have lines."""
    found = []
    for seed, count in enumerate((20_000, 20_000, 7000)):
        (tmp_path / str(seed)).mkdir()
        write(tmp_path / str(seed), noisy(count, seed))
        found.append({record["step"] for record in read_downsampled(tmp_path / str(seed), 400).records})
    assert len(set.intersection(*found[:2])) >= 40
    assert len(set.intersection(*found)) >= 7000 // 512


def test_a_file_with_a_million_kinds_of_lines_takes_no_more_memory(tmp_path):
    write(tmp_path, [{"step": step, "epoch": 0, f"name{step}": 1} for step in range(2000)])
    assert len(read_downsampled(tmp_path, 5).records) <= 16 * 12 + 12


def test_peaks_of_every_trial_are_kept(tmp_path):
    lines = [{"step": s, "epoch": s, "train_loss_by_trial": [1.0, 2.0, None]} for s in range(1, 3000)]
    lines[1234]["train_loss_by_trial"] = [1.0, 77.0, None]
    write(tmp_path, lines)
    found = [record["train_loss_by_trial"][1] for record in read_downsampled(tmp_path, 50).records]
    assert found.count(77.0) == 1
    assert len(found) <= 100


def test_a_file_that_grows_is_read_on(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps(line) + "\n" for line in steps(50, every=10)]
    following = Following(tmp_path, 1000)
    assert following.update().lines == 0  # there is no file yet
    with path.open("w") as file:
        for number, line in enumerate(lines, 1):
            file.write(line[:7])
            file.flush()
            assert following.update().lines == number - 1  # half a line is none
            file.write(line[7:])
            file.flush()
            found = following.update()
            assert found.lines == number
            assert found.records == read_metrics(tmp_path)
    monkeypatch.setattr(downsample, "record_of", lambda *arguments: pytest.fail("a line was read twice"))
    assert following.update().lines == len(lines)


def test_a_file_that_was_replaced_or_cut_is_read_anew(tmp_path):
    write(tmp_path, steps(30))
    following = Following(tmp_path, 1000)
    assert following.update().lines == 30
    write(tmp_path, steps(10))  # shorter: cut in place
    assert following.update().lines == 10
    other = tmp_path / "other"
    other.mkdir()
    write(other, [{"step": 99, "epoch": 9, "train_loss": 1.0}] * 40)
    (other / "metrics.jsonl").replace(tmp_path / "metrics.jsonl")  # as a run that resumes does
    assert [record["step"] for record in following.update().records] == [99] * 40
    (tmp_path / "metrics.jsonl").unlink()
    assert following.update().records == []


def test_damage_is_told_each_time(tmp_path):
    write(tmp_path, [*steps(3), {"step": "x", "epoch": 1}])
    following = Following(tmp_path, 1000)
    for _ in range(2):
        with pytest.raises(DamagedError, match="line 4: 'step' must be a number"):
            following.update()


def test_long_lines_are_thinned_to_so_many_bytes_and_keep_their_peak(tmp_path):
    lines = [{**line, "a_each": [0.5] * 100} for line in steps(2000)]
    lines[1234]["train_loss"] = 77.5
    write(tmp_path, lines)
    following = Following(tmp_path, 4096, 100_000)
    found = following.update()
    assert found.lines == 2000
    assert 50 < len(found.records) < 250
    assert following.size < 100_000
    assert 77.5 in [record["train_loss"] for record in found.records]
    assert (found.records[0]["step"], found.records[-1]["step"]) == (1, 2000)
    with pytest.raises(DamagedError, match=r"a line has .* bytes; where so much is shown"):
        read_downsampled(tmp_path, 4096, 2000)
