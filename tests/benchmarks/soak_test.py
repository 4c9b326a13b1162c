"""A long run is watched: what would grow is seen, and a short one through the real loop does not grow."""

import json

import jax
import jax.numpy as jnp
import pytest

from benchmarks import __main__ as bench
from benchmarks import soak
from saddle_jax.devices.compilations import compilations


def made_up(seconds, memory, compilations):
    steps = [100 * number for number in range(1, 11)]
    clock = [0.0]
    for each in seconds:
        clock.append(clock[-1] + 100 * each)
    return {
        "step": steps,
        "seconds": clock,
        "cpu_seconds": [2 * time for time in clock],
        "bytes": memory,
        "compilations": compilations,
    }


def test_a_run_that_stays_as_it_is():
    samples = made_up([0.5, 0.1] + [0.02] * 7, [5e8, 8e8] + [9e8] * 8, [10, 30] + [34] * 8)
    found = soak.summary(samples)
    assert soak.per_step(samples, "seconds") == pytest.approx([0.5, 0.1] + [0.02] * 7)
    assert (found["compilations"], found["compilations after it settled"]) == (34, 0)
    assert (found["RSS MB when settled"], found["RSS MB at the end"]) == (900, 900)
    assert found["late / early time"] == found["late / early CPU time"] == pytest.approx(1)


def test_what_grows_is_seen():
    samples = made_up([0.02] * 5 + [0.03] * 4, [1e8 * n for n in range(1, 11)], [10] * 9 + [11])
    found = soak.summary(samples)
    assert found["compilations after it settled"] == 1
    assert (found["RSS MB when settled"], found["RSS MB at the end"]) == (400, 1000)
    assert found["late / early time"] == pytest.approx(1.5)


def test_compilations_are_counted_while_it_is_asked_for():
    with compilations() as compiled:
        function = jax.jit(lambda x: 3 * x + len(compiled))
        function(jnp.ones(3))
        before = len(compiled)
        function(jnp.ones(3))
        assert len(compiled) == before >= 1
        function(jnp.ones(4))
        after = len(compiled)
        assert after > before
    jax.jit(lambda x: 5 * x)(jnp.ones(3))
    assert len(compiled) == after


def test_a_short_soak_through_the_training_loop(tmp_path, capsys):
    file, picture = tmp_path / "found.json", tmp_path / "soak.png"
    assert bench.main(["bench", "soak", "--quick", f"--output={file}", f"--plot={picture}"]) == 0
    (row,) = json.loads(file.read_text())["rows"]
    samples = row["figures"]["samples"]
    assert samples["step"] == list(range(10, 101, 10))
    assert samples["seconds"] == sorted(samples["seconds"])
    assert min(samples["bytes"]) > 50e6
    assert row["figures"]["compilations"] > 0
    assert row["figures"]["compilations after it settled"] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "status               finished" in printed
    assert "compilations after it settled 0" in printed
