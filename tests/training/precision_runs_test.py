"""Runs that multiply in another precision: what is float32 all the same, what is written, and resuming."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dying import Deadly, Killed
from traced import products

import saddle_jax as sj
from saddle_jax.base.errors import RunError
from saddle_jax.cli import __main__ as cli
from saddle_jax.devices import policy
from saddle_jax.graphs import GRAPHS
from saddle_jax.methods import METHODS
from saddle_jax.planning import forecast
from saddle_jax.runs import run_folder
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop, memory
from saddle_jax.training.program import build
from saddle_jax.training.progress import Screen

QUIET = Screen(quiet=True)
SMALL = Settings(
    agents=4, model="strided_cnn", epochs=1, subset=256, batch_size=16, checkpoint_every_steps=2,
    precision="bfloat16", devices="1", eval_agents="never",
)  # fmt: skip


def step_of(config):
    """The step of a run with its arguments, to be traced."""
    program = build(config)
    first = jax.ShapeDtypeStruct((), np.int32)
    arguments = (program.part_like, forecast.input_shapes(program), first, first)
    return lambda *given: program.compiled(*given, 1, program.kind(0, 1)), arguments, program


@pytest.mark.parametrize(
    ("precision", "method"),
    [("tf32", "q_saddle(gossip=exact(1.0, dense))"), ("bfloat16", "n_saddle(mixing=dense)")],
)
def test_only_the_model_multiplies_otherwise(precision, method):
    """Models, state and their average are float32: on this dense graph gossip is a product, too."""
    changes = {"method": method, "precision": precision, "topology": "complete"}
    with policy.targeting("gpu"):
        step, arguments, program = step_of(dataclasses.replace(SMALL, **changes))
        found = products(step, *arguments)
        carry = jax.eval_shape(step, *arguments)[0]
    own = ("float32", "HIGH") if precision == "tf32" else ("bfloat16", "HIGHEST")
    gossip = [each for each in found if each == ("float32", "HIGHEST")]
    assert set(found) == {own, ("float32", "HIGHEST")}
    assert len(gossip) == len(jax.tree.leaves(program.shapes_of_one.params))
    real = {leaf.dtype for leaf in jax.tree.leaves(carry) if jnp.issubdtype(leaf.dtype, jnp.floating)}
    assert real == {np.dtype(np.float32)}


@pytest.mark.usefixtures("built_once")
def test_a_run_that_died_goes_on_bit_for_bit(tmp_path):
    whole = loop.train(SMALL, tmp_path / "whole", QUIET)
    for steps in (1, 3):
        with pytest.raises(Killed):
            loop.train(SMALL, tmp_path / "killed", Deadly(steps))
    result = loop.train(SMALL, tmp_path / "killed", QUIET)
    assert result["params_sha256"] == whole["params_sha256"]
    assert run_folder.read_metrics(tmp_path / "killed") == run_folder.read_metrics(tmp_path / "whole")
    written = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert written["config"]["precision"] == "bfloat16"
    with pytest.raises(RunError, match='precision "bfloat16" -> "float32"'):
        loop.train(dataclasses.replace(SMALL, precision="float32"), tmp_path / "whole", QUIET)


def test_it_learns_and_the_heading_says_so(tmp_path, capsys):
    config = dataclasses.replace(
        SMALL, subset=0, epochs=2, model="mlp", partition="dirichlet(10.0)", checkpoint_every_steps=500
    )
    results = []
    for precision in ("float32", "bfloat16"):
        config = dataclasses.replace(config, precision=precision)
        results.append(loop.train(config, tmp_path / precision, Screen())["test_accuracy"])
    assert results[1] > 0.7
    assert results[1] == pytest.approx(results[0], abs=0.05)
    assert capsys.readouterr().out.count("products in bfloat16") == 1


def test_less_is_kept_for_the_backward_pass():
    kept = [
        memory.kept_of_batch(build(dataclasses.replace(SMALL, precision=precision)).trial)
        for precision in ("float32", "bfloat16")
    ]
    assert kept[1] < 0.65 * kept[0]


def test_curvature_is_measured_in_float32():
    trial = build(SMALL).trial
    loss = trial.loss_of("plain")
    assert {dtype for dtype, _ in products(loss, trial.first_model(), trial.batch_shapes())} == {"float32"}


@pytest.mark.parametrize("verb", [["train"], ["train", "--plan"]])
def test_a_cpu_has_no_tf32(verb, tmp_path, capsys):
    workdir = ["--workdir", str(tmp_path / "run")] if verb == ["train"] else []
    assert cli.main(["saddle", *verb, "--precision=tf32", "--model=mlp", *workdir]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("saddle: precision must be float32 or bfloat16 on this hardware")
    assert not (tmp_path / "run").exists()


def test_mistakes(tmp_path):
    with pytest.raises(
        ValueError, match=r"did you mean.*must be one of float32, tf32, bfloat16, got 'float16'"
    ):
        Settings(precision="float16")

    def loss(params, batch):
        return jnp.mean(jnp.square(batch["x"] @ params["w"] - batch["y"]))

    x = np.linspace(-1, 1, 80, dtype=np.float32)[:, None]
    samples = {"x": x, "y": 3 * x[:, 0]}
    model = (lambda key: {"w": jnp.zeros(1)}, lambda params, x: x @ params["w"])
    method = METHODS["dpsgd"](GRAPHS["ring"](4), 0.1)
    run = sj.Experiment(
        method, samples, samples, model=model, loss=loss, epochs=1, batch_size=20, precision="bfloat16",
        workdir=tmp_path / "run",
    )  # fmt: skip
    with pytest.raises(ValueError, match="precision must be float32 for the loss loss, which does not call"):
        run.train(quiet=True)
