"""A method's random numbers: new ones in every step, others for another seed, the same for the same one."""

import jax
import numpy as np
import pytest

from saddle_jax.cli.__main__ import main
from saddle_jax.runs import run_folder
from saddle_jax.training.build import method_key

METHOD = """
import jax
import saddle_jax as sj

def drawing(topology, learning_rate):
    def step(s, x, state):
        s.note("drawn", jax.random.uniform(s.network.key()), "")
        return s.network.mix(x), state

    return sj.Method("drawing", topology, sj.Rule(lambda x: (), step))
"""
TINY = ["--dataset=digits", "--model=logistic", "--agents=2", "--batch_size=100", "--log_every_steps=1"]


def test_every_step_and_every_seed_has_a_key_of_its_own():
    keys = [method_key(jax.random.key(seed), step) for seed in (0, 1) for step in (0, 1, 2, 1000)]
    assert len({np.asarray(jax.random.key_data(key)).tobytes() for key in keys}) == len(keys)


@pytest.fixture
def drawn(tmp_path, unrendered, monkeypatch):
    """Trains a run of two epochs with a method that draws, and returns what it has drawn, step by step."""
    (tmp_path / "mine.py").write_text(METHOD)
    monkeypatch.chdir(tmp_path)

    def train(name, seed):
        flags = [*TINY, "--method=mine.py:drawing", "--epochs=2", "--quiet", f"--seed={seed}"]
        assert main(["saddle", "train", f"--workdir={name}", *flags]) == 0
        return [row["drawn"] for row in run_folder.read_metrics(tmp_path / name) if "drawn" in row]

    return train


def test_a_run_draws_anew_in_every_step(drawn):
    one = drawn("one", seed=0)
    assert len(one) >= 10
    assert len(set(one)) == len(one)
    assert drawn("again", seed=0) == one
    assert not set(one) & set(drawn("other", seed=1))
