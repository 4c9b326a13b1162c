"""Mistakes in experiments of Python objects: one line each, and nothing is written."""

import jax.numpy as jnp
import numpy as np
import pytest

import saddle_jax as sj
from saddle_jax.base.errors import RunError

METHOD = sj.dpsgd(sj.ring(4), 0.1)
X = np.random.default_rng(0).normal(size=(80, 2))
SAMPLES = X, np.arange(80) % 3


def linear(inputs, outputs):
    return (lambda key: {"w": jnp.zeros((inputs, outputs))}, lambda params, x: x @ params["w"])


def vector(params, batch):
    return batch["inputs"][:, 0]


def run(method=METHOD, train=SAMPLES, test=SAMPLES, **options):
    chosen = {"model": linear(2, 3), "epochs": 1, "batch_size": 16} | options
    return lambda workdir: sj.Experiment(method, train, test, workdir=workdir, **chosen).train(quiet=True)


MISTAKES = {
    "no test": (run(test=None), "test must be given"),
    "both": (run(train="digits"), "test must not be given beside a str"),
    "no model": (run(model=3), "model must be a flax module"),
    "no loss": (run(loss=3), "loss must be the name of an objective"),
    "unknown loss": (run(loss="hinge"), "objective must be one of classification"),
    "no metric": (run(loss=vector, metrics=["top5"]), "metrics must be sj.Metric"),
    "partition": (run(partition="dirichle"), "did you mean 'dirichlet'.*partition must be one of"),
    "no data": (run(train=3), r"train must be \(inputs, targets\) or a tree of arrays \[N, ...\], got int"),
    "no method": (run(method=3), "method must be a Method, or a function that makes one, got 3"),
    "makes none": (run(method=lambda: 3), "function that makes a Method, got 3 from it"),
    "setting": (run(beta=0.5), "setting must be one of norm, .* got 'beta'"),
    "epochs": (run(epochs=0), "epochs must be an integer >= 1 and <= 2147483647, got 0"),
    "batch": (run(batch_size=21), "batch_size must be at most an agent's share, 20, got 21"),
    "sweep": (run(sweep={"eta": [1]}), "method must be a function of eta to be swept"),
    "swept": (run(method=lambda: 3, sweep={"eta": [1]}), "parameters of the method's function, got 'eta'"),
    "few classes": (
        run(model=linear(2, 2)),
        r"model must give logits \[B, 3\] for data, got \[B, 2\]",
    ),
    "shape": (
        run(model=linear(7, 3)),
        r"model <lambda> failed on inputs float32 \[B, 2\]: TypeError: dot_general",
    ),
    "vector loss": (run(loss=vector), r"the loss vector must return one number, got \[16\]"),
    "failing loss": (
        run(loss=lambda params, batch: batch["y"]),
        "the loss <lambda> failed: KeyError: 'y'",
    ),
    "no sweep": (run(method=lambda eta: METHOD, sweep={"eta": []}), "at least one number, got an empty list"),
    "a number": (
        run(method=lambda eta: METHOD, sweep={"eta": 0.1}),
        "sweep of eta must be a list, .* got 0.1",
    ),
    "a seed": (run(seeds=3), r"seeds must be a list, such as \[0, 1\], got 3"),
    "arguments": (run(method=lambda eta: METHOD), "function of what is swept alone: missing .* 'eta'"),
    "one metric": (run(metrics=sj.Metric("a", "lower")), "metrics must be a list of sj"),
    "no function": (
        run(metrics=[sj.Metric("a", "lower")]),
        "metric a must have a function, or",
    ),
    "failing metric": (
        run(metrics=[sj.Metric("a", "lower", lambda params, batch: batch["zz"])]),
        "the metrics of classification failed: KeyError: 'zz'",
    ),
    "failing step": (
        run(method=sj.Method("bad", sj.ring(4), sj.Rule(lambda x: (), lambda s, x, state: 1 / 0))),
        "method <bad> failed in a step: ZeroDivisionError",
    ),
    "ours": (run(model="cnn"), r"model CNN failed on inputs float32 \[B, 2\]"),
    "agents": (run(train=[SAMPLES] * 3), "agents must be 3 for data that is divided so, got 4"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_nothing_is_written(mistake, tmp_path):
    make, told = MISTAKES[mistake]
    with pytest.raises((ValueError, RunError), match=told) as caught:
        make(tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
