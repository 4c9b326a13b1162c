"""What `diagnostics` measures for each parameter tensor, against the same sums written out in NumPy."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem import IRREGULAR, Problem, compiled

import saddle_jax as sj
from saddle_jax.core.gossip import note_compression
from saddle_jax.runs import run_folder
from saddle_jax.settings.settings import Settings
from saddle_jax.training import loop
from saddle_jax.training.progress import Screen


def norms(tree, index):
    """One agent's, or pair's, norm of each tensor, in float64."""
    return [np.linalg.norm(np.asarray(leaf, np.float64)[index]) for leaf in jax.tree.leaves(tree)]


def two_steps(method, problem):
    """The state and models before the second step, and what that step measures."""
    step = compiled(method.step, static_argnums=0, static_argnames=("diagnostics",))
    params, state, _ = step(problem.loss_fn, problem.params, method.init(problem.params), problem.batch(0))
    after, after_state, metrics = step(problem.loss_fn, params, state, problem.batch(1), diagnostics=True)
    return (params, state), (after, after_state), jax.device_get(metrics)


def test_cross_gradients_layer_by_layer():
    problem, compressor = Problem(5), sj.top_k(0.5)
    method = sj.ngm(IRREGULAR, 0.1, weight_decay=0.0, compressor=compressor)
    (params, state), (_, after), metrics = two_steps(method, problem)
    pairs = [(i, k) for i in range(5) for k in range(5) if IRREGULAR.occupied[i, k]]
    # e_ij is what compression held back: after the step, exactly p - Q(p).
    error, before = after.rule.error, state.rule.error
    expected_of = {name: [] for name in ("gradient", "error", "input", "zeta")}
    for i, k in pairs:
        j = IRREGULAR.neighbours[i, k]
        model = [np.asarray(leaf, np.float64)[i] for leaf in jax.tree.leaves(params)]
        gradient = problem.gradient(j, model, 1)  # i's model on j's data
        old_error = [np.asarray(leaf, np.float64)[i, k] for leaf in jax.tree.leaves(before)]
        size = [np.linalg.norm(g + e) for g, e in zip(gradient, old_error, strict=True)]
        lost = norms(error, (i, k))
        expected_of["gradient"].append([np.linalg.norm(g) for g in gradient])
        expected_of["error"].append(lost)
        expected_of["input"].append(size)
        expected_of["zeta"].append([1 - (e / s) ** 2 for e, s in zip(lost, size, strict=True)])
    pairs_of = {
        "gradient_norm_by_layer": "gradient",
        "gradient_compression_error_by_layer": "error",
        "gradient_compression_input_by_layer": "input",
        "gradient_zeta_by_layer": "zeta",
    }
    for name, of in pairs_of.items():
        np.testing.assert_allclose(metrics[name], np.mean(expected_of[of], axis=0), rtol=1e-4, err_msg=name)


def test_models_layer_by_layer():
    random = np.random.default_rng(0)
    params, updates = (
        {"a": random.normal(size=(5, 4)), "b": random.normal(size=(5, 2, 2))} for _ in range(2)
    )
    method = sj.dpsgd(sj.ring(5), 1.0, beta=0.0, weight_decay=0.0, compressor=sj.top_k(0.5))
    stacked, batch = (jax.tree.map(jnp.asarray, tree) for tree in (params, updates))

    def loss_fn(params, batch):  # whose gradient is -batch
        return -sum(jnp.sum(x * d) for x, d in zip(params.values(), batch.values(), strict=True))

    metrics = method.step(loss_fn, stacked, method.init(stacked), batch, diagnostics=True)[2]
    assert metrics.axes["compression_error"] == "A"
    assert metrics.axes["zeta_by_layer"] == "L"
    for position, name in enumerate(("a", "b")):
        theta = (params[name] + updates[name]).reshape(5, -1)  # the public copies start at zero
        survivors = 2  # the larger half of four numbers
        lost = [np.linalg.norm(np.sort(np.abs(row))[:-survivors]) for row in theta]
        sizes = np.linalg.norm(theta, axis=1)
        expected = np.mean(lost), np.mean(sizes), np.mean(1 - (lost / sizes) ** 2)
        for measured, value in zip(("compression_error", "compression_input", "zeta"), expected, strict=True):
            assert metrics[f"{measured}_by_layer"][position] == pytest.approx(value, rel=1e-5), (
                measured,
                name,
            )


def test_where_nothing_was_compressed_there_is_no_contraction_to_measure():
    step = sj.Step(0, None, None, None, diagnostics=True)
    theta = {"a": jnp.zeros((3, 2)), "b": jnp.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])}
    note_compression(step, "", theta, jax.tree.map(lambda x: x / 2, theta), np.ones(3, bool))
    metrics = {name: value for name, (value, _) in step.notes.items()}
    assert np.isnan(metrics["zeta_by_layer"][0])
    assert metrics["zeta_by_layer"][1] == 0.75  # of the one agent that had something
    np.testing.assert_allclose(metrics["compression_error_by_layer"], [0, 2.5 / 3], rtol=1e-6)


def test_a_run_writes_layers_as_lists_and_agents_one_by_one(tmp_path):
    config = Settings(
        method="ngm(compressor=sign)", agents=3, topology="path", model="mlp", epochs=1, diagnostics=True
    )
    result = loop.train(config, tmp_path, Screen(quiet=True))
    about = json.loads((tmp_path / "config.json").read_text())
    logged = [record for record in run_folder.read_metrics(tmp_path) if "train_loss" in record][-1]
    assert len(about["layers"]) > 2
    assert all("/" in name for name in about["layers"])
    for name in (
        "gradient_norm",
        "gradient_compression_error",
        "gradient_compression_input",
        "gradient_zeta",
    ):
        assert len(logged[f"{name}_by_layer"]) == len(about["layers"])
    # Free slots of the path's ends count nowhere: a norm of all lies between its parts' largest and sum.
    parts = logged["gradient_norm_by_layer"]
    assert max(parts) <= logged["gradient_norm"] <= sum(parts)
    assert len(result["agent_accuracy_each"]) == 3
    assert np.mean(result["agent_accuracy_each"]) == pytest.approx(result["agent_accuracy_mean"])
    counts = np.array(about["partition"]["class_counts"])
    assert counts.shape == (3, 10)
    assert counts.sum() == pytest.approx(about["dataset"]["train"], abs=3)
    assert about["dataset"]["class_names"] == [str(digit) for digit in range(10)]
